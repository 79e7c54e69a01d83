"""What Beds24 responds with: access tokens, what became of each item that was sent, pages of bookings, and what errors mean. Pure.

Beds24 publishes no list of an item's errors. One about the account or about Beds24 itself is no refusal of the reservation; it is
recognised by words that such messages usually have.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, ValidationError
from pydantic_core import from_json

from forwarder.pms.kinds.beds24.requests import FIELDS
from forwarder.pms.sdk import PRICE_AND_CARD, Meaning, Response, record_fields

HELD: Final = frozenset({"confirmed", "new"})
"""The statuses of a booking that is made; `new` is one that the host has not looked at yet."""


@dataclass(frozen=True, slots=True)
class ShownBooking:
    """A booking as Beds24 shows it, `whole`, and what of it is read. `reference`:
    what the field holds that carries ours; `shows_reference` is False where the
    credential's scopes hide that field: then nothing can be concluded from it."""

    id: int
    status: str
    reference: object
    shows_reference: bool
    record: Mapping[str, Any]
    whole: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of bookings. `more`: there is another after it."""

    bookings: Sequence[ShownBooking]
    more: bool


@dataclass(frozen=True, slots=True)
class Posted:
    """What Beds24 says of one item of a POST. `new`: the booking that it made; `faults`: what failed, each with its field."""

    success: bool
    new: ShownBooking | None
    faults: Sequence[tuple[str, str]]

    @property
    def words(self) -> str:
        return "; ".join(
            f"{FIELDS.in_callers_words(field)}: {message}" if field else message for field, message in self.faults
        )


class _Fault(BaseModel):
    field: Any = None
    message: Any = None


class _Item(BaseModel):
    success: StrictBool
    new: Any = None
    errors: list[_Fault] | None = None


class _Pages(BaseModel):
    nextPageExists: StrictBool  # noqa: N815 - the vendor's name


class _Listing(BaseModel):
    success: Literal[True]
    pages: _Pages
    data: list[dict[str, Any]]


class _Token(BaseModel):
    token: Annotated[StrictStr, Field(min_length=1)]
    expiresIn: Annotated[StrictInt, Field(ge=0, le=10**9)]  # noqa: N815 - the vendor's name


def token_in(response: Response) -> tuple[str, int] | None:
    """The access token in the body and the seconds for which it is good; None where there is none."""
    try:
        token = _Token.model_validate_json(response.json_text)
    except ValidationError:
        return None
    return token.token, token.expiresIn


def posted_in(response: Response, items: int, reference_field: str) -> list[Posted | None] | None:
    """What the body says of each item, None for those of which it is not clear; None where it does not hold so many."""
    try:
        items_in = from_json(response.json_text, allow_inf_nan=False)
    except ValueError:
        return None
    if not isinstance(items_in, list) or len(items_in) != items:
        return None
    return [_posted(item, reference_field) for item in items_in]


def _posted(given: object, reference_field: str) -> Posted | None:
    try:
        item = _Item.model_validate(given)
    except ValidationError:
        return None
    # A new booking is shown in part only: its status is the one asked for, unless it says otherwise.
    new = _shown({"status": "confirmed", **item.new}, reference_field) if isinstance(item.new, dict) else None
    return Posted(item.success, new, [(_text(fault.field), _text(fault.message)) for fault in item.errors or ()])


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def page_in(response: Response, reference_field: str) -> Page | None:
    """The bookings in the body; None where it does not hold a page of them."""
    try:
        listing = _Listing.model_validate_json(response.json_text)
    except ValidationError:
        return None
    shown = [_shown(booking, reference_field) for booking in listing.data]
    known = [booking for booking in shown if booking is not None]
    return Page(known, listing.pages.nextPageExists) if len(known) == len(shown) else None


def _shown(booking: Mapping[str, Any], reference_field: str) -> ShownBooking | None:
    booking_id, status = booking.get("id"), booking.get("status")
    if (
        not isinstance(booking_id, int)
        or isinstance(booking_id, bool)
        or booking_id <= 0
        or not isinstance(status, str)
    ):
        return None
    reference = booking.get(reference_field)
    return ShownBooking(booking_id, status, reference, reference_field in booking, _record(booking), booking)


def _record(booking: Mapping[str, Any]) -> dict[str, Any]:
    """What of section 2.5's record is in it. Beds24 counts in the currency of the property, and does not say which that is; what
    is paid stands in invoices, whose signs its documents leave open."""
    price, tax = booking.get("price"), booking.get("tax")
    lines = {"totalTax": tax, "breakdown": [{"name": "Tax", "type": "Tax", "total": tax}]} if tax else None
    return record_fields(
        {"totalPrice": price, "notes": booking.get("notes"), "finances": {"totalPrice": price, "tax": lines}}
    )


_FAILED = re.compile(
    r"internal|unexpected|try (again|later)|time.?out|timed out|went wrong|exception|\b(service|server)\b",
    re.IGNORECASE,
)
_NOT_FREE = re.compile(r"availab|sold out|overlap|occupied|already (taken|booked)", re.IGNORECASE)
_THROTTLED = re.compile(r"(credit|usage|rate) limit|too many requests", re.IGNORECASE)
_NOT_LET_IN = re.compile(r"\bscopes?\b|permission|no (write )?access|unauthori[sz]ed|\btoken\b", re.IGNORECASE)
_MEANINGS: Final = (
    (_FAILED, Meaning.FAILED),
    (_NOT_FREE, "room_unavailable"),
    (_THROTTLED, Meaning.THROTTLED),
    (_NOT_LET_IN, Meaning.UNAUTHORIZED),
    *PRICE_AND_CARD,
)
_OF_THE_ROOM: Final = frozenset({"roomId", "unitId"})
_OF_THE_GUEST: Final = frozenset(
    {
        "title",
        "firstName",
        "lastName",
        "email",
        "phone",
        "mobile",
        "address",
        "city",
        "state",
        "postcode",
        "country",
        "country2",
    }
)


def meaning_of(faults: Sequence[tuple[str, str]], *, room_named: bool) -> Meaning | str:
    """What `faults`, each a field and a message, say together. A text is the code of `REFUSALS` for a no. `room_named`: the room
    was asked for by name, and not for the property's id."""
    said = " ".join(message for _, message in faults)
    for pattern, meaning in _MEANINGS:
        if pattern.search(said):
            return meaning
    fields = {field for field, _ in faults}
    if fields & _OF_THE_ROOM:
        return unknown_room(room_named=room_named)
    return "guest_refused" if fields & _OF_THE_GUEST else "pms_refused"


def unknown_room(*, room_named: bool) -> str:
    """The code of `REFUSALS` for a room that is not known."""
    return "room_not_found" if room_named else "property_not_found"

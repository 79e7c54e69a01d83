"""What Beds24 is asked: bookings to make and to cancel, and what it is searched for. And what it leaves to choose. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import urlencode

from pydantic import Field
from pydantic_core import to_json

from forwarder.pms.sdk import (
    Booking,
    FieldTable,
    InNotes,
    LeftOut,
    NoOptions,
    Refused,
    SentAs,
    country_code,
    first_and_last,
    headcount,
    json_number,
)

CANCELLED: Final = "cancelled"
_STATUSES: Final = ("confirmed", "request", "new", "cancelled", "black", "inquiry")
_EVER: Final = "2000-01-01"
_LONGEST_LINE: Final = 100
_LONGEST_ADDRESS: Final = 250
_LONGEST_COMMENTS: Final = 1000
_LONGEST_NOTES: Final = 2000
_MOST_DIGITS: Final = 18
_CUT: Final = " […]"
_LINE: Final = f"cut after {_LONGEST_LINE} characters, visibly"
_NO_CARD: Final = LeftOut("sensitive: Beds24 takes tokens of payment gateways alone")
_NO_NUMBER: Final = "it is no number"

FIELDS: Final = FieldTable(
    {
        "propertyId": SentAs(
            ("roomId",), "where no room is named", otherwise=LeftOut("the room is its own", lost=False)
        ),
        "roomId": SentAs(("roomId",), otherwise=Refused("room_not_found", _NO_NUMBER)),
        "arrivalDate": SentAs(("arrival",)),
        "departureDate": SentAs(("departure",)),
        "arrivalEstimatedTime": SentAs(("arrivalTime",), _LINE),
        "departureEstimatedTime": InNotes(),
        "numberOfGuests": SentAs(("numAdult",), "less children and infants", otherwise=InNotes()),
        "numberOfAdults": SentAs(("numAdult",), "with the guests of whom nothing is said", otherwise=InNotes()),
        "numberOfChildren": SentAs(("numChild",), "with the infants"),
        "numberOfInfants": InNotes("and counted as children", also=("numChild",)),
        "numberOfPets": InNotes(),
        "notes": SentAs(("notes",), f"notes in all are cut after {_LONGEST_NOTES} characters, visibly"),
        "comments": SentAs(("comments",), f"cut after {_LONGEST_COMMENTS} characters, visibly"),
        "status": LeftOut("says nothing more: what is sent is confirmed", lost=False),
        "morChannel": InNotes(),
        "guest.name": SentAs(("firstName", "lastName"), "where these are missing", otherwise=InNotes()),
        "guest.firstName": SentAs(("firstName",), _LINE),
        "guest.lastName": SentAs(("lastName",), _LINE),
        "guest.email": SentAs(("email",), otherwise=InNotes(f"of more than {_LONGEST_LINE} characters")),
        "guest.phone": SentAs(("phone",), _LINE),
        "guest.address.line1": SentAs(("address",), f"both lines, cut after {_LONGEST_ADDRESS} characters, visibly"),
        "guest.address.line2": SentAs(("address",), "after line 1"),
        "guest.address.postalCode": SentAs(("postcode",), _LINE),
        "guest.address.city": SentAs(("city",), _LINE),
        "guest.address.state": SentAs(("state",), _LINE),
        "guest.address.country": SentAs(("country2", "country"), "a code as country2, a name as country"),
        "totalPrice": SentAs(("price",)),
        "currency": InNotes("Beds24 counts in the currency of the property"),
        "paymentProviderKey": InNotes(),
        "paymentProviderId": InNotes(),
        "transactionId": InNotes(),
        "promotionCode": SentAs(("voucher",), _LINE),
        "cardDetails.cardNumber": _NO_CARD,
        "cardDetails.cardHolderName": _NO_CARD,
        "cardDetails.expiryMonth": _NO_CARD,
        "cardDetails.expiryYear": _NO_CARD,
        "cardDetails.cvv": _NO_CARD,
    },
    notes="notes",
)


class Beds24Options(NoOptions):
    """What Beds24 leaves to choose."""

    credential_type: Literal["refresh-token", "token"] = Field(
        "refresh-token",
        description="What the credential is: a refresh token, for which access tokens are asked, or a token that is sent as it is.",
    )
    reference_field: Literal[
        "custom1", "custom2", "custom3", "custom4", "custom5", "custom6", "custom7", "custom8", "custom9", "custom10"
    ] = Field(
        "custom10",
        description="The custom field of a booking that carries our reference; nobody else may write to it. Pause the account and "
        "let its doubtful bookings be settled before it is changed.",
    )


def room_id_of(booking: Booking) -> int | None:
    """Beds24's id of the room; None where it is no number, and so names no room there."""
    room = booking.room_id
    number = int(room) if room.isascii() and room.isdigit() and len(room) <= _MOST_DIGITS else 0
    return number or None


def new_booking(booking: Booking, room_id: int, reference_field: str) -> dict[str, Any]:
    """The item that creates it, unless the room is taken. Texts are cut where Beds24 would refuse them."""
    price, people = booking.total_price, headcount(booking, infants_are_children=True)
    guest, unfit = _guest(booking)
    lines = FIELDS.lines(booking, {**people.unfit, **unfit})
    item = {
        "roomId": room_id,
        "status": "confirmed",
        "arrival": booking.arrival.isoformat(),
        "departure": booking.departure.isoformat(),
        "numAdult": people.adults,
        "numChild": people.children,
        **guest,
        "arrivalTime": _line(booking.fields.get("arrivalEstimatedTime")),
        "voucher": _line(booking.fields.get("promotionCode")),
        "comments": _cut(booking.fields.get("comments"), _LONGEST_COMMENTS),
        "notes": _notes(booking.fields.get("notes"), lines),
        "price": None if price is None else json_number(price),
        reference_field: booking.reference,
        "actions": {"checkAvailability": True},
    }
    return {name: value for name, value in item.items() if value not in (None, "")}


def _guest(booking: Booking) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The guest's fields, and what does not fit into them."""
    guest, address = booking.guest, booking.guest.get("address") or {}
    first, last, unfit = first_and_last(booking)
    email, (code, _) = guest.get("email") or "", country_code(booking)
    street = ", ".join(line for line in (address.get("line1"), address.get("line2")) if line)
    fields = {
        "firstName": _line(first),
        "lastName": _line(last),
        "email": email if len(email) <= _LONGEST_LINE else None,
        "phone": _line(guest.get("phone")),
        "address": _cut(street, _LONGEST_ADDRESS),
        "city": _line(address.get("city")),
        "state": _line(address.get("state")),
        "postcode": _line(address.get("postalCode")),
        "country2": code,
        "country": None if code else _line(address.get("country")),
    }
    return fields, {**unfit, **({} if fields["email"] else {"guest.email": None})}


def _notes(own: str | None, lines: Sequence[str]) -> str | None:
    """The caller's notes, and below them what Beds24 has no field for: that is not what is cut."""
    below = _cut("\n".join(lines), _LONGEST_NOTES) or ""
    above = _cut(own, max(_LONGEST_NOTES - len(below) - 1, len(_CUT)))
    return "\n".join(part for part in (above, below) if part)[:_LONGEST_NOTES]


def _line(value: object) -> str | None:
    return _cut(value, _LONGEST_LINE)


def _cut(value: object, most: int) -> str | None:
    """As much as Beds24 takes; what was cut can be seen to be."""
    text = None if value is None else str(value)
    return text if text is None or len(text) <= most else text[: most - len(_CUT)] + _CUT


def creation_body(items: Sequence[Mapping[str, Any]]) -> bytes:
    """POST /bookings: the items are answered in their order."""
    return to_json(items)


def cancellation_body(booking_id: int) -> bytes:
    """POST /bookings for a booking that is there; it stays, as a cancelled one."""
    return to_json([{"id": booking_id, "status": CANCELLED}])


def lookup_query(booking: Booking, page: int) -> str:
    """Every booking of the account that arrives on that day, in whatever room and status."""
    query = [("arrival", booking.arrival.isoformat()), *_every_status()]
    return urlencode([*query, ("page", str(page))] if page > 1 else query)


def one_query(booking_id: int) -> str:
    """One booking by its id. Without a date, Beds24 would leave out those of the past."""
    return urlencode([("id", str(booking_id)), ("arrivalFrom", _EVER), *_every_status()])


def _every_status() -> list[tuple[str, str]]:
    return [("status", status) for status in _STATUSES]

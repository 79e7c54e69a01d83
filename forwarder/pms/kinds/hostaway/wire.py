"""Hostaway's own words: what it is asked, the envelope that it answers with, and reservations as it shows them. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from pydantic import BaseModel, Field, StrictInt, StrictStr, ValidationError
from pydantic_core import to_json

from forwarder.pms.http.response import Response, read_object
from forwarder.pms.record import finances, record_fields
from forwarder.reservation.booking import Booking
from forwarder.reservation.request import json_number

PER_PAGE: Final = 100
HELD: Final = frozenset({"new", "modified", "confirmed", "ownerStay"})
GONE: Final = frozenset({"cancelled", "declined", "expired"})
_DIRECT: Final = 2000
_REFERENCE: Final = "customerUserId"
_MOST_DIGITS: Final = 18
_COUNTRY_CODE = re.compile(r"[A-Z]{2}")
_HOUR = re.compile(r"(\d{1,2})(?::\d{2})?")
_HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class ShownReservation:
    """A reservation as Hostaway shows it. `shows_reference` is False where the field of our reference is not part of it: then
    nothing can be concluded from its absence."""

    id: int
    status: str | None
    reference: object
    shows_reference: bool
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every answer comes in. `words`: why it failed, in Hostaway's own."""

    success: bool
    result: object
    count: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Token:
    """An access token, and for how many seconds it is good."""

    access_token: str
    seconds: int


class _Token(BaseModel):
    access_token: Annotated[StrictStr, Field(min_length=1)]
    expires_in: Annotated[StrictInt, Field(ge=0, le=10**9)]


def listing_id_of(booking: Booking) -> int | None:
    """Hostaway's id of the listing; None where it is no number, and so names no listing there."""
    listing = booking.property_id
    number = int(listing) if listing.isascii() and listing.isdigit() and len(listing) <= _MOST_DIGITS else 0
    return number or None


def reservation_body(booking: Booking, listing_id: int) -> bytes:
    """POST /reservations. What is not known is left out."""
    fields, price = booking.fields, booking.total_price
    body = {
        "channelId": _DIRECT,
        "listingMapId": listing_id,
        "isManuallyChecked": 0,
        "isInitial": 0,
        _REFERENCE: booking.reference,
        **_guest(booking),
        "numberOfGuests": fields.get("numberOfGuests"),
        "adults": fields.get("numberOfAdults"),
        "children": fields.get("numberOfChildren"),
        "infants": fields.get("numberOfInfants"),
        "pets": fields.get("numberOfPets"),
        "arrivalDate": booking.arrival.isoformat(),
        "departureDate": booking.departure.isoformat(),
        "checkInTime": _hour(fields.get("arrivalEstimatedTime")),
        "checkOutTime": _hour(fields.get("departureEstimatedTime")),
        "totalPrice": None if price is None else json_number(price),
        "currency": booking.currency,
        "hostNote": fields.get("notes"),
        "comment": _comment(fields),
        "status": "new",
    }
    return to_json({name: value for name, value in body.items() if value not in (None, "")})


def _guest(booking: Booking) -> dict[str, Any]:
    guest, address = booking.guest, booking.guest.get("address") or {}
    phone, country = guest.get("phone"), address.get("country") or ""
    return {
        "guestName": booking.guest_name or guest.get("email"),
        "guestFirstName": guest.get("firstName"),
        "guestLastName": guest.get("lastName"),
        "guestEmail": guest.get("email"),
        "phone": None if phone is None else str(phone),
        "guestAddress": ", ".join(line for line in (address.get("line1"), address.get("line2")) if line),
        "guestZipCode": address.get("postalCode"),
        "guestCity": address.get("city"),
        # The general operation takes country names too, which Hostaway does not know.
        "guestCountry": country if _COUNTRY_CODE.fullmatch(country) else None,
    }


def _hour(value: object) -> int | None:
    """Hostaway counts in whole hours."""
    match = _HOUR.fullmatch("" if value is None else str(value))
    return int(match[1]) if match is not None and int(match[1]) < _HOURS else None


def _comment(fields: Mapping[str, Any]) -> str:
    paid = fields.get("transactionId")
    lines = (fields.get("comments"), f"Paid with the booking, transaction {paid}" if paid else None)
    return "\n".join(line for line in lines if line)


def token_body(client_id: str, client_secret: str) -> bytes:
    """POST /accessTokens, a form."""
    form = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": client_secret,
        "scope": "general",
    }
    return urlencode(form).encode("ascii")


def cancellation_body() -> bytes:
    """PUT /reservations/:id/statuses/cancelled. Who booked through a booking engine also cancels there."""
    return to_json({"cancelledBy": "guest"})


def lookup_query(booking: Booking, listing_id: int, after_id: int | None) -> str:
    """The listing's reservations around the day of arrival, a day more on either side: the documents do not say whether the
    first and last days count. In an order that does not change while pages are read, unlike the usual one (last updated)."""
    query = {
        "listingId": listing_id,
        "arrivalStartDate": (booking.arrival - timedelta(days=1)).isoformat(),
        "arrivalEndDate": (booking.arrival + timedelta(days=1)).isoformat(),
        "sortOrder": "arrivalDate",
        "limit": PER_PAGE,
    }
    return urlencode(query if after_id is None else query | {"afterId": after_id})


def any_query() -> str:
    """A listing of next to nothing, which shows that there is a Hostaway."""
    return urlencode({"limit": 1})


def token_in(response: Response) -> Token | None:
    """The token in the body; None where there is none."""
    try:
        answer = _Token.model_validate_json(response.content)
    except ValidationError:
        return None
    return Token(answer.access_token, answer.expires_in)


def envelope_in(response: Response) -> Envelope | None:
    """The envelope that the body is; None for any other body. A failure is told in `result`, and in places in `message`."""
    body = read_object(response) or {}
    result, count = body.get("result"), body.get("count")
    if body.get("status") not in ("success", "fail"):
        return None
    words = next((said.strip() for said in (body.get("message"), result) if isinstance(said, str)), "")
    counted = count if isinstance(count, int) and not isinstance(count, bool) else None
    return Envelope(body["status"] == "success", result, counted, words)


def reservations_in(envelope: Envelope) -> Sequence[ShownReservation] | None:
    """The reservations in the result; None where it is not a list of them."""
    if not envelope.success or not isinstance(envelope.result, list):
        return None
    shown = [reservation_in(item) for item in envelope.result]
    known = [reservation for reservation in shown if reservation is not None]
    return known if len(known) == len(shown) else None


def reservation_in(result: object) -> ShownReservation | None:
    """The reservation that `result` is; None where it is none."""
    if not isinstance(result, dict):
        return None
    reservation_id, status = result.get("id"), result.get("status")
    if not isinstance(reservation_id, int) or isinstance(reservation_id, bool) or reservation_id <= 0:
        return None
    if not isinstance(status, str | None):
        return None
    return ShownReservation(reservation_id, status, result.get(_REFERENCE), _REFERENCE in result, _record(result))


def _record(reservation: Mapping[str, Any]) -> dict[str, Any]:
    """What of section 2.5's record is in it."""
    price, left = _decimal(reservation.get("totalPrice")), _decimal(reservation.get("remainingBalance"))
    paid = price - left if price is not None and left is not None else None
    lines = [line for line in _objects(reservation.get("financeField")) if _counts(line)]
    return record_fields(
        {
            "totalPrice": None if price is None else json_number(price),
            "currency": reservation.get("currency"),
            "notes": reservation.get("hostNote"),
            "codes": {"accessCode": [reservation["doorCode"]]} if reservation.get("doorCode") else None,
            "finances": finances(price, paid, left)
            | {
                "currency": reservation.get("currency"),
                "fee": _part(lines, "fee", "totalFee", "Fee"),
                "tax": _part(lines, "tax", "totalTax", "Tax"),
                "discount": _part(lines, "discount", "totalDiscount", "Discount"),
            },
        }
    )


def _objects(parts: object) -> Iterable[Mapping[str, Any]]:
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _counts(line: Mapping[str, Any]) -> bool:
    return not line.get("isDeleted") and bool(line.get("isIncludedInTotalPrice", 1))


def _part(lines: Sequence[Mapping[str, Any]], of_type: str, total_name: str, our_type: str) -> dict[str, Any] | None:
    """The lines of one type, and their sum; None without any."""
    amounts = [
        (str(line.get("title") or line.get("name") or our_type), amount)
        for line in lines
        if line.get("type") == of_type and (amount := _decimal(line.get("total"))) is not None
    ]
    if not amounts:
        return None
    breakdown = [{"name": name, "type": our_type, "total": json_number(amount)} for name, amount in amounts]
    return {total_name: json_number(sum((amount for _, amount in amounts), Decimal())), "breakdown": breakdown}


def _decimal(value: object) -> Decimal | None:
    """A JSON number, exactly as it was written."""
    return None if isinstance(value, bool) or not isinstance(value, int | float) else Decimal(str(value))

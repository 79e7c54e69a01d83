"""What Beds24 is asked: bookings to make and to cancel, and what it is searched for. And what it leaves to choose. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import urlencode

from pydantic import Field
from pydantic_core import to_json

from forwarder.pms.sdk import Booking, NoOptions, json_number

CANCELLED: Final = "cancelled"
_STATUSES: Final = ("confirmed", "request", "new", "cancelled", "black", "inquiry")
_EVER: Final = "2000-01-01"
_LONGEST_LINE: Final = 100
_MOST_DIGITS: Final = 18
_COUNTRY_CODE = re.compile(r"[A-Z]{2}")


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
    price = booking.total_price
    item = {
        "roomId": room_id,
        "status": "confirmed",
        "arrival": booking.arrival.isoformat(),
        "departure": booking.departure.isoformat(),
        **_people(booking.fields),
        **_guest(booking),
        "arrivalTime": _cut(booking.fields.get("arrivalEstimatedTime"), _LONGEST_LINE),
        "comments": _cut(_comments(booking.fields), 1000),
        "notes": _cut(booking.fields.get("notes"), 2000),
        "price": None if price is None else json_number(price),
        reference_field: booking.reference,
        "actions": {"checkAvailability": True},
    }
    return {name: value for name, value in item.items() if value not in (None, "")}


def _people(fields: Mapping[str, Any]) -> dict[str, int | None]:
    """Beds24 counts adults and children. Adults are those guests who are not said to be anything else."""
    children, infants = fields.get("numberOfChildren"), fields.get("numberOfInfants")
    young = (children or 0) + (infants or 0)
    adults, guests = fields.get("numberOfAdults"), fields.get("numberOfGuests")
    if adults is None and guests is not None:
        adults = max(guests - young, 0)
    return {"numAdult": adults, "numChild": None if children is None and infants is None else young}


def _guest(booking: Booking) -> dict[str, str | None]:
    guest, address = booking.guest, booking.guest.get("address") or {}
    first, _, last = booking.guest_name.strip().partition(" ")
    email, country = guest.get("email") or "", address.get("country") or ""
    street = ", ".join(line for line in (address.get("line1"), address.get("line2")) if line)
    return {
        "firstName": _cut(guest.get("firstName") or first, _LONGEST_LINE),
        "lastName": _cut(guest.get("lastName") or last, _LONGEST_LINE),
        "email": email if len(email) <= _LONGEST_LINE else None,
        "phone": _cut(guest.get("phone"), _LONGEST_LINE),
        "address": _cut(street, 250),
        "city": _cut(address.get("city"), _LONGEST_LINE),
        "state": _cut(address.get("state"), _LONGEST_LINE),
        "postcode": _cut(address.get("postalCode"), _LONGEST_LINE),
        # The general operation takes country names too.
        "country2" if _COUNTRY_CODE.fullmatch(country) else "country": _cut(country, _LONGEST_LINE),
    }


def _comments(fields: Mapping[str, Any]) -> str:
    paid = fields.get("transactionId")
    lines = (fields.get("comments"), f"Paid with the booking, transaction {paid}" if paid else None)
    return "\n".join(line for line in lines if line)


def _cut(value: object, most: int) -> str | None:
    return None if value is None else str(value)[:most]


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

"""BookingSync's own words: the bodies that it takes, the bodies that it answers with, and what its 422 says. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

import httpx
from pydantic import BaseModel, StrictInt, StrictStr, ValidationError
from pydantic_core import to_json

from forwarder.pms.answer import amount, finances, read_object, record_fields
from forwarder.reservation.booking import Booking
from forwarder.reservation.request import json_number

_LABEL: Final = "default"
_CLOCK_TIME = re.compile(r"\d{1,2}(:\d{2})?")
_COUNTRY_CODE = re.compile(r"[A-Z]{2}")
_OF_THE_NIGHTS: Final = {"start_at", "end_at", "base"}
_NOT_FREE = re.compile(r"availab|overlap|taken|booked|occupied|conflict", re.IGNORECASE)
_OF_THE_RENTAL: Final = {"rental", "rental_id"}


class SyncBooking(BaseModel):
    """A booking as BookingSync shows it, as far as we read it. Amounts are decimal texts."""

    id: StrictInt
    status: StrictStr
    external_reference: StrictStr | None = None
    final_price: Any = None
    paid_amount: Any = None
    payment_left_to_collect: Any = None
    currency: Any = None
    notes: Any = None
    payment_url: Any = None
    door_key_code: Any = None

    @property
    def shows_reference(self) -> bool:
        """False where the credential's scope hides our reference from us: then nothing can be concluded from its absence."""
        return "external_reference" in self.model_fields_set

    def record(self) -> dict[str, Any]:
        """What of section 2.5's record is in it."""
        price, paid = amount(self.final_price), amount(self.paid_amount)
        answer = {
            "totalPrice": None if price is None else json_number(price),
            "currency": self.currency,
            "notes": self.notes,
            "paymentUrl": self.payment_url,
            "codes": {"accessCode": [self.door_key_code]} if self.door_key_code else None,
            "finances": finances(price, paid, amount(self.payment_left_to_collect)) | {"currency": self.currency},
        }
        return record_fields(answer)


class _Bookings(BaseModel):
    bookings: list[SyncBooking]


class _Client(BaseModel):
    id: StrictInt


class _Clients(BaseModel):
    clients: tuple[_Client]


def client_body(booking: Booking) -> bytes:
    """The guest. What is not known is left out, but for the name, which BookingSync cannot do without."""
    guest = booking.guest
    email, phone = guest.get("email"), guest.get("phone")
    client: dict[str, Any] = {"fullname": booking.guest_name or email or "Guest"}
    if guest.get("firstName") and guest.get("lastName"):
        client |= {"firstname": guest["firstName"], "lastname": guest["lastName"]}
    if email:
        client["emails"] = [{"label": _LABEL, "email": email}]
    if phone not in (None, ""):
        client["phones"] = [{"label": _LABEL, "number": str(phone)}]
    address = _address(guest.get("address") or {})
    if address:
        client["addresses"] = [{"label": _LABEL, **address}]
    return to_json({"clients": [client]})


def _address(address: Mapping[str, Any]) -> dict[str, Any]:
    country = address.get("country")
    parts = {
        "address1": address.get("line1"),
        "address2": address.get("line2"),
        "city": address.get("city"),
        "state": address.get("state"),
        "zip": address.get("postalCode"),
        # The general operation takes country names too, which BookingSync would refuse.
        "country_code": country if country and _COUNTRY_CODE.fullmatch(country) else None,
    }
    return _given(parts)


def booking_body(booking: Booking, client_id: int) -> bytes:
    """The booking itself. Infants and pets have no field there."""
    fields, price = booking.fields, booking.total_price
    body = {
        "start_at": booking.arrival.isoformat(),
        "end_at": booking.departure.isoformat(),
        "booked": True,
        "client_id": client_id,
        "adults": _adults(fields),
        "children": fields.get("numberOfChildren"),
        "currency": booking.currency,
        "final_price": None if price is None else format(price, "f"),
        "external_reference": booking.reference,
        "notes": fields.get("notes"),
        "expected_checkin_time": _clock_time(fields.get("arrivalEstimatedTime")),
        "expected_checkout_time": _clock_time(fields.get("departureEstimatedTime")),
        "comments": _comments(fields),
    }
    return to_json({"bookings": [_given(body)]})


def _adults(fields: Mapping[str, Any]) -> int | None:
    """As given; else those of the guests who are not said to be anything else."""
    adults: int | None = fields.get("numberOfAdults")
    guests: int | None = fields.get("numberOfGuests")
    if adults is not None or guests is None:
        return adults
    return max(guests - sum(fields.get(name) or 0 for name in ("numberOfChildren", "numberOfInfants")), 0)


def _clock_time(value: object) -> str | None:
    text = "" if value is None else str(value)
    return text if _CLOCK_TIME.fullmatch(text) else None


def _comments(fields: Mapping[str, Any]) -> list[dict[str, str]]:
    comments = [fields.get("comments")]
    if fields.get("transactionId"):
        comments.append(f"Paid with the booking, transaction {fields['transactionId']}")
    return [{"content": comment} for comment in comments if comment]


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def client_id_in(response: httpx.Response) -> int | None:
    """The id of the one client in the body; None where it is not that."""
    try:
        return _Clients.model_validate_json(response.content).clients[0].id
    except ValidationError:
        return None


def bookings_in(response: httpx.Response) -> list[SyncBooking] | None:
    """The bookings in the body; None where it does not hold a list of them."""
    try:
        return _Bookings.model_validate_json(response.content).bookings
    except ValidationError:
        return None


def refusal_in(response: httpx.Response) -> tuple[str, str]:
    """The code of `REFUSALS` for a 422, and BookingSync's messages, each with its field."""
    errors = (read_object(response) or {}).get("errors")
    messages = {str(field): _messages(said) for field, said in errors.items()} if isinstance(errors, dict) else {}
    detail = "; ".join(f"{field}: {said}" for field, said in messages.items())
    if any(_NOT_FREE.search(messages[field]) for field in messages.keys() & _OF_THE_NIGHTS):
        return "room_unavailable", detail
    return ("property_not_found" if messages.keys() & _OF_THE_RENTAL else "pms_refused"), detail


def _messages(said: object) -> str:
    return ", ".join(map(str, said)) if isinstance(said, list) else str(said)

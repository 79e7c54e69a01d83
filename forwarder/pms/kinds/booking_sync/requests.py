"""What BookingSync is asked: the bodies of requests. Pure."""

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

from pydantic_core import to_json

from forwarder.pms.kinds.booking_sync.options import BookingSyncOptions
from forwarder.pms.kinds.booking_sync.quote import Quote
from forwarder.pms.sdk import Booking

_LABEL: Final = "default"
_CLOCK_TIME = re.compile(r"\d{1,2}(:\d{2})?")
_COUNTRY_CODE = re.compile(r"[A-Z]{2}")


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
    address = address_of(booking)
    if address:
        client["addresses"] = [{"label": _LABEL, **address}]
    return to_json({"clients": [client]})


def address_of(booking: Booking) -> dict[str, Any]:
    """The guest's address, as far as it is known."""
    address = booking.guest.get("address") or {}
    parts = {
        "address1": address.get("line1"),
        "address2": address.get("line2"),
        "city": address.get("city"),
        "state": address.get("state"),
        "zip": address.get("postalCode"),
        "country_code": _country_code(booking),
    }
    return given(parts)


def _country_code(booking: Booking) -> str | None:
    # The general operation takes country names too, which BookingSync would refuse.
    country = (booking.guest.get("address") or {}).get("country")
    return country if country and _COUNTRY_CODE.fullmatch(country) else None


def booking_body(
    booking: Booking, client_id: int, options: BookingSyncOptions, quote: Quote | None, *, held_until: datetime | None
) -> bytes:
    """The booking of a client that there is. With `held_until` it is tentative, and ends by itself at that moment. Infants and pets
    have no field there."""
    held: dict[str, Any] = {"booked": True}
    if held_until is not None:
        held = {"booked": False, "tentative_expires_at": f"{held_until:%Y-%m-%dT%H:%M:%SZ}"}
    body = {
        **_stay(booking, options),
        **held,
        "client_id": client_id,
        "source_id": options.source_id,
        **_price(booking, quote),
        **_texts(booking),
    }
    return to_json({"bookings": [given(body)]})


def strict_booking_body(booking: Booking, options: BookingSyncOptions, quote: Quote | None) -> bytes:
    """The client and the booking in one. Documented nowhere: the form is the one of the recorded traffic, and `external_reference`
    and what else a booking has is added to it."""
    body = {
        "rental_id": int(booking.property_id) if booking.property_id.isdecimal() else booking.property_id,
        **_stay(booking, options),
        **_price(booking, quote),
        "price_to_pay_now": None if quote is None or quote.to_pay_now is None else format(quote.to_pay_now, "f"),
        "source_id": None if options.source_id is None else str(options.source_id),
        "client": _strict_client(booking),
        **_texts(booking),
    }
    return to_json({"bookings": [given(body)]})


def _strict_client(booking: Booking) -> dict[str, Any]:
    guest = booking.guest
    name = (booking.guest_name or guest.get("email") or "Guest").strip()
    first, _, last = name.rpartition(" ")
    parts = {
        "firstname": guest.get("firstName") or first or last,
        "lastname": guest.get("lastName") or last,
        "email": guest.get("email"),
        "phone_number": str(guest.get("phone") or ""),
        "country_code": _country_code(booking),
    }
    return given(parts)


def _stay(booking: Booking, options: BookingSyncOptions) -> dict[str, Any]:
    fields = booking.fields
    return {
        "start_at": _moment(booking.arrival, options.checkin_time),
        "end_at": _moment(booking.departure, options.checkout_time),
        "adults": adults(fields),
        "children": fields.get("numberOfChildren"),
    }


def _moment(day: date, time: str | None) -> str:
    """In the rental's own time, as BookingSync reads and shows it."""
    return day.isoformat() if time is None else f"{day.isoformat()} {time}:00"


def _price(booking: Booking, quote: Quote | None) -> dict[str, Any]:
    if quote is None:
        price = booking.total_price
        return {"currency": booking.currency, "final_price": None if price is None else format(price, "f")}
    return {
        "currency": quote.currency,
        "initial_price": None if quote.initial_price is None else format(quote.initial_price, "f"),
        "final_price": format(quote.final_price, "f"),
        "bookings_fees": list(quote.fees),
        "bookings_taxes": list(quote.taxes),
    }


def _texts(booking: Booking) -> dict[str, Any]:
    fields = booking.fields
    return {
        "external_reference": booking.reference,
        "notes": fields.get("notes"),
        "expected_checkin_time": _clock_time(fields.get("arrivalEstimatedTime")),
        "expected_checkout_time": _clock_time(fields.get("departureEstimatedTime")),
        "comments": _comments(fields),
    }


def adults(fields: Mapping[str, Any]) -> int | None:
    """As given; else those of the guests who are not said to be anything else."""
    given_adults: int | None = fields.get("numberOfAdults")
    guests: int | None = fields.get("numberOfGuests")
    if given_adults is not None or guests is None:
        return given_adults
    return max(guests - sum(fields.get(name) or 0 for name in ("numberOfChildren", "numberOfInfants")), 0)


def _clock_time(value: object) -> str | None:
    text = "" if value is None else str(value)
    return text if _CLOCK_TIME.fullmatch(text) else None


def _comments(fields: Mapping[str, Any]) -> list[dict[str, str]]:
    comments = [fields.get("comments")]
    if fields.get("transactionId"):
        comments.append(f"Paid with the booking, transaction {fields['transactionId']}")
    return [{"content": comment} for comment in comments if comment]


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not known."""
    return {name: value for name, value in fields.items() if value not in (None, "", [])}

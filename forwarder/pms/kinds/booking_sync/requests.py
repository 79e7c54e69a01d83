"""What BookingSync is asked: the bodies of requests. Pure."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

from pydantic_core import to_json

from forwarder.pms.kinds.booking_sync.fields import CLOCK_TIME, comments
from forwarder.pms.kinds.booking_sync.options import BookingSyncOptions
from forwarder.pms.kinds.booking_sync.quote import Quote
from forwarder.pms.sdk import Booking, FieldTable, Headcount, country_code, first_and_last, headcount

_LABEL: Final = "default"


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
        "country_code": country_code(booking)[0],
    }
    return given(parts)


def booking_body(
    booking: Booking,
    client_id: int,
    options: BookingSyncOptions,
    table: FieldTable,
    quote: Quote | None,
    *,
    held_until: datetime | None,
) -> bytes:
    """The booking of a client that there is. With `held_until` it is tentative, and ends by itself at that moment."""
    people = people_of(booking)
    held: dict[str, Any] = {"booked": True}
    if held_until is not None:
        held = {"booked": False, "tentative_expires_at": f"{held_until:%Y-%m-%dT%H:%M:%SZ}"}
    body = {
        **_stay(booking, options, people),
        **held,
        "client_id": client_id,
        "source_id": options.source_id,
        **_price(booking, quote),
        **_texts(booking),
        "comments": comments(booking, table, options, people),
    }
    return to_json({"bookings": [given(body)]})


def strict_booking_body(booking: Booking, options: BookingSyncOptions, table: FieldTable, quote: Quote | None) -> bytes:
    """The client and the booking in one. Documented nowhere: the form is the one of the recorded traffic, and `external_reference`
    and what else a booking has is added to it."""
    people = people_of(booking)
    body = {
        "rental_id": int(booking.property_id) if booking.property_id.isdecimal() else booking.property_id,
        **_stay(booking, options, people),
        **_price(booking, quote),
        "price_to_pay_now": None if quote is None or quote.to_pay_now is None else format(quote.to_pay_now, "f"),
        "source_id": None if options.source_id is None else str(options.source_id),
        "client": _strict_client(booking),
        **_texts(booking),
        "comments": comments(booking, table, options, people),
    }
    return to_json({"bookings": [given(body)]})


def _strict_client(booking: Booking) -> dict[str, Any]:
    guest = booking.guest
    first, last, _ = first_and_last(booking)
    nameless = guest.get("email") or "Guest"
    parts = {
        "firstname": first or last or nameless,
        "lastname": last or first or nameless,
        "email": guest.get("email"),
        "phone_number": str(guest.get("phone") or ""),
        "country_code": country_code(booking)[0],
    }
    return given(parts)


def people_of(booking: Booking) -> Headcount:
    """The guests as BookingSync counts them: adults and children."""
    return headcount(booking, infants_are_children=False)


def _stay(booking: Booking, options: BookingSyncOptions, people: Headcount) -> dict[str, Any]:
    return {
        "start_at": _moment(booking.arrival, options.checkin_time),
        "end_at": _moment(booking.departure, options.checkout_time),
        "adults": people.adults,
        "children": people.children,
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
    }


def _clock_time(value: object) -> str | None:
    text = "" if value is None else str(value)
    return text if CLOCK_TIME.fullmatch(text) else None


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not known."""
    return {name: value for name, value in fields.items() if value not in (None, "", [])}

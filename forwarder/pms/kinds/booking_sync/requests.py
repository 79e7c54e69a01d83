"""Requests to BookingSync: the field table, the live quote of a price, and the bodies. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from pydantic_core import to_json

from forwarder.pms.kinds.booking_sync.api import BookingSyncOptions
from forwarder.pms.sdk import (
    Booking,
    Fate,
    FieldTable,
    Headcount,
    InNotes,
    LeftOut,
    Refused,
    Response,
    SentAs,
    amount,
    country_code,
    decimal,
    first_and_last,
    headcount,
)

CLOCK_TIME: Final = re.compile(r"\d{1,2}(:\d{2})?")
_NO_ROOMS: Final = Refused("no_rooms", "it is another")
_NO_CLOCK_TIME: Final = InNotes("where it is no clock time")
_NO_CARD: Final = LeftOut("sensitive: BookingSync's API takes no cards; the option securePayments charges them")
_NO_CHARGE: Final = LeftOut("sensitive: it is charged where morChannel is PMS, and else goes nowhere")
_CARD: Final = {
    "cardNumber": "card_number",
    "cardHolderName": "cardholder_name",
    "expiryMonth": "expires_at_month",
    "expiryYear": "expires_at_year",
    "cvv": "security_code",
}

FIELDS: Final = FieldTable(
    {
        "propertyId": SentAs(("path", "rental_id"), otherwise=Refused("property_not_found", "no path can name it")),
        "roomId": SentAs(("path", "rental_id"), "is the property", otherwise=_NO_ROOMS),
        "arrivalDate": SentAs(("start_at",)),
        "departureDate": SentAs(("end_at",)),
        "arrivalEstimatedTime": SentAs(("expected_checkin_time",), otherwise=_NO_CLOCK_TIME),
        "departureEstimatedTime": SentAs(("expected_checkout_time",), otherwise=_NO_CLOCK_TIME),
        "numberOfGuests": SentAs(("adults",), "less children and infants", otherwise=InNotes()),
        "numberOfAdults": SentAs(("adults",), "with the guests of whom nothing is said", otherwise=InNotes()),
        "numberOfChildren": SentAs(("children",)),
        "numberOfInfants": InNotes(),
        "numberOfPets": InNotes(),
        "notes": SentAs(("notes",)),
        "comments": SentAs(("comments.content",), "a comment of its own"),
        "status": LeftOut("says nothing more: what is sent is booked", lost=False),
        "morChannel": InNotes(),
        "guest.name": SentAs(("fullname",)),
        "guest.firstName": SentAs(("firstname", "fullname"), "together with the last name", otherwise=InNotes()),
        "guest.lastName": SentAs(("lastname", "fullname"), "together with the first name", otherwise=InNotes()),
        "guest.email": SentAs(("email",), "in the place of a name, too, if there is none"),
        "guest.phone": SentAs(("phones.number",)),
        "guest.address.line1": SentAs(("address1",)),
        "guest.address.line2": SentAs(("address2",)),
        "guest.address.postalCode": SentAs(("zip",)),
        "guest.address.city": SentAs(("city",)),
        "guest.address.state": SentAs(("state",)),
        "guest.address.country": SentAs(("country_code",), otherwise=InNotes("where it is no code of two letters")),
        "totalPrice": SentAs(("final_price",)),
        "currency": SentAs(("currency",)),
        "paymentProviderKey": InNotes(),
        "paymentProviderId": InNotes(),
        "transactionId": InNotes(),
        "promotionCode": InNotes(),
        **{f"cardDetails.{name}": _NO_CARD for name in _CARD},
    },
    notes="comments.content",
)
"""Those of an account without options."""

_STRICT: Final[Mapping[str, Fate]] = {
    "propertyId": SentAs(("rental_id",)),
    "roomId": SentAs(("rental_id",), "is the property", otherwise=_NO_ROOMS),
    "guest.name": SentAs(("firstname", "lastname"), "where these are missing", otherwise=InNotes()),
    "guest.firstName": SentAs(("firstname",)),
    "guest.lastName": SentAs(("lastname",)),
    "guest.phone": SentAs(("phone_number",)),
    **{f"guest.address.{part}": InNotes() for part in ("line1", "line2", "postalCode", "city", "state")},
}
_NOTED: Final[Mapping[str, Fate]] = {
    "transactionId": InNotes(also=("payments.transaction_id",)),
    "totalPrice": SentAs(("final_price", "payments.amount_in_cents"), "the latter in cents"),
}
_STRICT_AND_NOTED: Final[Mapping[str, Fate]] = {
    "guest.name": SentAs(("firstname", "lastname", "fullname"), "where the others are missing", otherwise=InNotes()),
    "guest.firstName": SentAs(("firstname", "fullname")),
    "guest.lastName": SentAs(("lastname", "fullname")),
    "guest.address.line1": InNotes(also=("payments.address1",)),
    "guest.address.line2": InNotes(also=("payments.address2",)),
    "guest.address.postalCode": InNotes(also=("payments.zip",)),
    "guest.address.city": InNotes(also=("payments.city",)),
    "guest.address.state": InNotes(also=("payments.state",)),
}


def table_for(options: BookingSyncOptions) -> FieldTable:
    """The table of an account that is set so."""
    changes: dict[str, Fate] = dict(_STRICT) if options.strict_bookings else {}
    if options.record_payments:
        changes |= _NOTED if not options.strict_bookings else {**_NOTED, **_STRICT_AND_NOTED}
    if options.secure_payments is not None:
        changes |= {
            f"cardDetails.{name}": SentAs((theirs,), only_if=("morChannel", "PMS"), otherwise=_NO_CHARGE)
            for name, theirs in _CARD.items()
        }
    return FIELDS.but(changes) if changes else FIELDS


def comments(
    booking: Booking, table: FieldTable, options: BookingSyncOptions, people: Headcount
) -> list[dict[str, str]]:
    """The caller's comment, and one that says in plain words what BookingSync has no field for."""
    unfit = {**people.unfit, **country_code(booking)[1], **_name(booking, options), **_times(booking)}
    if options.record_payments:
        unfit["transactionId"] = _paid(booking.fields)
    contents = (booking.fields.get("comments"), "\n".join(table.lines(booking, unfit)))
    return [{"content": content} for content in contents if content]


def _paid(fields: Mapping[str, Any]) -> str | None:
    """With the option recordPayments, a transactionId of a sender that took the payment itself (morChannel SELF) means that it was
    paid. Neither field means that on its own."""
    transaction = fields.get("transactionId")
    return f"{transaction}, paid with the booking" if transaction and fields.get("morChannel") == "SELF" else None


def _name(booking: Booking, options: BookingSyncOptions) -> dict[str, str | None]:
    if options.strict_bookings:
        return first_and_last(booking)[2]
    guest, parts = booking.guest, ("firstName", "lastName")
    if all(guest.get(part) for part in parts):
        return {}
    alone = [part for part in parts if guest.get(part) and guest[part] not in booking.guest_name]
    return {f"guest.{part}": None for part in alone}


def _times(booking: Booking) -> dict[str, str | None]:
    names = ("arrivalEstimatedTime", "departureEstimatedTime")
    return {name: None for name in names if not CLOCK_TIME.fullmatch(str(booking.fields.get(name)))}


@dataclass(frozen=True, slots=True)
class Quote:
    """What the stay costs. `fees` and `taxes` are in the form in which a new booking names them."""

    final_price: Decimal
    currency: str
    initial_price: Decimal | None
    to_pay_now: Decimal | None
    fees: Sequence[Mapping[str, Any]]
    taxes: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class NotFree:
    """No such rental is free on these nights."""


def quote_in(response: Response, booking: Booking) -> Quote | NotFree | None:
    """The quote in the body; None where it does not hold a list of rentals with this one's price, or an empty one."""
    try:
        body = json.loads(response.json_text, parse_float=Decimal)
        rentals = body["rentals"]
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        return None
    if rentals == []:
        return NotFree()
    try:
        [rental] = [rental for rental in rentals if str(rental["id"]) == booking.property_id]
        return _quote(rental)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _quote(rental: Mapping[str, Any]) -> Quote | None:
    final, currency = _amount(rental["final_price"]), rental["currency"]
    if final is None or not isinstance(currency, str):
        return None
    details = rental.get("price_details") or {}
    return Quote(
        final,
        currency,
        _amount(rental.get("initial_price")),
        _amount(rental.get("price_to_pay_now")),
        [_fee(fee) for fee in details.get("fees") or ()],
        [_tax(tax) for tax in details.get("taxes") or ()],
    )


def _fee(fee: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": in_one_language(fee["name"]),
        "price": str(fee["price"]),
        "times_booked": str(fee["quantity"]),
        "rentals_fee_id": str(fee["rentals_fee_id"]),
    }


def _tax(tax: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": in_one_language(tax["name"]),
        "taxable_type": tax["taxable_type"],
        "taxable_id": str(tax["taxable_id"]),
        "tax_id": str(tax["tax_id"]),
        "amount": str(tax["amount"]),
        "percentage": str(tax["percentage"]),
        "included": bool(tax["included"]),
    }


def _amount(value: object) -> Decimal | None:
    """An amount that is a number here, where everything else of BookingSync writes it as a text."""
    exact = decimal(value)
    return None if exact is None else amount(format(exact, "f"))


def in_one_language(name: object) -> str:
    """A name that is given in several languages, in English where that is among them."""
    if isinstance(name, Mapping):
        return str(name.get("en") or next(iter(name.values()), ""))
    return str(name)


_LABEL: Final = "default"


def client_body(booking: Booking) -> bytes:
    """The guest. Unknown fields are left out, except the name, which BookingSync requires."""
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

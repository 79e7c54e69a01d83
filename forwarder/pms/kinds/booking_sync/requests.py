"""What is sent to BookingSync: an account's options, the field table, the live quote of a price, and the bodies. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import to_json

from forwarder.pms import sdk


def _safe_for_secrets(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in {"localhost", "127.0.0.1", "::1"}):
        return url
    raise ValueError("must begin with https://, since secrets are sent there")


_SecretsUrl = Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s]+$"), AfterValidator(_safe_for_secrets)]
_TimeOfDay = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
_Text = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00]+$")]


class SecurePayments(sdk.NoOptions):
    """How cards reach the gateway of the account's rentals, by the vendor's own payment platform. The vendor gives all of it."""

    gateway_id: _Text
    """The id of the payment gateway that is assigned to the rentals."""
    gateway_name: Literal["booking_pay", "ogone", "stripe", "bogus"]
    """The gateway's name."""
    gateway_type: Literal["PaymentGateway", "PaypalExpressGateway"] = "PaymentGateway"
    """The gateway's type."""
    url: _SecretsUrl = "https://secure.bookingsync.com/api/bookingsync/instant_bookings"
    """Where the vendor's payment platform takes cards."""
    hold_minutes: Annotated[int, Field(ge=6, le=60)] = 10
    """For how long the nights are held while the card is charged: longer than any push may take."""


class BookingSyncOptions(sdk.NoOptions):
    token_url: _SecretsUrl | None = None
    """The token endpoint. Default: /oauth/token in place of the base URL's /api/v3."""
    redirect_uri: _Text | None = None
    """The redirect_uri that the application was authorized with; sent with each renewal."""
    strict_bookings: bool = False
    """Book by POST /strict_bookings, which takes the client and the booking at once."""
    live_quote: bool = False
    """Ask for the price first, book with its fees and taxes, and refuse what has another price (price_changed)."""
    source_id: Annotated[int, Field(gt=0)] | None = None
    """The source that bookings are marked with."""
    checkin_time: _TimeOfDay | None = None
    """The time of day of arrivals, HH:MM; midnight if left out."""
    checkout_time: _TimeOfDay | None = None
    """The time of day of departures, HH:MM; midnight if left out."""
    record_payments: bool = False
    """Where morChannel is SELF and a transactionId is given, note the whole price as paid online, once."""
    secure_payments: SecurePayments | None = None
    """Charge the card where morChannel is PMS. Without it, no card leaves for BookingSync."""

    @model_validator(mode="after")
    def _one_way_to_book(self) -> Self:
        if self.strict_bookings and self.secure_payments is not None:
            raise ValueError("strictBookings and securePayments exclude each other: a strict booking cannot be held")
        return self


# --- the field table ---

_CLOCK_TIME: Final = re.compile(r"\d{1,2}(:\d{2})?")
_TIMES: Final = ("arrivalEstimatedTime", "departureEstimatedTime")
_NO_PATH: Final = sdk.Refused("property_not_found", "no path can name it")
_NO_ROOMS: Final = sdk.Refused("no_rooms", "it is another")
_IN_NOTES: Final = sdk.InNotes()
_NO_CLOCK_TIME: Final = sdk.InNotes("where it is no clock time")
_NO_COUNTRY_CODE: Final = sdk.InNotes("where it is no code of two letters")
_NO_CARD: Final = sdk.LeftOut("sensitive: BookingSync's API takes no cards; the option securePayments charges them")
ADDRESS: Final = {"line1": "address1", "line2": "address2", "city": "city", "state": "state", "postalCode": "zip"}
_CARD: Final = {
    "cardNumber": "card_number",
    "cardHolderName": "cardholder_name",
    "expiryMonth": "expires_at_month",
    "expiryYear": "expires_at_year",
    "cvv": "security_code",
}

FIELDS: Final = sdk.FieldTable(
    {
        "propertyId": sdk.SentAs(("path", "rental_id"), otherwise=_NO_PATH),
        "roomId": sdk.SentAs(("path", "rental_id"), "is the property", otherwise=_NO_ROOMS),
        "arrivalDate": sdk.SentAs(("start_at",)),
        "departureDate": sdk.SentAs(("end_at",)),
        "arrivalEstimatedTime": sdk.SentAs(("expected_checkin_time",), otherwise=_NO_CLOCK_TIME),
        "departureEstimatedTime": sdk.SentAs(("expected_checkout_time",), otherwise=_NO_CLOCK_TIME),
        "numberOfGuests": sdk.SentAs(("adults",), "less children and infants", otherwise=_IN_NOTES),
        "numberOfAdults": sdk.SentAs(("adults",), "with the guests of whom nothing is said", otherwise=_IN_NOTES),
        "numberOfChildren": sdk.SentAs(("children",)),
        **dict.fromkeys(("numberOfInfants", "numberOfPets", "morChannel", "transactionId", "promotionCode"), _IN_NOTES),
        **dict.fromkeys(("paymentProviderKey", "paymentProviderId"), _IN_NOTES),
        "notes": sdk.SentAs(("notes",)),
        "comments": sdk.SentAs(("comments.content",), "a comment of its own"),
        "status": sdk.LeftOut("not needed: every reservation sent is booked", lost=False),
        "guest.name": sdk.SentAs(("fullname",)),
        "guest.firstName": sdk.SentAs(("firstname", "fullname"), "together with the last name", otherwise=_IN_NOTES),
        "guest.lastName": sdk.SentAs(("lastname", "fullname"), "together with the first name", otherwise=_IN_NOTES),
        "guest.email": sdk.SentAs(("email",), "in the place of a name, too, if there is none"),
        "guest.phone": sdk.SentAs(("phones.number",)),
        **{f"guest.address.{name}": sdk.SentAs((theirs,)) for name, theirs in ADDRESS.items()},
        "guest.address.country": sdk.SentAs(("country_code",), otherwise=_NO_COUNTRY_CODE),
        "totalPrice": sdk.SentAs(("final_price",)),
        "currency": sdk.SentAs(("currency",)),
        **{f"cardDetails.{name}": _NO_CARD for name in _CARD},
    },
    notes="comments.content",
)
"""Those of an account without options."""


@lru_cache(maxsize=256)
def table_for(options: BookingSyncOptions) -> sdk.FieldTable:
    """The table of an account that is set so. Cached: each push has an adapter of its own."""
    changes: dict[str, sdk.Fate] = {}
    if options.strict_bookings:
        changes = {
            "propertyId": sdk.SentAs(("rental_id",)),
            "roomId": sdk.SentAs(("rental_id",), "is the property", otherwise=_NO_ROOMS),
            "guest.name": sdk.SentAs(("firstname", "lastname"), "where these are missing", otherwise=_IN_NOTES),
            "guest.firstName": sdk.SentAs(("firstname",)),
            "guest.lastName": sdk.SentAs(("lastname",)),
            "guest.phone": sdk.SentAs(("phone_number",)),
            **{f"guest.address.{name}": _IN_NOTES for name in ADDRESS},
        }
    if options.record_payments:
        changes["transactionId"] = sdk.InNotes(also=("payments.transaction_id",))
        changes["totalPrice"] = sdk.SentAs(("final_price", "payments.amount_in_cents"), "the latter in cents")
    if options.strict_bookings and options.record_payments:
        names = ("firstname", "lastname", "fullname")
        changes["guest.name"] = sdk.SentAs(names, "where the others are missing", otherwise=_IN_NOTES)
        changes["guest.firstName"] = sdk.SentAs(("firstname", "fullname"))
        changes["guest.lastName"] = sdk.SentAs(("lastname", "fullname"))
        for name, theirs in ADDRESS.items():
            changes[f"guest.address.{name}"] = sdk.InNotes(also=(f"payments.{theirs}",))
    if options.secure_payments is not None:
        uncharged = sdk.LeftOut("sensitive: it is charged where morChannel is PMS, and else goes nowhere")
        for name, theirs in _CARD.items():
            changes[f"cardDetails.{name}"] = sdk.SentAs((theirs,), only_if=("morChannel", "PMS"), otherwise=uncharged)
    return FIELDS.but(changes) if changes else FIELDS


@dataclass(frozen=True, slots=True)
class Quote:
    """What the stay costs. `fees` and `taxes` are in the form in which a new booking names them."""

    final_price: Decimal | None
    currency: str | None
    initial_price: Decimal | None = None
    to_pay_now: Decimal | None = None
    fees: Sequence[Mapping[str, Any]] = ()
    taxes: Sequence[Mapping[str, Any]] = ()


def quotes_in(response: sdk.Response, booking: sdk.Booking) -> list[Quote] | None:
    """The quote in the body; empty if the rental is not free on these nights; None for a body without this rental's price."""
    try:
        if (rentals := json.loads(response.json_text, parse_float=Decimal)["rentals"]) == []:
            return []
        [rental] = [rental for rental in rentals if str(rental["id"]) == booking.property_id]
        final, currency = _amount(rental["final_price"]), rental["currency"]
        if final is None or not isinstance(currency, str):
            return None
        details = rental.get("price_details") or {}
        fees = [
            {
                "name": in_one_language(fee["name"]),
                "price": str(fee["price"]),
                "times_booked": str(fee["quantity"]),
                "rentals_fee_id": str(fee["rentals_fee_id"]),
            }
            for fee in details.get("fees") or ()
        ]
        taxes = [
            {
                "name": in_one_language(tax["name"]),
                "taxable_type": tax["taxable_type"],
                **{part: str(tax[part]) for part in ("taxable_id", "tax_id", "amount", "percentage")},
                "included": bool(tax["included"]),
            }
            for tax in details.get("taxes") or ()
        ]
        initial, to_pay_now = _amount(rental.get("initial_price")), _amount(rental.get("price_to_pay_now"))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None
    return [Quote(final, currency, initial, to_pay_now, fees, taxes)]


def _amount(value: object) -> Decimal | None:
    """An amount that is a number here, where everything else of BookingSync writes it as a text."""
    exact = sdk.decimal(value)
    return None if exact is None else sdk.amount(format(exact, "f"))


def in_one_language(name: object) -> str:
    """A name that is given in several languages, in English where that is among them."""
    return str(name.get("en") or next(iter(name.values()), "")) if isinstance(name, Mapping) else str(name)


def client_body(booking: sdk.Booking) -> bytes:
    """The guest. Unknown fields are left out, except the name, which BookingSync requires."""
    guest, address, label = booking.guest, address_of(booking), {"label": "default"}
    email, phone, first, last = map(guest.get, ("email", "phone", "firstName", "lastName"))
    client = {
        "fullname": booking.guest_name or email or "Guest",
        "firstname": first if last else None,
        "lastname": last if first else None,
        "emails": [{**label, "email": email}] if email else [],
        "phones": [{**label, "number": str(phone)}] if phone not in (None, "") else [],
        "addresses": [{**label, **address}] if address else [],
    }
    return to_json({"clients": [given(client)]})


def address_of(booking: sdk.Booking) -> dict[str, Any]:
    address = booking.guest.get("address") or {}
    parts = {theirs: address.get(name) for name, theirs in ADDRESS.items()}
    return given({**parts, "country_code": sdk.country_code(booking)[0]})


def strict_booking_body(booking: sdk.Booking, options: BookingSyncOptions, quote: Quote | None) -> bytes:
    """Client and booking in one. Documented nowhere: the form of the recorded traffic, with what else a booking has."""
    guest = booking.guest
    first, last, _ = sdk.first_and_last(booking)
    nameless = guest.get("email") or "Guest"
    client = {
        "firstname": first or last or nameless,
        "lastname": last or first or nameless,
        "email": guest.get("email"),
        "phone_number": str(guest.get("phone") or ""),
        "country_code": sdk.country_code(booking)[0],
    }
    own = {
        "rental_id": int(booking.property_id) if booking.property_id.isdecimal() else booking.property_id,
        "price_to_pay_now": None if quote is None else _text(quote.to_pay_now),
        "source_id": None if options.source_id is None else str(options.source_id),
        "client": given(client),
    }
    return booking_body(booking, options, quote, own)


def booking_body(booking: sdk.Booking, options: BookingSyncOptions, quote: Quote | None, own: dict[str, Any]) -> bytes:
    """`own` with what all bookings have. Moments are in the rental's own time, as BookingSync reads and shows it."""
    people, fields = sdk.headcount(booking, infants_are_children=False), booking.fields
    arrival, departure = fields["arrivalDate"], fields["departureDate"]
    quote = quote or Quote(booking.total_price, booking.currency)
    # Two comments: the caller's, and one that says in plain words what BookingSync has no field for.
    guest, unfit = booking.guest, {**people.unfit, **sdk.country_code(booking)[1]}
    if options.strict_bookings:
        unfit |= sdk.first_and_last(booking)[2]
    elif not (guest.get("firstName") and guest.get("lastName")):
        parts = [part for part in ("firstName", "lastName") if guest.get(part)]
        unfit |= {f"guest.{part}": None for part in parts if guest[part] not in booking.guest_name}
    times = {name: time for name in _TIMES if _CLOCK_TIME.fullmatch(time := str(fields.get(name)))}
    unfit |= {name: None for name in _TIMES if name not in times}
    if options.record_payments:
        # The transaction of a sender that took the payment itself was paid. Neither field means that on its own.
        transaction = fields.get("transactionId")
        paid = transaction and fields.get("morChannel") == "SELF"
        unfit["transactionId"] = f"{transaction}, paid with the booking" if paid else None
    comments = (fields.get("comments"), "\n".join(table_for(options).lines(booking, unfit)))
    body = {
        "start_at": f"{arrival} {options.checkin_time}:00" if options.checkin_time else arrival,
        "end_at": f"{departure} {options.checkout_time}:00" if options.checkout_time else departure,
        "adults": people.adults,
        "children": people.children,
        **own,
        "currency": quote.currency,
        "initial_price": _text(quote.initial_price),
        "final_price": _text(quote.final_price),
        "bookings_fees": list(quote.fees),
        "bookings_taxes": list(quote.taxes),
        "external_reference": booking.reference,
        "notes": fields.get("notes"),
        "expected_checkin_time": times.get("arrivalEstimatedTime"),
        "expected_checkout_time": times.get("departureEstimatedTime"),
        "comments": [{"content": content} for content in comments if content],
    }
    return to_json({"bookings": [given(body)]})


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not known."""
    return {name: value for name, value in fields.items() if value not in (None, "", [])}

"""Money at BookingSync: what was paid elsewhere is noted, and a card is charged, each only where the account's options say so.

Cards, where morChannel is PMS, go the way of the vendor's guide "Secure Payments By BookingSync" (instant booking flow). The guide
was public from 2018 to February 2025 (content/guides/secure-payments-by-bookingsync.md at 1eb45e10); since then the vendor opens it
to partners who show their PCI DSS attestation. Its steps:

    POST {base_url}/rentals/:id/bookings    a tentative booking, which ends by itself
    POST {base_url}/bookings/:id/payments   a payment of kind `instant-booking`
    POST {secure_payments.url}              the card: 200 charged, which confirms the booking; 202 the guest would have to
                                            authenticate; 422 refused
    GET  {base_url}/bookings/:id            confirmed by then, or a little later

No other request contains the card. If the card is refused, the tentative booking is cancelled at once. If it is unknown whether
the card was charged, the booking is left as it is: it is confirmed, or expires by itself.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final

from pydantic_core import to_json

from forwarder.pms.kinds.booking_sync.api import BookingSyncApi, BookingSyncOptions, SecurePayments
from forwarder.pms.kinds.booking_sync.requests import address_of, given
from forwarder.pms.kinds.booking_sync.responses import SyncBooking, bookings_in, errors_in, only_id_in
from forwarder.pms.sdk import (
    Booking,
    CardDetails,
    Clock,
    Deferred,
    Headers,
    InDoubt,
    NotSent,
    Outcome,
    Rejected,
    Request,
    Response,
    Send,
    StandIn,
    discreet,
    harmless,
    outcome_of,
    refusal,
)
from forwarder.reservation.request import CURRENCY_DECIMALS

_IN_CENTS: Final = 2
_PAST: Final = timedelta(minutes=1)
"""`paid_at` must be in the past, by the vendor's clock."""

_JSON: Final[Headers] = ((b"Accept", b"application/json"), (b"Content-Type", b"application/json"))
_OF_THE_CARD: Final = {
    "credit_card",
    "payment",
    "card_number",
    "cardholder_name",
    "expires_at_month",
    "expires_at_year",
    "security_code",
    "address1",
    "address2",
    "zip",
    "city",
    "state",
    "country_code",
}
_OF_THE_GATEWAY: Final = {"data", "gateway_id", "gateway_name", "gateway_type"}
_PENDING: Final = "pms_still_working"


def paid_elsewhere(booking: Booking) -> Decimal | None:
    """The amount that the caller took itself, as far as the request says so; None where that cannot be noted."""
    price = booking.total_price
    if booking.fields.get("morChannel") != "SELF" or not booking.fields.get("transactionId") or not price:
        return None
    return price if _cents(price, booking.currency) is not None else None


def charges_card(booking: Booking) -> bool:
    """Whether there is a card that the PMS is to charge."""
    return booking.fields.get("morChannel") == "PMS" and booking.card is not None


def payment_of_before(booking: Booking, clock: Clock) -> bytes:
    """A payment that was made outside of BookingSync."""
    paid_at = clock.now() - _PAST
    return _payment(
        booking,
        kind="online",
        transaction_id=booking.fields.get("transactionId"),
        paid_at=f"{paid_at:%Y-%m-%dT%H:%M:%SZ}",
    )


def _payment(booking: Booking, **fields: Any) -> bytes:
    payment = {
        "amount_in_cents": _cents(booking.total_price, booking.currency),
        "currency": booking.currency,
        **fields,
        "fullname": booking.guest_name,
        "email": booking.guest.get("email"),
        **address_of(booking),
    }
    return to_json({"payments": [given(payment)]})


def _cents(price: Decimal | None, currency: str | None) -> int | None:
    """The vendor says cents of every currency; what it means where there are none is said nowhere."""
    if price is None or CURRENCY_DECIMALS.get(currency or "") != _IN_CENTS:
        return None
    cents = price * 100
    return int(cents) if cents == cents.to_integral_value() else None


class CardPayment:
    """The steps that follow a tentative booking."""

    def __init__(self, api: BookingSyncApi, options: SecurePayments, clock: Clock) -> None:
        self._api = api
        self._options = options
        self._clock = clock

    def unpayable(self, booking: Booking) -> Rejected | None:
        """Why no card can be charged for `booking`, before anything is held."""
        if _cents(booking.total_price, booking.currency) is None:
            return refusal(booking, "card_refused", "The price is not a whole number of cents of its currency.")
        return None

    def held_until(self) -> datetime:
        return self._clock.now() + timedelta(minutes=self._options.hold_minutes)

    async def pay(self, booking: Booking, held: SyncBooking, send: Send) -> SyncBooking | Outcome:
        """Charge the card for `held`: the booking that it confirmed. Raises `NoResponse` where the card may have been charged."""
        charged = await self._charge(booking, held, send)
        if isinstance(charged, InDoubt):
            return charged
        if charged is not None:
            # Give the nights back, or else leave the booking to end by itself: until then they are held against ourselves.
            if await self._api.tried(send, "DELETE", f"bookings/{held.id}") == HTTPStatus.NO_CONTENT:
                return charged
            return InDoubt(_PENDING, "The card was not charged, and the PMS holds the nights for a while longer.")
        try:
            response = await self._api.ask_safely(send, "GET", f"bookings/{held.id}")
            shown = bookings_in(response)
        except NotSent:
            shown = None
        match shown:
            case [SyncBooking(status="Booked") as booked] if booked.id == held.id:
                return booked
            case _:  # a charge is captured some time after it was authorized
                return InDoubt(_PENDING, "The card was charged; the PMS has yet to confirm the booking.")

    async def _charge(self, booking: Booking, held: SyncBooking, send: Send) -> Rejected | Deferred | InDoubt | None:
        """None where the card was charged."""
        assert booking.card is not None  # noqa: S101 - for the type: `charges_card` came first
        gateway = self._options.model_dump(include={"gateway_id", "gateway_name", "gateway_type"})
        body = _payment(booking, kind="instant-booking", **gateway)
        try:
            response = await self._api.ask_safely(send, "POST", f"bookings/{held.id}/payments", body)
            payment_id = only_id_in(response, "payments") if response.status_code == HTTPStatus.CREATED else None
            if payment_id is None:
                said = discreet(_listed(errors_in(response)), booking) or "no reason given"
                detail = f"BookingSync takes no payment for the booking (HTTP {response.status_code}): {said}."
                return Deferred("pms_payment_not_possible", detail)
            charge = {"tentative_payment_id": payment_id, **_card(booking.card), **address_of(booking), **gateway}
            response = await send(Request("POST", self._options.url, _JSON, to_json(charge)))
        except NotSent as failure:
            return harmless(outcome_of(failure))
        match response.status_code:
            case HTTPStatus.OK:
                return None
            case HTTPStatus.ACCEPTED:
                return refusal(booking, "card_refused", "The card's bank wants the guest to authenticate (3-D Secure).")
            case HTTPStatus.UNPROCESSABLE_ENTITY:
                errors = errors_in(response)
                if errors and errors.keys() <= _OF_THE_CARD:
                    return refusal(booking, "card_refused", _listed(errors))
                if errors and errors.keys() <= _OF_THE_GATEWAY:
                    detail = "The payment gateway of the account's options is not the rental's."
                    return Deferred("pms_payment_not_possible", detail)
                return InDoubt("pms_payment_in_doubt", "The payment platform failed while it had the card.")
            case status:
                detail = f"The payment platform answered HTTP {status}; the card may have been charged."
                return InDoubt("pms_payment_in_doubt", detail)


def _listed(errors: Mapping[str, str]) -> str:
    return "; ".join(f"{field}: {text}" for field, text in errors.items())


def _card(card: CardDetails) -> dict[str, Any]:
    fields = {
        "card_number": "".join(character for character in card.card_number or "" if character.isdigit()),
        "cardholder_name": card.card_holder_name,
        "expires_at_month": card.expiry_month,
        "expires_at_year": card.expiry_year,
        "security_code": card.cvv,
    }
    return given(fields)


_ID = 0
_PRICED = "The price is taken to be the one that was asked for; the fees and taxes that the booking names come from the quote."
_CLIENT = "client_id: 0 stands for the id that BookingSync gives to the guest."
_BOOKING = "0 in the path of the payment stands for the id that BookingSync gives to the booking."
_PAYMENT = "tentative_payment_id: 0 stands for the id that BookingSync gives to the payment."


def stand_in_for(request: Request, booking: Booking, options: BookingSyncOptions) -> StandIn | None:
    """None for the last request of a push, and for one whose answer cannot be guessed."""
    charged = options.secure_payments is not None and charges_card(booking)
    noted = options.record_payments and paid_elsewhere(booking) is not None
    match request.method, request.url.rpartition("/")[2]:
        case "GET", "search" if booking.total_price is not None and booking.currency is not None:
            price = {"final_price": format(booking.total_price, "f"), "currency": booking.currency}
            return _answer(200, _PRICED, rentals=[{"id": booking.property_id, **price}])
        case "POST", "clients":
            return _answer(201, _CLIENT, clients=[{"id": _ID}])
        case "POST", "bookings" | "strict_bookings" if charged or noted:
            made = {"id": _ID, "status": "Tentative" if charged else "Booked", "external_reference": booking.reference}
            return _answer(201, _BOOKING, bookings=[made])
        case "POST", "payments" if charged:
            return _answer(201, _PAYMENT, payments=[{"id": _ID}])
        case _:
            return None


def _answer(status: int, means: str, **body: Any) -> StandIn:
    return StandIn(Response(status, (), to_json(body)), means)

"""Kind `booking-sync`: BookingSync (Smily) API v3, https://developers.bookingsync.com. The base URL ends in `/api/v3`.

    GET    {base_url}/rentals/search?rental_id=…    what it costs, with `liveQuote`
    POST   {base_url}/clients                       the guest
    POST   {base_url}/rentals/:rental_id/bookings   the booking, with our reference as `external_reference`
    POST   {base_url}/strict_bookings               both at once, with `strictBookings`
    POST   {base_url}/bookings/:id/payments         what was paid elsewhere, with `recordPayments`
    GET    {base_url}/bookings?rental_id=…          to look one up: the list has no filter by `external_reference`
    DELETE {base_url}/bookings/:id                  to cancel

BookingSync has no rooms: a rental is our property. A client that was created for a booking that then failed stays behind; nobody
is booked by it. Cards are no part of this API. Where `securePayments` is set and morChannel is PMS, they go the way of the vendor's
guide "Secure Payments By BookingSync" (instant booking flow), which was public from 2018 to February 2025
(content/guides/secure-payments-by-bookingsync.md at 1eb45e10); since then the vendor opens it to partners who show their PCI DSS
attestation. Its steps:

    POST {base_url}/rentals/:id/bookings    a tentative booking, which ends by itself
    POST {base_url}/bookings/:id/payments   a payment of kind `instant-booking`
    POST {secure_payments.url}              the card: 200 charged, which confirms the booking; 202 the guest would have to
                                            authenticate; 422 refused
    GET  {base_url}/bookings/:id            confirmed by then, or a little later

No other request contains the card. If the card is refused, the tentative booking is cancelled at once. If it is unknown whether
the card was charged, the booking is left as it is: it is confirmed, or expires by itself.
"""

from collections.abc import Awaitable
from datetime import datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from pydantic_core import from_json, to_json

from forwarder.pms import sdk
from forwarder.pms.kinds.booking_sync import requests, responses
from forwarder.pms.kinds.booking_sync.requests import Quote, SecurePayments
from forwarder.pms.kinds.booking_sync.responses import SyncBooking
from forwarder.pms.mapping.access import Auth, Credentials, OAuth
from forwarder.reservation.request import CURRENCY_DECIMALS

_MEDIA_TYPE: Final = b"application/vnd.api+json"
_AUTH: Final = Auth(form="oauth", oauth=OAuth(grant="refresh_token", tokenUrl="{base}/oauth/token"))
_PER_PAGE: Final = 100
_MOST_PAGES: Final = 20

_Made = SyncBooking | sdk.Outcome


class BookingSyncAdapter:
    capabilities: ClassVar = sdk.Capabilities(idempotent_create=False, find_by_reference=True, cancel=True)
    limits: ClassVar[sdk.Limits] = sdk.Limits((sdk.Limit(1000, 3600.0),), requests_per_push=2)
    options: ClassVar[type[requests.BookingSyncOptions]] = requests.BookingSyncOptions
    fields: sdk.FieldTable = requests.FIELDS

    def __init__(self, connection: sdk.AccountConnection, clock: sdk.Clock) -> None:
        options = self._options = requests.BookingSyncOptions.model_validate(connection.options)
        self._base_url, self._clock = connection.base_url.rstrip("/"), clock
        self.fields = requests.table_for(options)
        token_url = options.token_url or f"{self._base_url.removesuffix('/api/v3')}/oauth/token"
        more = {"redirect_uri": options.redirect_uri}
        self._credentials = Credentials(_AUTH, connection, clock, token_url=token_url, more=more)
        # A JSON object is to be exactly what a token is renewed with, three names.
        is_object = connection.credential.lstrip().startswith("{")
        self._unusable = is_object and not (self._credentials.renews and len(from_json(connection.credential)) == 3)  # noqa: PLR2004

    async def create(self, booking: sdk.Booking, send: sdk.Send) -> sdk.Outcome:
        rental = sdk.path_segment(booking.property_id)
        if rental is None:
            return sdk.refusal(booking, "property_not_found", "")
        quote = await self._quote(booking, send) if self._options.live_quote else None
        if quote is not None and not isinstance(quote, Quote):
            return quote
        made: _Made
        if self._options.strict_bookings:
            body = requests.strict_booking_body(booking, self._options, quote)
            made = await self._book("strict_bookings", body, booking, send)
        elif (cards := self._options.secure_payments) is not None and _charges_card(booking):
            if _cents(booking) is None:  # before anything is held
                return sdk.refusal(booking, "card_refused", "The price is not a whole number of cents of its currency.")
            until = self._clock.now() + timedelta(minutes=cards.hold_minutes)
            made = await self._book_for_client(rental, booking, quote, send, until)
            if isinstance(made, SyncBooking):
                made = await self._pay(booking, made, cards, send)
        else:
            made = await self._book_for_client(rental, booking, quote, send)
        if not isinstance(made, SyncBooking):
            return made
        # What was paid elsewhere is noted at most once: a note that is lost is not sent again, and the booking's comments name the
        # transaction all the same.
        paid = _paid_elsewhere(booking) if self._options.record_payments else None
        if paid is not None:
            past = self._clock.now() - timedelta(minutes=1)  # by the vendor's clock, too
            noted = {"transaction_id": booking.fields.get("transactionId"), "paid_at": f"{past:%Y-%m-%dT%H:%M:%SZ}"}
            body = _payment(booking, kind="online", **noted)
            if await _status_of(self._ask(send, "POST", f"bookings/{made.id}/payments", body)) != HTTPStatus.CREATED:
                paid = None
        return sdk.Confirmed(str(made.id), made.record(paid or Decimal(0)))

    async def _quote(self, booking: sdk.Booking, send: sdk.Send) -> Quote | sdk.Outcome:
        people = sdk.headcount(booking, infants_are_children=False)
        stay = {"start_at": booking.fields["arrivalDate"], "end_at": booking.fields["departureDate"]}
        asked = {"rental_id": booking.property_id, **stay, "adults": people.adults, "children": people.children}
        response = await _safely(self._ask(send, "GET", "rentals/search", query=urlencode(requests.given(asked))))
        quotes = requests.quotes_in(response, booking) if response.status_code == HTTPStatus.OK else None
        if quotes is None:
            return sdk.harmless(self._unexpected(response))
        if not quotes:
            return sdk.refusal(booking, "room_unavailable", "")
        [quote] = quotes
        if booking.total_price in (None, quote.final_price) and booking.currency in (None, quote.currency):
            return quote
        return sdk.refusal(booking, "price_changed", f"It costs {quote.final_price} {quote.currency} now.")

    async def _book_for_client(
        self, rental: str, booking: sdk.Booking, quote: Quote | None, send: sdk.Send, held_until: datetime | None = None
    ) -> SyncBooking | sdk.Outcome:
        """Makes the guest first, so that a failure there leaves no booking in doubt."""
        response = await _safely(self._ask(send, "POST", "clients", requests.client_body(booking)))
        if response.status_code == HTTPStatus.UNPROCESSABLE_ENTITY:
            return sdk.refusal(booking, "guest_refused", responses.refusal_in(response)[1])
        client_id = responses.only_id_in(response, "clients")
        if client_id is None:
            return sdk.harmless(self._unexpected(response))
        own = {
            "booked": held_until is None,
            "tentative_expires_at": None if held_until is None else f"{held_until:%Y-%m-%dT%H:%M:%SZ}",
            "client_id": client_id,
            "source_id": self._options.source_id,
        }
        status = "Booked" if held_until is None else "Tentative"
        body = requests.booking_body(booking, self._options, quote, own)
        return await self._book(f"rentals/{rental}/bookings", body, booking, send, status)

    async def _book(
        self, path: str, body: bytes, booking: sdk.Booking, send: sdk.Send, status: str = "Booked"
    ) -> _Made:
        response = await self._ask(send, "POST", path, body)
        match response.status_code:
            case HTTPStatus.CREATED:
                made = responses.bookings_in(response) or []
                if len(made) != 1:
                    return sdk.not_understood(response)
                [one] = made
                if one.status == status and one.may_be(booking):
                    return one
                if one.status == "Canceled":
                    return sdk.refusal(booking, "pms_refused", "The PMS made the booking as a cancelled one.")
                return sdk.not_understood(response, str(one.id))
            case HTTPStatus.UNPROCESSABLE_ENTITY | HTTPStatus.CONFLICT:
                code, said = responses.refusal_in(response)
                return sdk.outcome_of_message(sdk.never_a_no(said) or code, said, booking)
            case HTTPStatus.NOT_FOUND if not self._options.strict_bookings:
                # Not a wrong base URL: the client was created under it.
                return sdk.refusal(booking, "property_not_found", "")
            case _:
                return self._unexpected(response)

    async def find(self, booking: sdk.Booking, send: sdk.Send) -> sdk.LookupOutcome:
        """Looks through what ends after the arrival and starts before the departure, cancelled ones too, page by page."""
        stay = {"from": booking.fields["arrivalDate"], "until": booking.fields["departureDate"]}
        asked = {"rental_id": booking.property_id, **stay, "include_canceled": "true", "per_page": _PER_PAGE}
        shown: list[SyncBooking] = []
        for page in range(1, _MOST_PAGES + 1):
            response = await self._ask(send, "GET", "bookings", query=urlencode({**asked, "page": page}))
            bookings = responses.bookings_in(response) if response.status_code == HTTPStatus.OK else None
            if bookings is None:
                return sdk.harmless(self._unexpected(response))
            repeated = bool(bookings) and {each.id for each in bookings} <= {each.id for each in shown}
            shown += bookings
            booked = {each.id: each for each in bookings if each.is_ours(booking) and each.status == "Booked"}
            if booked:
                first, *others = booked
                return sdk.Confirmed(str(first), booked[first].record(), doubles=tuple(map(str, others)))
            pages = sdk.whole_number(response.header("x-total-pages") or "")
            if repeated or (not bookings and page < (pages or 0)):
                return sdk.harmless(sdk.not_understood(response))
            # Where the PMS does not say how many there are, an empty page ends the list.
            if not bookings or page == pages:
                return responses.not_booked(shown, booking, strict=self._options.strict_bookings)
        return sdk.Deferred("pms_lists_too_much", f"The PMS lists more than {_MOST_PAGES * _PER_PAGE} bookings.")

    async def cancel(self, booking: sdk.Booking, pms_reservation_id: str, send: sdk.Send) -> sdk.CancelOutcome:
        """A 404, which a wrong base URL may cause, counts if the booking is shown as cancelled, or only its rental is there."""
        if not pms_reservation_id.isdecimal():
            return sdk.refusal(booking, "cancellation_refused", "BookingSync's ids are numbers; this one is none.")
        response = await _safely(self._ask(send, "DELETE", f"bookings/{pms_reservation_id}"))
        match response.status_code:
            case HTTPStatus.NO_CONTENT:
                return sdk.Cancelled()
            case HTTPStatus.UNPROCESSABLE_ENTITY | HTTPStatus.CONFLICT:
                said = responses.refusal_in(response)[1]
                gone = sdk.cancelled_before(said)
                return sdk.Cancelled() if gone else sdk.refusal(booking, "cancellation_refused", said)
            case status if status != HTTPStatus.NOT_FOUND:
                return sdk.harmless(self._unexpected(response))
        shown = await _safely(self._ask(send, "GET", f"bookings/{pms_reservation_id}", query="include_canceled=true"))
        match responses.bookings_in(shown) if shown.status_code == HTTPStatus.OK else None:
            case [SyncBooking(status="Canceled") as found] if str(found.id) == pms_reservation_id:
                return sdk.Cancelled()
        if shown.status_code != HTTPStatus.NOT_FOUND:
            return sdk.harmless(self._unexpected(shown))
        rental = await _safely(self._ask(send, "GET", f"rentals/{sdk.path_segment(booking.property_id)}"))
        rental_id = responses.only_id_in(rental, "rentals", HTTPStatus.OK)
        is_there = rental_id is not None and str(rental_id) == booking.property_id
        return sdk.Cancelled() if is_there else sdk.harmless(self._unexpected(response))

    async def _ask(self, send: sdk.Send, method: str, path: str, content: bytes = b"", query: str = "") -> sdk.Response:
        """The response to a request below the base URL. Raises `NotSent` and `NoResponse`."""
        if self._unusable:
            detail = "The account's credential is a JSON object without clientId, clientSecret and refreshToken."
            raise sdk.NotSent("pms_credential_invalid", detail)
        headers = [(b"Accept", _MEDIA_TYPE), *([(b"Content-Type", _MEDIA_TYPE)] if content else [])]
        request = sdk.Request(method, f"{self._base_url}/{path}", headers, content, query=query)
        return await self._credentials.send(request, send)

    def _unexpected(self, response: sdk.Response) -> sdk.Deferred | sdk.InDoubt:
        if response.status_code == HTTPStatus.FORBIDDEN:
            # The vendor's word for a good token whose application was not given the scope: the operator can ask for it.
            detail = "The account's application may not do this (HTTP 403): it lacks a scope, or another one owns the booking."
            return sdk.Deferred("pms_scope_too_small", detail)
        outcome = sdk.unexpected(response, self._clock.now())
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS and isinstance(outcome, sdk.Deferred):
            reset = sdk.whole_number(response.header("x-ratelimit-reset") or "")  # a unix time
            until = None if reset is None else sdk.bounded(reset - self._clock.now().timestamp())
            return sdk.Deferred(outcome.reason, outcome.detail, outcome.retry_after_seconds or until)
        return outcome

    async def _pay(self, booking: sdk.Booking, held: SyncBooking, cards: SecurePayments, send: sdk.Send) -> _Made:
        """Charge the card for `held`: the booking that it confirmed. Raises `NoResponse` where the card may have been charged."""
        charged = await self._charge(booking, held, cards, send)
        if isinstance(charged, sdk.InDoubt):
            return charged
        if charged is not None:
            # Give the nights back, or else leave the booking to end by itself: until then they are held against ourselves.
            if await _status_of(self._ask(send, "DELETE", f"bookings/{held.id}")) == HTTPStatus.NO_CONTENT:
                return charged
            detail = "The card was not charged, and the PMS holds the nights for a while longer."
            return sdk.InDoubt("pms_still_working", detail)
        try:
            shown = responses.bookings_in(await _safely(self._ask(send, "GET", f"bookings/{held.id}")))
        except sdk.NotSent:
            shown = None
        match shown:
            case [SyncBooking(status="Booked") as booked] if booked.id == held.id:
                return booked
            case _:  # a charge is captured some time after it was authorized
                return sdk.InDoubt("pms_still_working", "The card was charged; the PMS has yet to confirm the booking.")

    async def _charge(
        self, booking: sdk.Booking, held: SyncBooking, cards: SecurePayments, send: sdk.Send
    ) -> sdk.Rejected | sdk.Deferred | sdk.InDoubt | None:
        """None where the card was charged."""
        card = booking.card
        assert card is not None  # noqa: S101 - for the type: it is only asked to charge one
        month, year = (card.expiry_month or "").strip(), (card.expiry_year or "").strip()
        fields = {
            "card_number": "".join(filter(str.isdigit, card.card_number or "")),
            "cardholder_name": card.card_holder_name,
            "expires_at_month": month and month.zfill(2),
            "expires_at_year": f"20{year}" if len(year) == 2 else year,  # noqa: PLR2004 - callers may leave out the century
            "security_code": card.cvv,
        }
        gateway = cards.model_dump(include={"gateway_id", "gateway_name", "gateway_type"})
        body = _payment(booking, kind="instant-booking", **gateway)
        try:
            response = await _safely(self._ask(send, "POST", f"bookings/{held.id}/payments", body))
            payment_id = responses.only_id_in(response, "payments")
            if payment_id is None:
                said = sdk.discreet(responses.listed(responses.errors_in(response)), booking) or "no reason given"
                detail = f"BookingSync takes no payment for the booking (HTTP {response.status_code}): {said}."
                return sdk.Deferred("pms_payment_not_possible", detail)
            shown = requests.given(fields) | requests.address_of(booking)
            content = to_json({"tentative_payment_id": payment_id, **shown, **gateway})
            headers = [(b"Accept", b"application/json"), (b"Content-Type", b"application/json")]
            response = await send(sdk.Request("POST", cards.url, headers, content))
        except sdk.NotSent as failure:
            return sdk.harmless(sdk.outcome_of(failure))
        match response.status_code:
            case HTTPStatus.OK:
                return None
            case HTTPStatus.ACCEPTED:
                said = "The card's bank wants the guest to authenticate (3-D Secure)."
                return sdk.refusal(booking, "card_refused", said)
            case HTTPStatus.UNPROCESSABLE_ENTITY:
                errors = responses.errors_in(response)
                of_the_card = {"credit_card", "payment", *fields, *requests.ADDRESS.values(), "country_code"}
                if errors and errors.keys() <= of_the_card:
                    return sdk.refusal(booking, "card_refused", responses.listed(errors))
                if errors and errors.keys() <= {"data", *gateway}:
                    detail = "The payment gateway of the account's options is not the rental's."
                    return sdk.Deferred("pms_payment_not_possible", detail)
                return sdk.InDoubt("pms_payment_in_doubt", "The payment platform failed while it had the card.")
            case status:
                detail = f"The payment platform answered HTTP {status}; the card may have been charged."
                return sdk.InDoubt("pms_payment_in_doubt", detail)

    def stand_in(self, request: sdk.Request, booking: sdk.Booking) -> sdk.StandIn | None:
        """None for the last request of a push, and for one whose answer cannot be guessed."""
        charged = self._options.secure_payments is not None and _charges_card(booking)
        noted = self._options.record_payments and _paid_elsewhere(booking) is not None
        match request.method, request.url.rpartition("/")[2]:
            case "GET", "search" if booking.total_price is not None and booking.currency is not None:
                price = {"final_price": format(booking.total_price, "f"), "currency": booking.currency}
                taken = "The price is taken to be the one that was asked for"
                means = f"{taken}; the fees and taxes that the booking names come from the quote."
                return _answer(200, means, rentals=[{"id": booking.property_id, **price}])
            case "POST", "clients":
                means = "client_id: 0 stands for the id that BookingSync gives to the guest."
                return _answer(201, means, clients=[{"id": 0}])
            case "POST", "bookings" | "strict_bookings" if charged or noted:
                status = "Tentative" if charged else "Booked"
                made = {"id": 0, "status": status, "external_reference": booking.reference}
                means = "0 in the path of the payment stands for the id that BookingSync gives to the booking."
                return _answer(201, means, bookings=[made])
            case "POST", "payments" if charged:
                means = "tentative_payment_id: 0 stands for the id that BookingSync gives to the payment."
                return _answer(201, means, payments=[{"id": 0}])
            case _:
                return None


async def _safely(response: Awaitable[sdk.Response]) -> sdk.Response:
    """For a request that may be made any number of times: no response is no more than a delay. Raises `NotSent`."""
    try:
        return await response
    except sdk.NoResponse as failure:
        raise sdk.NotSent(failure.reason, failure.detail) from failure


async def _status_of(response: Awaitable[sdk.Response]) -> int:
    """For a request whose failure changes nothing: 0 if there is no response."""
    try:
        return (await response).status_code
    except (sdk.NotSent, sdk.NoResponse):
        return 0


def _paid_elsewhere(booking: sdk.Booking) -> Decimal | None:
    """The amount that the caller took itself, as far as the request says so; None where that cannot be noted."""
    took_it = booking.fields.get("morChannel") == "SELF" and booking.fields.get("transactionId")
    return (booking.total_price or None) if took_it and _cents(booking) is not None else None


def _charges_card(booking: sdk.Booking) -> bool:
    """Whether there is a card that the PMS is to charge."""
    return booking.fields.get("morChannel") == "PMS" and booking.card is not None


def _payment(booking: sdk.Booking, **fields: Any) -> bytes:
    payment = {
        "amount_in_cents": _cents(booking),
        "currency": booking.currency,
        **fields,
        "fullname": booking.guest_name,
        "email": booking.guest.get("email"),
        **requests.address_of(booking),
    }
    return to_json({"payments": [requests.given(payment)]})


def _cents(booking: sdk.Booking) -> int | None:
    """The price. The vendor says cents of every currency; what it means where there are none is said nowhere."""
    price = booking.total_price
    if price is None or CURRENCY_DECIMALS.get(booking.currency or "") != 2:  # noqa: PLR2004 - digits of cents
        return None
    cents = price * 100
    return int(cents) if cents == cents.to_integral_value() else None


def _answer(status: int, means: str, **body: Any) -> sdk.StandIn:
    return sdk.StandIn(sdk.Response(status, (), to_json(body)), means)

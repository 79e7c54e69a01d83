"""Kind `booking-sync`: BookingSync (Smily) API v3, https://developers.bookingsync.com. The base URL ends in `/api/v3`.

    GET    {base_url}/rentals/search?rental_id=…    what it costs, with `liveQuote`
    POST   {base_url}/clients                       the guest
    POST   {base_url}/rentals/:rental_id/bookings   the booking, with our reference as `external_reference`
    POST   {base_url}/strict_bookings               both at once, with `strictBookings`
    POST   {base_url}/bookings/:id/payments         what was paid elsewhere, with `recordPayments`
    GET    {base_url}/bookings?rental_id=…          to look one up: the list has no filter by `external_reference`
    DELETE {base_url}/bookings/:id                  to cancel

BookingSync has no rooms: a rental is our property. A client that was created for a booking that then failed stays behind; nobody
is booked by it. Cards are no part of this API; `payment` says which way they go where `securePayments` is set.
"""

from datetime import datetime
from decimal import Decimal
from http import HTTPStatus
from typing import ClassVar
from urllib.parse import urlencode

from forwarder.pms.kinds.booking_sync.api import BookingSyncApi, BookingSyncOptions
from forwarder.pms.kinds.booking_sync.payment import (
    CardPayment,
    charges_card,
    paid_elsewhere,
    payment_of_before,
    stand_in_for,
)
from forwarder.pms.kinds.booking_sync.requests import (
    FIELDS,
    Quote,
    booking_body,
    client_body,
    given,
    people_of,
    quotes_in,
    strict_booking_body,
    table_for,
)
from forwarder.pms.kinds.booking_sync.responses import SyncBooking, bookings_in, look_up, only_id_in, refusal_in
from forwarder.pms.sdk import (
    AccountConnection,
    Booking,
    Cancelled,
    CancelOutcome,
    Capabilities,
    Clock,
    Confirmed,
    FieldTable,
    Limit,
    Limits,
    LookupOutcome,
    Outcome,
    Request,
    Send,
    StandIn,
    harmless,
    not_understood,
    path_segment,
    refusal,
)


class BookingSyncAdapter:
    """BookingSync as one account speaks it."""

    capabilities: ClassVar[Capabilities] = Capabilities(idempotent_create=False, find_by_reference=True, cancel=True)
    limits: ClassVar[Limits] = Limits((Limit(1000, 3600.0),), requests_per_push=2)
    options: ClassVar[type[BookingSyncOptions]] = BookingSyncOptions
    fields: FieldTable = FIELDS

    def __init__(self, connection: AccountConnection, clock: Clock) -> None:
        self._options = BookingSyncOptions.model_validate(connection.options)
        self._api = BookingSyncApi(connection, self._options, clock)
        self._clock = clock
        self.fields = table_for(self._options)
        cards = self._options.secure_payments
        self._cards = None if cards is None else CardPayment(self._api, cards, clock)

    async def create(self, booking: Booking, send: Send) -> Outcome:
        rental = path_segment(booking.property_id)
        if rental is None:
            return refusal(booking, "property_not_found", "")
        quote = await self._quote(booking, send) if self._options.live_quote else None
        if quote is not None and not isinstance(quote, Quote):
            return quote
        made: SyncBooking | Outcome
        if self._options.strict_bookings:
            body = strict_booking_body(booking, self._options, self.fields, quote)
            made = await self._book("strict_bookings", body, booking, send)
        elif self._cards is not None and charges_card(booking):
            unpayable = self._cards.unpayable(booking)
            if unpayable is not None:
                return unpayable
            made = await self._book_for_client(rental, booking, quote, send, self._cards.held_until())
            if isinstance(made, SyncBooking):
                made = await self._cards.pay(booking, made, send)
        else:
            made = await self._book_for_client(rental, booking, quote, send)
        if not isinstance(made, SyncBooking):
            return made
        # What was paid elsewhere is noted at most once: a note that is lost is not sent again, and the booking's comments name the
        # transaction all the same.
        paid = paid_elsewhere(booking) if self._options.record_payments else None
        if paid is not None:
            body = payment_of_before(booking, self._clock)
            if await self._api.tried(send, "POST", f"bookings/{made.id}/payments", body) != HTTPStatus.CREATED:
                paid = None
        return Confirmed(str(made.id), made.record(paid or Decimal(0)))

    async def _quote(self, booking: Booking, send: Send) -> Quote | Outcome:
        people = people_of(booking)
        asked = {
            "rental_id": booking.property_id,
            "start_at": booking.arrival.isoformat(),
            "end_at": booking.departure.isoformat(),
            "adults": people.adults,
            "children": people.children,
        }
        response = await self._api.ask_safely(send, "GET", "rentals/search", query=urlencode(given(asked)))
        quotes = quotes_in(response, booking) if response.status_code == HTTPStatus.OK else None
        if quotes is None:
            return harmless(self._api.unexpected(response))
        if not quotes:
            return refusal(booking, "room_unavailable", "")
        quote = quotes[0]
        same_price = booking.total_price in (None, quote.final_price)
        if same_price and booking.currency in (None, quote.currency):
            return quote
        return refusal(booking, "price_changed", f"It costs {quote.final_price} {quote.currency} now.")

    async def _book_for_client(
        self, rental: str, booking: Booking, quote: Quote | None, send: Send, held_until: datetime | None = None
    ) -> SyncBooking | Outcome:
        """Makes the guest's record first, and no booking, so that a failure there leaves no booking in doubt."""
        response = await self._api.ask_safely(send, "POST", "clients", client_body(booking))
        if response.status_code == HTTPStatus.UNPROCESSABLE_ENTITY:
            return refusal(booking, "guest_refused", refusal_in(response)[1])
        client_id = only_id_in(response, "clients") if response.status_code == HTTPStatus.CREATED else None
        if client_id is None:
            return harmless(self._api.unexpected(response))
        body = booking_body(booking, client_id, self._options, self.fields, quote, held_until=held_until)
        status = "Booked" if held_until is None else "Tentative"
        return await self._book(f"rentals/{rental}/bookings", body, booking, send, status)

    async def _book(
        self, path: str, body: bytes, booking: Booking, send: Send, status: str = "Booked"
    ) -> SyncBooking | Outcome:
        response = await self._api.ask(send, "POST", path, body)
        match response.status_code:
            case HTTPStatus.CREATED:
                made = bookings_in(response) or []
                one = made[0] if len(made) == 1 else None
                if one is None:
                    return not_understood(response)
                if one.status == status and one.may_be(booking):
                    return one
                if one.status == "Canceled":
                    return refusal(booking, "pms_refused", "The PMS made the booking as a cancelled one.")
                return not_understood(response, str(one.id))
            case HTTPStatus.UNPROCESSABLE_ENTITY | HTTPStatus.CONFLICT:
                return refusal(booking, *refusal_in(response))
            case HTTPStatus.NOT_FOUND if not self._options.strict_bookings:
                # Not a wrong base URL: the client was created under it.
                return refusal(booking, "property_not_found", "")
            case _:
                return self._api.unexpected(response)

    def stand_in(self, request: Request, booking: Booking) -> StandIn | None:
        return stand_in_for(request, booking, self._options)

    async def find(self, booking: Booking, send: Send) -> LookupOutcome:
        return await look_up(self._api, booking, send, strict=self._options.strict_bookings)

    async def cancel(self, booking: Booking, pms_reservation_id: str, send: Send) -> CancelOutcome:
        """A 404 may come from a wrong base URL or another account's credential: it counts where the booking is shown as cancelled,
        or is not there while its rental is."""
        if not pms_reservation_id.isdecimal():
            return refusal(booking, "cancellation_refused", "BookingSync's ids are numbers; this one is none.")
        response = await self._api.ask_safely(send, "DELETE", f"bookings/{pms_reservation_id}")
        match response.status_code:
            case HTTPStatus.NO_CONTENT:
                return Cancelled()
            case HTTPStatus.UNPROCESSABLE_ENTITY | HTTPStatus.CONFLICT:
                return refusal(booking, "cancellation_refused", refusal_in(response)[1])
            case status if status != HTTPStatus.NOT_FOUND:
                return harmless(self._api.unexpected(response))
        query = "include_canceled=true"
        shown = await self._api.ask_safely(send, "GET", f"bookings/{pms_reservation_id}", query=query)
        match bookings_in(shown) if shown.status_code == HTTPStatus.OK else None:
            case [SyncBooking(status="Canceled") as found] if str(found.id) == pms_reservation_id:
                return Cancelled()
        if shown.status_code != HTTPStatus.NOT_FOUND:
            return harmless(self._api.unexpected(shown))
        rental = await self._api.ask_safely(send, "GET", f"rentals/{path_segment(booking.property_id)}")
        is_there = rental.status_code == HTTPStatus.OK and str(only_id_in(rental, "rentals")) == booking.property_id
        return Cancelled() if is_there else harmless(self._api.unexpected(response))

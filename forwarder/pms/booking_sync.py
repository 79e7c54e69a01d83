"""Kind `booking-sync`: BookingSync (Smily) API v3, https://developers.bookingsync.com. The base URL ends in `/api/v3`.

    POST   {base_url}/clients                       the guest, first
    POST   {base_url}/rentals/:rental_id/bookings   the booking, with our reference as `external_reference`
    GET    {base_url}/bookings?rental_id=…          to look one up: the list has no filter by `external_reference`
    DELETE {base_url}/bookings/:id                  to cancel

BookingSync has no rooms: a rental is our property. A client that was created for a booking that then failed stays behind; nobody
is booked by it. Cards are not part of this wire: the API takes tokens of the vendor's own payment gateways alone.
"""

from http import HTTPStatus
from typing import ClassVar, Final
from urllib.parse import urlencode

import httpx

from forwarder.pms.adapter import NoOptions
from forwarder.pms.booking_sync_wire import (
    SyncBooking,
    booking_body,
    bookings_in,
    client_body,
    client_id_in,
    refusal_in,
)
from forwarder.pms.discretion import without_card
from forwarder.pms.failure import NoAnswer, NotSent, bounded, harmless, not_understood, outcome_of, unexpected
from forwarder.pms.generic import refusal
from forwarder.pms.port import Capabilities, Connection, Limit, Limits
from forwarder.pms.wire import Send, bearer, path_segment, request_to
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import (
    Absent,
    Cancellation,
    Cancelled,
    Confirmed,
    Deferred,
    InDoubt,
    Lookup,
    Outcome,
    Rejected,
)
from forwarder.runtime.clock import Clock

_MEDIA_TYPE: Final = b"application/vnd.api+json"
_PER_PAGE: Final = 100
_MOST_PAGES: Final = 20


class BookingSyncAdapter:
    """BookingSync as one account speaks it."""

    capabilities: ClassVar[Capabilities] = Capabilities(idempotent_create=False, find_by_reference=True, cancel=True)
    limits: ClassVar[Limits] = Limits((Limit(1000, 3600.0),), requests_per_push=2)
    options: ClassVar[type[NoOptions]] = NoOptions

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._base_url = connection.base_url.rstrip("/")
        self._credential = connection.credential
        self._clock = clock

    async def create(self, booking: Booking, send: Send) -> Outcome:
        client = await self._create_client(booking, send)
        return await self._book(booking, client, send) if isinstance(client, int) else client

    async def _create_client(self, booking: Booking, send: Send) -> int | Rejected | Deferred:
        """Whatever goes wrong here, no booking was made."""
        request = self._request("POST", "clients", client_body(booking))
        try:
            response = await send(request)
        except (NotSent, NoAnswer) as failure:
            return harmless(outcome_of(failure))
        if response.status_code == HTTPStatus.UNPROCESSABLE_ENTITY:
            return refusal(booking, "guest_refused", refusal_in(response)[1])
        client_id = client_id_in(response) if response.status_code == HTTPStatus.CREATED else None
        return harmless(self._unexpected(response)) if client_id is None else client_id

    async def _book(self, booking: Booking, client_id: int, send: Send) -> Outcome:
        rental = path_segment(booking.property_id)
        if rental is None:
            return refusal(booking, "property_not_found", "")
        response = await send(self._request("POST", f"rentals/{rental}/bookings", booking_body(booking, client_id)))
        match response.status_code:
            case HTTPStatus.CREATED:
                return _made(response, booking)
            case HTTPStatus.UNPROCESSABLE_ENTITY | HTTPStatus.CONFLICT:
                return refusal(booking, *refusal_in(response))
            case HTTPStatus.NOT_FOUND:
                # Not a wrong base URL: the client was created under it.
                return refusal(booking, "property_not_found", "")
            case HTTPStatus.SERVICE_UNAVAILABLE if "retry-after" not in response.headers:
                # A gateway says so too when it loses the server behind it, which may have booked by then.
                return InDoubt("pms_unavailable", "The PMS's gateway lost it while it had the request (HTTP 503).")
            case _:
                return self._unexpected(response)

    async def find(self, booking: Booking, send: Send) -> Lookup:
        """Every booking of the rental around these nights, cancelled ones too, page by page."""
        for page in range(1, _MOST_PAGES + 1):
            response = await send(self._request("GET", "bookings", query=_around(booking, page)))
            bookings = bookings_in(response) if response.status_code == HTTPStatus.OK else None
            if bookings is None:
                return harmless(self._unexpected(response))
            for found in bookings:
                if found.external_reference == booking.reference:
                    return _found(found, booking)
            if not all(found.shows_reference for found in bookings):
                detail = (
                    "The account's credential may not see the references of bookings; it needs the scope bookings_read."
                )
                return Deferred("pms_scope_too_small", detail)
            if page >= _pages(response) or not bookings:
                return Absent()
        return Deferred("pms_lists_too_much", f"The PMS lists more than {_MOST_PAGES * _PER_PAGE} bookings.")

    async def cancel(self, _booking: Booking, pms_reservation_id: str, send: Send) -> Cancellation:
        """Cancel the booking of that id; done as well where the PMS has none of that id. Safe to ask again."""
        identifier = path_segment(pms_reservation_id)
        if identifier is None:
            return Cancelled()
        try:
            response = await send(self._request("DELETE", f"bookings/{identifier}"))
        except (NotSent, NoAnswer) as failure:
            return harmless(outcome_of(failure))
        if response.status_code in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND):
            return Cancelled()
        return harmless(self._unexpected(response))

    def _request(self, method: str, path: str, content: bytes = b"", *, query: str = "") -> httpx.Request:
        headers = [*bearer(self._credential), (b"Accept", _MEDIA_TYPE)]
        if content:
            headers.append((b"Content-Type", _MEDIA_TYPE))
        return request_to(method, f"{self._base_url}/{path}", headers, content, query=query)

    def _unexpected(self, response: httpx.Response) -> Deferred | InDoubt:
        outcome = unexpected(response, self._clock.now())
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS and isinstance(outcome, Deferred):
            return Deferred(outcome.reason, outcome.detail, outcome.retry_after_seconds or self._until_reset(response))
        return outcome

    def _until_reset(self, response: httpx.Response) -> float | None:
        """Seconds until the unix time in `X-RateLimit-Reset`."""
        reset = response.headers.get("x-ratelimit-reset", "")
        return bounded(int(reset) - self._clock.now().timestamp()) if reset.isdecimal() else None


def _made(response: httpx.Response, booking: Booking) -> Outcome:
    bookings = bookings_in(response)
    match bookings:
        case [SyncBooking(status="Booked") as one]:
            return _confirmed(one, booking)
        case [SyncBooking(status="Canceled")]:
            return refusal(booking, "pms_refused", "The PMS made the booking as a cancelled one.")
        case _:
            return not_understood(response)


def _found(found: SyncBooking, booking: Booking) -> Confirmed | Deferred:
    if found.status == "Canceled":
        return Deferred("cancelled_in_pms", "The PMS made the booking, and it was cancelled there since.")
    return _confirmed(found, booking)


def _confirmed(found: SyncBooking, booking: Booking) -> Confirmed:
    return Confirmed(str(found.id), without_card(found.record(), booking.card))


def _around(booking: Booking, page: int) -> str:
    """What ends after the arrival and starts before the departure."""
    return urlencode(
        {
            "rental_id": booking.property_id,
            "from": booking.arrival.isoformat(),
            "until": booking.departure.isoformat(),
            "include_canceled": "true",
            "per_page": _PER_PAGE,
            "page": page,
        }
    )


def _pages(response: httpx.Response) -> int:
    """How many there are; where the PMS does not say, more than are read: an empty page then ends the list."""
    total = response.headers.get("x-total-pages", "")
    return int(total) if total.isdecimal() else _MOST_PAGES + 1

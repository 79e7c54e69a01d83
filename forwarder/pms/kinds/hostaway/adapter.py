"""Kind `hostaway`: Hostaway Public API v1, https://api.hostaway.com/documentation. The base URL ends in `/v1`.

    POST {base_url}/accessTokens                            an access token, for the account's id and secret
    POST {base_url}/reservations                            the reservation, with our reference as `customerUserId`
    GET  {base_url}/reservations?listingId=…                to look one up
    PUT  {base_url}/reservations/:id/statuses/cancelled     to cancel

The credential is `ACCOUNT_ID:SECRET`, or else an access token, which is sent as it is. A listing is our property; Hostaway has no
rooms below it. Taken nights are refused by Hostaway itself, as long as nobody asks it to overbook (`forceOverbooking`), which
this adapter never does. No card travels.

Chosen where the vendor's documents differ or say little:
- Of the fields that a new reservation may have, `customerUserId` alone is free for an id of the caller's and is listed again. The
  list could be filtered by it too; that is not relied on: the listing's reservations of those days are searched.
- A token is good for 24 months by the text and for 184 days by the example: what its response says is gone by. A token may be used
  one second after it was given.
- Why something failed stands in `result` by the text, and in `message` by the example of a 429: both are read.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import ClassVar, Final

from forwarder.pms.kinds.hostaway.requests import (
    FIELDS,
    any_query,
    cancellation_body,
    listing_id_of,
    lookup_query,
    reservation_body,
    token_body,
)
from forwarder.pms.kinds.hostaway.responses import (
    GONE,
    HELD,
    Envelope,
    ShownReservation,
    envelope_in,
    meaning_of,
    reservation_in,
    reservations_in,
    token_in,
)
from forwarder.pms.sdk import (
    CANCELLED_IN_PMS,
    Absent,
    AccountConnection,
    Authorization,
    Booking,
    Cancelled,
    CancelOutcome,
    Capabilities,
    Clock,
    Confirmed,
    Deferred,
    Echo,
    FieldTable,
    Grant,
    InDoubt,
    Limit,
    Limits,
    LookupOutcome,
    NoOptions,
    Outcome,
    Rejected,
    Request,
    Response,
    Send,
    bearer,
    discreet,
    harmless,
    is_reference,
    no_token,
    not_understood,
    outcome_of_message,
    refusal,
    unexpected,
)

_ECHO: Final = Echo("arrivalDate", "departureDate", "totalPrice", "guestEmail")
_MOST_PAGES: Final = 20
_JSON: Final = (b"Accept", b"application/json")
_JSON_BODY: Final = (b"Content-Type", b"application/json")
_FORM: Final = (b"Content-Type", b"application/x-www-form-urlencoded")
_DONE = {HTTPStatus.OK, HTTPStatus.CREATED}
_SAYS_NO = {*_DONE, HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}
_ENDED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_UNTIL_GOOD_SECONDS: Final = 1.0


class HostawayAdapter:
    """Hostaway as one account speaks it."""

    capabilities: ClassVar[Capabilities] = Capabilities(idempotent_create=False, find_by_reference=True, cancel=True)
    limits: ClassVar[Limits] = Limits((Limit(15, 10.0),))
    options: ClassVar[type[NoOptions]] = NoOptions
    fields: ClassVar[FieldTable] = FIELDS

    def __init__(self, connection: AccountConnection, clock: Clock) -> None:
        self._base_url = connection.base_url.rstrip("/")
        self._credential = connection.credential
        self._client_id, _, self._client_secret = connection.credential.partition(":")
        self._clock = clock
        self._authorization = Authorization(
            connection.account_id, connection.grants, clock, self._ask_for_token, ended=_has_ended
        )

    async def create(self, booking: Booking, send: Send) -> Outcome:
        listing_id = listing_id_of(booking)
        if listing_id is None:
            return refusal(booking, "property_not_found", "Hostaway knows listings by their numbers; this is none.")
        response = await self._send("POST", "reservations", send, reservation_body(booking, listing_id))
        envelope = envelope_in(response)
        if envelope is not None and envelope.success:
            return _made(response, envelope, booking)
        if envelope is not None and response.status_code in _SAYS_NO:
            return self._refused(response, envelope, booking)
        return unexpected(response, self._clock.now())

    def _refused(self, response: Response, envelope: Envelope, booking: Booking) -> Rejected | Deferred | InDoubt:
        meaning = meaning_of(envelope.words)
        if response.status_code == HTTPStatus.NOT_FOUND and meaning == "pms_refused":
            return unexpected(response, self._clock.now())  # Hostaway's word for a path that it does not have, too
        return outcome_of_message(meaning, envelope.words, booking)

    async def find(self, booking: Booking, send: Send) -> LookupOutcome:
        listing_id = listing_id_of(booking)
        if listing_id is None:
            return Absent()
        seen, expected, after_id = 0, None, None
        for _ in range(_MOST_PAGES):
            response = await self._send("GET", "reservations", send, query=lookup_query(booking, listing_id, after_id))
            envelope = envelope_in(response) if response.status_code == HTTPStatus.OK else None
            shown = None if envelope is None else reservations_in(envelope)
            if envelope is None or shown is None:
                return self._not_searched(response, envelope, booking)
            decided = _decided(shown, booking)
            if decided is not None:
                return decided
            # What follows the first page may be counted by itself.
            expected = envelope.count if after_id is None else expected
            seen += len(shown)
            if not shown or (expected is not None and seen >= expected):
                return Absent()
            after_id = shown[-1].id
        return Deferred("pms_lists_too_much", f"The PMS lists more than {_MOST_PAGES} pages of reservations.")

    def _not_searched(self, response: Response, envelope: Envelope | None, booking: Booking) -> Deferred:
        if envelope is None or envelope.success:
            return harmless(unexpected(response, self._clock.now()))
        refused = self._refused(response, envelope, booking)
        if isinstance(refused, Rejected):
            return Deferred("pms_refused_request", f"The PMS does not search. It says: {refused.problem.detail}")
        return harmless(refused)

    async def cancel(self, booking: Booking, pms_reservation_id: str, send: Send) -> CancelOutcome:
        if not (pms_reservation_id.isascii() and pms_reservation_id.isdigit()):
            return Cancelled()  # Hostaway has no reservation of such an id
        path = f"reservations/{pms_reservation_id}"
        response = await self._send("PUT", f"{path}/statuses/cancelled", send, cancellation_body())
        envelope = envelope_in(response)
        if envelope is None or response.status_code not in _SAYS_NO:
            return harmless(unexpected(response, self._clock.now()))
        if envelope.success:
            reservation = reservation_in(envelope.result)
            gone = reservation is not None and reservation.status in GONE
            return Cancelled() if gone else harmless(not_understood(response))
        refused = self._refused(response, envelope, booking)
        return await self._not_cancelled(path, refused, envelope, booking, send)

    async def _not_cancelled(
        self, path: str, refused: Rejected | Deferred | InDoubt, said: Envelope, booking: Booking, send: Send
    ) -> CancelOutcome:
        """A no counts only as far as Hostaway still shows the reservation: it may be cancelled already, or not be there."""
        response = await self._send("GET", path, send)
        envelope = envelope_in(response)
        reservation = None if envelope is None else reservation_in(envelope.result)
        if reservation is not None and response.status_code == HTTPStatus.OK:
            if reservation.status in GONE:
                return Cancelled()
            if isinstance(refused, Rejected):
                return refusal(booking, "cancellation_refused", said.words)
            return harmless(refused)
        not_there = response.status_code == HTTPStatus.NOT_FOUND and envelope is not None and not envelope.success
        if not_there and await self._is_hostaway(send):
            return Cancelled()
        return harmless(unexpected(response, self._clock.now()))

    async def _is_hostaway(self, send: Send) -> bool:
        """Whether there are reservations below the base URL: else its 404 says nothing."""
        response = await self._send("GET", "reservations", send, query=any_query())
        envelope = envelope_in(response) if response.status_code == HTTPStatus.OK else None
        return envelope is not None and reservations_in(envelope) is not None

    async def _send(self, method: str, path: str, send: Send, content: bytes = b"", *, query: str = "") -> Response:
        def request(token: str) -> Request:
            headers = [*bearer(token), _JSON, *([_JSON_BODY] if content else [])]
            return Request(method, f"{self._base_url}/{path}", headers, content, query=query)

        if not self._client_secret:
            return await send(request(self._credential))
        return await self._authorization.send(request, send)

    async def _ask_for_token(self, _used: Grant | None, send: Send) -> Grant:
        content = token_body(self._client_id, self._client_secret)
        response = await send(Request("POST", f"{self._base_url}/accessTokens", [_JSON, _FORM], content))
        token = token_in(response) if response.status_code in _DONE else None
        if token is None:
            raise no_token(response, self._clock.now())
        await self._clock.sleep(_UNTIL_GOOD_SECONDS)
        return Grant(token.access_token, expires_at=self._clock.now() + timedelta(seconds=token.seconds))


def _has_ended(response: Response) -> bool:
    return response.status_code in _ENDED


def _made(response: Response, envelope: Envelope, booking: Booking) -> Outcome:
    reservation = reservation_in(envelope.result) if response.status_code in _DONE else None
    if reservation is None:
        return not_understood(response)
    others = reservation.reference is not None and not is_reference(reservation.reference, booking.reference)
    elsewhere = reservation.listing_id not in (None, listing_id_of(booking))
    if others or elsewhere or _ECHO.contradicts(reservation.whole, booking):
        return not_understood(response, str(reservation.id))
    if reservation.status in (None, *HELD):
        return _confirmed(reservation, booking)
    if reservation.status in GONE:
        return refusal(booking, "pms_refused", f"The PMS made the reservation with the status {reservation.status}.")
    return not_understood(response)


def _decided(shown: Sequence[ShownReservation], booking: Booking) -> Confirmed | Deferred | None:
    """What these reservations say of ours; None where it is not among them."""
    ours = [reservation for reservation in shown if _is_ours(reservation, booking)]
    held = {str(reservation.id): reservation for reservation in ours if reservation.status in (None, *HELD)}
    if held:
        first, *others = held
        return replace(_confirmed(held[first], booking), doubles=tuple(others))
    if ours:
        gone = all(reservation.status in GONE for reservation in ours)
        said = discreet(str(ours[0].status), booking)
        reason = CANCELLED_IN_PMS if gone else "pms_still_working"
        return Deferred(reason, f"The PMS made the reservation, and it is not a held one now. Its status: {said}")
    if not all(reservation.shows_reference for reservation in shown):
        detail = "The PMS does not show customerUserId, the field of our references, of every reservation."
        return Deferred("pms_scope_too_small", detail)
    return None


def _is_ours(shown: ShownReservation, booking: Booking) -> bool:
    if is_reference(shown.reference, booking.reference):
        return True
    return str(shown.id) == booking.pms_id and not _ECHO.contradicts(shown.whole, booking)


def _confirmed(reservation: ShownReservation, booking: Booking) -> Confirmed:
    named = is_reference(reservation.reference, booking.reference)
    return Confirmed(str(reservation.id), dict(reservation.record), named=named)

"""Kind `beds24`: Beds24 API v2, https://wiki.beds24.com/index.php/Category:API_V2. The base URL ends in `/v2`.

    GET  {base_url}/authentication/token   an access token for 24 hours, for the account's refresh token
    POST {base_url}/bookings               new bookings, several at once; each is answered by itself
    GET  {base_url}/bookings?arrival=…     to look one up
    POST {base_url}/bookings               to cancel: the booking's id with the status `cancelled`

A room there is our room, and has a number; without a room of its own, a request's property names it. Beds24 counts in the
currency of the property, whatever a request says. No card travels: Beds24 takes tokens of payment gateways alone.

Chosen where the vendor's documents differ or say little:
- Bookings can be searched by `apiReference`, but the OpenAPI file does not let a new booking have one. Ours travels in a custom
  field, which is a part of the booking itself: an info item may fail by itself, and leave a booking that nobody finds again.
- A look-up asks for a day of arrival, in every room: the host may have moved the booking to another.
- `success: false` does not mean that nothing was done (API_V2, "POST response"): an item that names a new booking has made it.
- Deleting would leave no trace in Beds24, and needs a scope of its own: a booking is cancelled by its status.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import ClassVar, Final

from forwarder.pms.kinds.beds24.requests import (
    CANCELLED,
    FIELDS,
    Beds24Options,
    cancellation_body,
    creation_body,
    lookup_query,
    new_booking,
    one_query,
    room_id_of,
)
from forwarder.pms.kinds.beds24.responses import (
    HELD,
    Posted,
    ShownBooking,
    meaning_of,
    page_in,
    posted_in,
    token_in,
    unknown_room,
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
    NoResponse,
    NotSent,
    Outcome,
    Rejected,
    Request,
    Response,
    Send,
    credential_header,
    discreet,
    harmless,
    hold_off_asked,
    is_reference,
    no_token,
    not_understood,
    outcome_of,
    outcome_of_message,
    refusal,
    unexpected,
)

_ECHO: Final = Echo("arrival", "departure", "price", "email")
_MOST_AT_ONCE: Final = 20
"""Beds24 takes more; but all of them are in doubt together when a response is lost, and are then looked up one by one."""
_MOST_PAGES: Final = 20
_JSON: Final = (b"Accept", b"application/json")
_JSON_BODY: Final = (b"Content-Type", b"application/json")
_ANSWERED = {HTTPStatus.OK, HTTPStatus.CREATED}
_NO_ROOM: Final = "Beds24 knows rooms by their numbers; this is none."


class Beds24Adapter:
    """Beds24 as one account speaks it."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        idempotent_create=False, find_by_reference=True, cancel=True, max_per_create=_MOST_AT_ONCE
    )
    limits: ClassVar[Limits] = Limits((Limit(100, 300.0),))
    options: ClassVar[type[Beds24Options]] = Beds24Options
    fields: ClassVar[FieldTable] = FIELDS

    def __init__(self, connection: AccountConnection, clock: Clock) -> None:
        self._base_url = connection.base_url.rstrip("/")
        self._credential = connection.credential
        self._options = Beds24Options.model_validate(connection.options)
        self._clock = clock
        self._authorization = Authorization(connection.account_id, connection.grants, clock, self._ask_for_token)

    async def create(self, booking: Booking, send: Send) -> Outcome:
        [outcome] = await self.create_many([booking], send)
        return outcome

    async def create_many(self, bookings: Sequence[Booking], send: Send) -> Sequence[Outcome]:
        """One request for all that name a room. Of the others, nothing is sent."""
        rooms = [(booking, room_id_of(booking)) for booking in bookings]
        items = [
            new_booking(booking, room, self._options.reference_field) for booking, room in rooms if room is not None
        ]
        said = iter(await self._post(items, send) if items else ())
        return [
            refusal(booking, unknown_room(room_named=_names_room(booking)), _NO_ROOM)
            if room is None
            else self._made(next(said), booking)
            for booking, room in rooms
        ]

    async def find(self, booking: Booking, send: Send) -> LookupOutcome:
        for page_number in range(1, _MOST_PAGES + 1):
            response = await self._send("GET", "bookings", send, query=lookup_query(booking, page_number))
            page = page_in(response, self._options.reference_field) if response.status_code == HTTPStatus.OK else None
            if page is None:
                return harmless(self._unexpected(response))
            ours = [shown for shown in page.bookings if _is_ours(shown, booking)]
            if ours:
                return _found(ours, booking)
            if not all(shown.shows_reference for shown in page.bookings):
                return Deferred(
                    "pms_scope_too_small",
                    f"The account's credential may not see the field {self._options.reference_field} of bookings; "
                    "it needs the scopes bookings and bookings-personal.",
                )
            if not page.more:
                return Absent()
        return Deferred("pms_lists_too_much", f"The PMS lists more than {_MOST_PAGES} pages of bookings for one day.")

    async def cancel(self, booking: Booking, pms_reservation_id: str, send: Send) -> CancelOutcome:
        if not (pms_reservation_id.isascii() and pms_reservation_id.isdigit()):
            return Cancelled()  # Beds24 has no booking of such an id
        booking_id = int(pms_reservation_id)
        response = await self._send("POST", "bookings", send, cancellation_body(booking_id))
        items = self._posted(response, 1)
        if items is None or items[0] is None:
            return harmless(self._unexpected(response))
        return Cancelled() if items[0].success else await self._not_cancelled(booking, booking_id, items[0], send)

    async def _not_cancelled(self, booking: Booking, booking_id: int, said: Posted, send: Send) -> CancelOutcome:
        """An error counts only as far as Beds24 still shows the booking: it may have been cancelled before, or not be there."""
        response = await self._send("GET", "bookings", send, query=one_query(booking_id))
        page = page_in(response, self._options.reference_field) if response.status_code == HTTPStatus.OK else None
        if page is None or any(shown.id != booking_id for shown in page.bookings):
            return harmless(self._unexpected(response))
        if all(shown.status == CANCELLED for shown in page.bookings):
            return Cancelled()
        refused = self._refused(said, booking)
        return (
            refusal(booking, "cancellation_refused", said.words) if isinstance(refused, Rejected) else harmless(refused)
        )

    async def _post(self, items: Sequence[dict[str, object]], send: Send) -> Sequence[Posted | Deferred | InDoubt]:
        """What Beds24 says of each item; where it does not answer them one by one, what that means for every one."""
        response = await self._send("POST", "bookings", send, creation_body(items))
        said = self._posted(response, len(items))
        if said is not None:
            return [not_understood(response) if one is None else one for one in said]
        if response.status_code == HTTPStatus.BAD_REQUEST and len(items) > 1:
            return [await self._post_alone(item, send) for item in items]
        return [self._unexpected(response)] * len(items)

    async def _post_alone(self, item: dict[str, object], send: Send) -> Posted | Deferred | InDoubt:
        """One of several that were refused as a whole, which one of them may be to blame for. What happens to it is its own."""
        try:
            [said] = await self._post([item], send)
        except (NotSent, NoResponse) as failure:
            return outcome_of(failure)
        return said

    def _posted(self, response: Response, items: int) -> Sequence[Posted | None] | None:
        answered = response.status_code in _ANSWERED
        return posted_in(response, items, self._options.reference_field) if answered else None

    def _made(self, said: Posted | Deferred | InDoubt, booking: Booking) -> Outcome:
        if not isinstance(said, Posted):
            return said
        new = said.new
        if new is not None and new.status in HELD and _may_be_ours(new, booking):
            return _confirmed(new, booking)
        if new is None and not said.success and said.faults:
            return self._refused(said, booking)
        pms_id = None if new is None else str(new.id)
        detail = "The PMS does not say whether it made the booking."
        return InDoubt("pms_answer_not_understood", detail, made=new is not None, pms_reservation_id=pms_id)

    def _refused(self, said: Posted, booking: Booking) -> Rejected | Deferred | InDoubt:
        return outcome_of_message(meaning_of(said.faults, room_named=_names_room(booking)), said.words, booking)

    async def _send(self, method: str, path: str, send: Send, content: bytes = b"", *, query: str = "") -> Response:
        def request(token: str) -> Request:
            headers = [*credential_header(b"token", token), _JSON, *([_JSON_BODY] if content else [])]
            return Request(method, f"{self._base_url}/{path}", headers, content, query=query)

        if self._options.credential_type == "token":
            return await send(request(self._credential))
        return await self._authorization.send(request, send)

    async def _ask_for_token(self, _used: Grant | None, send: Send) -> Grant:
        """The refresh token stays the same, whatever is asked for with it."""
        headers = [*credential_header(b"refreshToken", self._credential), _JSON]
        response = await send(Request("GET", f"{self._base_url}/authentication/token", headers))
        token = token_in(response) if response.status_code == HTTPStatus.OK else None
        if token is None:
            raise no_token(response, self._clock.now())
        access_token, seconds = token
        return Grant(access_token, expires_at=self._clock.now() + timedelta(seconds=seconds))

    def _unexpected(self, response: Response) -> Deferred | InDoubt:
        """Where the credits are used up, the PMS says for how long."""
        outcome = unexpected(response, self._clock.now())
        if isinstance(outcome, Deferred) and outcome.retry_after_seconds is None:
            return replace(outcome, retry_after_seconds=hold_off_asked(response, self._clock.now()) or None)
        return outcome


def _names_room(booking: Booking) -> bool:
    return booking.room_id != booking.property_id


def _is_ours(shown: ShownBooking, booking: Booking) -> bool:
    if is_reference(shown.reference, booking.reference):
        return True
    return str(shown.id) == booking.pms_id and not _ECHO.contradicts(shown.whole, booking)


def _found(ours: Sequence[ShownBooking], booking: Booking) -> Confirmed | Deferred:
    held = {str(shown.id): shown for shown in ours if shown.status in HELD}
    if held:
        first, *others = held
        return replace(_confirmed(held[first], booking), doubles=tuple(others))
    statuses = sorted({shown.status for shown in ours})
    if statuses == [CANCELLED]:
        return Deferred(CANCELLED_IN_PMS, "The PMS made the booking, and it was cancelled there since.")
    said = discreet(", ".join(statuses), booking)
    return Deferred("pms_still_working", f"The PMS holds the booking, but not as a confirmed one. Its status: {said}")


def _may_be_ours(new: ShownBooking, booking: Booking) -> bool:
    """A new booking is shown in part: with the reference, or with what else tells it from another."""
    room = new.whole.get("roomId")
    other_room = room is not None and str(room) != booking.room_id.lstrip("0")
    others = other_room or _ECHO.contradicts(new.whole, booking)
    return not others and (not new.shows_reference or is_reference(new.reference, booking.reference))


def _confirmed(shown: ShownBooking, booking: Booking) -> Confirmed:
    named = is_reference(shown.reference, booking.reference)
    return Confirmed(str(shown.id), dict(shown.record), named=named)

"""Kind `cloudbeds`: Cloudbeds PMS API v1.3, https://developers.cloudbeds.com. The base URL ends in `/api/v1.3`.

    POST {base_url}/postReservation                         the booking, with our reference as `thirdPartyIdentifier`
    POST {base_url}/postReservationNote                     what Cloudbeds has no field for, in plain words
    GET  {base_url}/getReservation?reservationID=…          its price, balance and state; read once it was made
    GET  {base_url}/getReservations?sourceReservationId=…   to look one up
    PUT  {base_url}/putReservation                          to cancel, with `status=canceled`

Requests are forms. Responses are 200 with `success`; of one that is false, `message` alone tells what it means. Our room is a room
type there. No card travels: Cloudbeds forbids card data in its API, but for tokens of a payment gateway.

Chosen where the vendor's documents differ or say little:
- The OpenAPI file shows `thirdPartyIdentifier` as empty for what did not come from a booking channel. So an account whose bookings
  carry no third-party source (`sourceId`) can not look them up: a doubtful one is parked.
- Sources are `s-1` in the OpenAPI file, and `s-1-1` in the guide (Reservation FAQs): both are taken, and sent as they are.
- The guide names 5 requests a second for properties, and 10 for technology partners: the lower is kept to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import structlog
from pydantic_core import to_json

from forwarder.pms.kinds.cloudbeds.fields import FIELDS, table_for
from forwarder.pms.kinds.cloudbeds.requests import (
    CloudbedsOptions,
    cancellation_form,
    details_query,
    lookup_query,
    note_form,
    notes_of,
    reservation_form,
)
from forwarder.pms.kinds.cloudbeds.responses import answer_in, meaning_of, message_of, record_of, status_of
from forwarder.pms.sdk import (
    CANCELLED_IN_PMS,
    Absent,
    AccountConnection,
    Booking,
    Cancelled,
    CancelOutcome,
    Capabilities,
    Clock,
    Confirmed,
    Deferred,
    Echo,
    Headers,
    InDoubt,
    Kind,
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
    StandIn,
    bearer,
    credential_header,
    harmless,
    identifier,
    is_reference,
    not_understood,
    outcome_of_message,
    read_object,
    refusal,
    unexpected,
)

_log = structlog.get_logger(__name__)

_ECHO: Final = Echo("startDate", "endDate", email="guestEmail")
_JSON: Final = (b"Accept", b"application/json")
_FORM: Final = (b"Content-Type", b"application/x-www-form-urlencoded")
_ASSUMED_ID: Final = "0"
_ASSUMED: Final = "reservationID: 0 stands for the id that Cloudbeds gives to the reservation."
_NOTE_TRIES: Final = 2
_HELD = {"confirmed", "checked_in", "checked_out", "no_show"}
_UNCONFIRMED: Final = "not_confirmed"
_CANCELED: Final = "canceled"
_TO_BE_CONFIRMED: Final = ("pms_still_working", "The booking is made, and the property has yet to confirm it.")
_NOT_SHOWN: Final = (
    "pms_scope_too_small",
    "The account's bookings have no third-party source, so that none can be looked up.",
)


class CloudbedsAdapter:
    """Cloudbeds as one account speaks it."""

    def __init__(self, connection: AccountConnection, clock: Clock) -> None:
        self._base_url = connection.base_url.rstrip("/")
        self._credential = connection.credential
        self._options = CloudbedsOptions.model_validate(connection.options)
        self._clock = clock
        self.fields = table_for(notes_field=self._options.notes_field is not None)
        self._counted = _HELD | ({_UNCONFIRMED} if self._options.accept_unconfirmed else set())

    @property
    def capabilities(self) -> Capabilities:
        return replace(CLOUDBEDS.capabilities, find_by_reference=self._options.shows_reference)

    async def create(self, booking: Booking, send: Send) -> Outcome:
        """One request makes the booking. Whatever becomes of the next, which leave a note and read its price, it is made."""
        form = reservation_form(booking, self._options, notes_of(booking, self._options, self.fields))
        response = await send(self._posted("POST", "postReservation", form))
        body = answer_in(response)
        if body is None:
            return self._not_decided(response)
        return await self._made(response, body, booking, send) if body["success"] else self._refused(body, booking)

    def _not_decided(self, response: Response) -> Deferred | InDoubt:
        if (read_object(response) or {}).get("success") is True:  # in an error's status
            return not_understood(response)
        return unexpected(response, self._clock.now())

    async def _made(self, response: Response, body: dict[str, Any], booking: Booking, send: Send) -> Outcome:
        reservation_id = identifier(body.get("reservationID"))
        if _is_anothers(body, booking):
            return not_understood(response)
        if reservation_id is not None and status_of(body) in self._counted:
            await self._leave_note(reservation_id, booking, send)
            return await self._confirmed(reservation_id, body, booking, send)
        return InDoubt(*_TO_BE_CONFIRMED) if status_of(body) == _UNCONFIRMED else not_understood(response)

    def _refused(self, body: Mapping[str, Any], booking: Booking) -> Rejected | Deferred | InDoubt:
        message = message_of(body)
        meaning = meaning_of(message, property_asked=self._options.property_id is None)
        return outcome_of_message(meaning, message, booking)

    def stand_in(self, request: Request, booking: Booking) -> StandIn | None:  # noqa: ARG002 - the kit's
        """A booking that is made, for the note that follows."""
        made = {"success": True, "reservationID": _ASSUMED_ID, "status": "confirmed"}
        match request.method, request.url.rpartition("/")[2]:
            case "POST", "postReservation":
                return StandIn(Response(HTTPStatus.OK, (), to_json(made)), _ASSUMED)
            case "POST", "postReservationNote":
                return StandIn(Response(HTTPStatus.OK, (), b'{"success":true}'), "")
            case _:
                return None

    async def find(self, booking: Booking, send: Send) -> LookupOutcome:
        """As `_look_up`. What an earlier push made and could not finish has its note in the end."""
        found = await self._look_up(booking, send)
        if isinstance(found, Confirmed) and not await self._has_note(found.pms_reservation_id, booking, send):
            await self._leave_note(found.pms_reservation_id, booking, send)
        return found

    async def _look_up(self, booking: Booking, send: Send) -> LookupOutcome:
        """`Absent` for an empty list alone: one with other bookings was not searched by our reference."""
        query = lookup_query(self._options.property_of(booking), booking.reference)
        response = await send(self._asked("getReservations", query))
        body = answer_in(response)
        if body is None:
            return harmless(unexpected(response, self._clock.now()))
        if not body["success"]:
            return self._put_off(body, booking)
        found = body.get("data")
        if found == [] and not body.get("total") and not body.get("count"):
            return Absent() if self._options.shows_reference else Deferred(*_NOT_SHOWN)
        ours = [item for item in found if _is_ours(item, booking)] if isinstance(found, list) else []
        return await self._found(ours, response, booking, send)

    async def _found(
        self, ours: Sequence[dict[str, Any]], response: Response, booking: Booking, send: Send
    ) -> LookupOutcome:
        by_status = {status_of(item): item for item in ours}
        held = next((item for status, item in by_status.items() if status in self._counted), None)
        reservation_id = None if held is None else identifier(held.get("reservationID"))
        if held is not None and reservation_id is not None:
            return await self._confirmed(reservation_id, held, booking, send)
        if by_status.keys() == {_CANCELED}:
            return Deferred(CANCELLED_IN_PMS, "The PMS made the booking, and it was cancelled there since.")
        return Deferred(*_TO_BE_CONFIRMED) if _UNCONFIRMED in by_status else harmless(not_understood(response))

    async def cancel(self, booking: Booking, pms_reservation_id: str, send: Send) -> CancelOutcome:
        form = cancellation_form(self._options.property_of(booking), pms_reservation_id)
        response = await send(self._posted("PUT", "putReservation", form))
        body = answer_in(response)
        if body is None:
            return harmless(unexpected(response, self._clock.now()))
        if not body["success"]:
            return await self._not_cancelled(body, booking, pms_reservation_id, send)
        data = body.get("data")
        still_held = isinstance(data, dict) and "status" in data and status_of(data) != _CANCELED
        return harmless(not_understood(response)) if still_held else Cancelled()

    async def _not_cancelled(
        self, body: Mapping[str, Any], booking: Booking, reservation_id: str, send: Send
    ) -> CancelOutcome:
        """A no counts only as far as the PMS shows the booking: it may have been cancelled before, or not be there at all."""
        held = await self._details(reservation_id, booking, send)
        if held is not None and status_of(held) == _CANCELED:
            return Cancelled()
        if held is None and self._options.shows_reference and isinstance(await self._look_up(booking, send), Absent):
            return Cancelled()
        refused = self._refused(body, booking)
        if isinstance(refused, Rejected):
            unseen = "The PMS does not cancel the booking, and does not show it."
            return (
                refusal(booking, "cancellation_refused", message_of(body))
                if held
                else Deferred("pms_refused_request", unseen)
            )
        return harmless(refused)

    async def _confirmed(self, reservation_id: str, known: dict[str, Any], booking: Booking, send: Send) -> Confirmed:
        """With the booking's details where they can be had, else with what is known already."""
        try:
            details = await self._details(reservation_id, booking, send)
        except (NotSent, NoResponse):
            details = None
        if details is not None and _is_anothers(details, booking):
            details = None
        record = record_of(known if details is None else details)
        return Confirmed(reservation_id, record)

    async def _leave_note(self, reservation_id: str, booking: Booking, send: Send) -> None:
        """What Cloudbeds has no field for becomes a note of what it made, unless it went with that in a field of the account's. A
        note that fails twice is given up, and said to be: the booking stands without it."""
        notes = "" if self._options.notes_field else notes_of(booking, self._options, self.fields)
        form = note_form(self._options.property_of(booking), reservation_id, notes)
        for _ in range(_NOTE_TRIES if notes else 0):
            try:
                answer = answer_in(await send(self._posted("POST", "postReservationNote", form)))
            except (NotSent, NoResponse):
                continue
            if answer is not None and answer["success"]:
                return
        if notes:
            _log.warning("note.lost", request_id=booking.reference, kind="cloudbeds", pms_reservation_id=reservation_id)

    async def _has_note(self, reservation_id: str, booking: Booking, send: Send) -> bool:
        """Whether an earlier push left the note. Where nobody can tell it is left again: twice is better than never."""
        notes = "" if self._options.notes_field else notes_of(booking, self._options, self.fields)
        if not notes:
            return True
        query = details_query(self._options.property_of(booking), reservation_id)
        try:
            shown = (answer_in(await send(self._asked("getReservationNotes", query))) or {}).get("data")
        except (NotSent, NoResponse):
            return False
        items = shown if isinstance(shown, list) else []
        return any(isinstance(item, dict) and item.get("reservationNote") == notes for item in items)

    async def _details(self, reservation_id: str, booking: Booking, send: Send) -> dict[str, Any] | None:
        """The reservation as the PMS shows it; None where it does not. Raises what `send` raises."""
        query = details_query(self._options.property_of(booking), reservation_id)
        response = await send(self._asked("getReservation", query))
        data = (answer_in(response) or {}).get("data")
        shown = data if isinstance(data, dict) else {}
        return shown if identifier(shown.get("reservationID")) == reservation_id else None

    def _put_off(self, body: Mapping[str, Any], booking: Booking) -> Deferred:
        refused = self._refused(body, booking)
        if isinstance(refused, Rejected):
            return Deferred("pms_refused_request", f"The PMS does not search. It says: {refused.problem.detail}")
        return harmless(refused)

    def _asked(self, method_name: str, query: str) -> Request:
        return Request("GET", f"{self._base_url}/{method_name}", self._headers(), query=query)

    def _posted(self, method: str, method_name: str, form: bytes) -> Request:
        return Request(method, f"{self._base_url}/{method_name}", (*self._headers(), _FORM), form)

    def _headers(self) -> Headers:
        if self._options.authorization == "api-key":
            return (*credential_header(b"x-api-key", self._credential), _JSON)
        return (*bearer(self._credential), _JSON)


def _is_anothers(shown: Mapping[str, Any], booking: Booking) -> bool:
    """Whether what is shown names another reference, other nights or another guest than `booking`."""
    named = shown.get("thirdPartyIdentifier")
    return named not in (None, "", booking.reference) or _ECHO.contradicts(shown, booking)


def _is_ours(item: object, booking: Booking) -> bool:
    return isinstance(item, dict) and is_reference(item.get("thirdPartyIdentifier"), booking.reference)


CLOUDBEDS: Final = Kind(
    CloudbedsAdapter,
    CloudbedsOptions,
    Capabilities(idempotent_create=False, find_by_reference=False, cancel=True),
    Limits((Limit(5, 1.0),), requests_per_push=3),
    FIELDS,
)

"""A PMS that is mapped: the adapter that a mapping stands for."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

from forwarder.pms.adapter import StandIn
from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.errors import NoResponse, NotSent
from forwarder.pms.http.outcomes import harmless, is_ambiguous, not_understood, outcome_of, unexpected
from forwarder.pms.http.response import Response, retry_after
from forwarder.pms.mapping.credentials import Credentials
from forwarder.pms.mapping.format.fields import DoesNotFit
from forwarder.pms.mapping.format.json_path import MISSING, assembled, value_at
from forwarder.pms.mapping.format.model import PmsMapping
from forwarder.pms.mapping.format.operations import (
    CANCELLED,
    CONFIRMED,
    DEFERRED,
    IN_DOUBT,
    Cancel,
    Confirm,
    Operation,
    Show,
)
from forwarder.pms.mapping.format.parts import Rule
from forwarder.pms.mapping.lookup import Lookup
from forwarder.pms.mapping.request import Asked, Requests
from forwarder.pms.mapping.response import Tentative, body_of, confirmed_by_id, decide, made, state_of, words
from forwarder.pms.mapping.unmapped import Unmapped
from forwarder.pms.port import AccountConnection, Capabilities
from forwarder.pms.responses.refusals import PRICE_AND_CARD, refusal
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import (
    Absent,
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    InDoubt,
    LookupOutcome,
    Outcome,
    Rejected,
)

_NOT_FOUND: Final = {"propertyId": "property_not_found", "roomId": "room_not_found"}
_NOT_MAPPED: Final = Deferred("mapping_lacks_it", "The account's mapping does not say how this is asked.")
_STAND_IN_ID: Final = "THE-PMS-ID"


class MappedAdapter:
    """The PMS that `mapping` describes, as one account speaks to it. `settings`: its values for the mapping's options; `token_url`:
    where its tokens are asked for, if not where the mapping says."""

    def __init__(
        self,
        connection: AccountConnection,
        mapping: PmsMapping,
        clock: Clock,
        settings: Mapping[str, Any] | None = None,
        token_url: str | None = None,
    ) -> None:
        self._mapping = mapping
        self._unmapped = Unmapped(mapping)
        self.fields = self._unmapped.table
        values = {name: option.default for name, option in mapping.options.items()} | dict(settings or {})
        known = {name: value for name, value in values.items() if value is not None}
        self._requests = Requests(mapping, connection.base_url.rstrip("/"), self._unmapped, known)
        self._clock = clock
        self._credentials = Credentials(mapping.auth, connection, clock, self._has_ended, token_url)
        self._lookup = Lookup(mapping, self._built, self._credentials.send, self._put_off, clock)

    @property
    def capabilities(self) -> Capabilities:
        return self._mapping.capabilities

    # --- create ---

    async def create(self, booking: Booking, send: Send) -> Outcome:
        create = self._mapping.create
        if not self._mapping.rooms and booking.room_id != booking.property_id:
            return refusal(booking, "room_not_found", "The PMS has no rooms below the property.")
        if given := self._unmapped.refused(booking):
            return refusal(
                booking, "pms_refused", f"The PMS has no field for {given}, and without it this is another booking."
            )
        try:
            request = self._requests.build(create, Asked(booking))
        except DoesNotFit as misfit:
            return refusal(booking, _NOT_FOUND.get(misfit.name, "pms_refused"), str(misfit))
        response = await self._credentials.send(request, send)
        body = body_of(response)
        match decide(create, response, body):
            case True:
                outcome = made(self._mapping, response, body, booking)
                return await self._confirm(outcome.pms_id, booking, send) if isinstance(outcome, Tentative) else outcome
            case Rule() as rule:
                return self._ruled(rule, response, body, booking)
            case False:
                return not_understood(response)
            case None:
                return self._undecided(response)

    async def _confirm(self, pms_id: str, booking: Booking, send: Send) -> Outcome:
        """The second request. Something is made by now: whatever is not certain is in doubt, and a no is one once that is
        undone."""
        confirm = self._mapping.confirm
        if confirm is None:
            return _half_made(pms_id, "The mapping has no `confirm`.")
        try:
            outcome = await self._asked_to_confirm(confirm, pms_id, booking, send)
            if isinstance(outcome, Rejected):
                undone = await self.cancel(booking, pms_id, send)
                return outcome if isinstance(undone, Cancelled) else _half_made(pms_id, "It could not be undone.")
        except (NotSent, NoResponse) as failure:
            return _half_made(pms_id, outcome_of(failure).detail)
        return _half_made(pms_id, outcome.detail) if isinstance(outcome, Deferred) else outcome

    async def _asked_to_confirm(
        self, confirm: Confirm, pms_id: str, booking: Booking, send: Send
    ) -> Confirmed | Rejected | Deferred | InDoubt:
        response = await self._credentials.send(self._built(confirm, Asked(booking, pms_id)), send)
        body = body_of(response)
        decided = decide(confirm, response, body)
        if isinstance(decided, Rule) and decided.becomes != CONFIRMED:
            return self._ruled(decided, response, body, booking)
        if confirm.read_back is not None:
            return await self._seen_confirmed(confirm.read_back, pms_id, booking, send)
        if decided:
            return Confirmed(pms_id)
        return not_understood(response) if decided is False else self._undecided(response)

    async def _seen_confirmed(
        self, show: Show, pms_id: str, booking: Booking, send: Send
    ) -> Confirmed | Deferred | InDoubt:
        state, response = await self._read_back(show, pms_id, booking, send)
        return Confirmed(pms_id) if state == "confirmed" else not_understood(response)

    async def _read_back(self, show: Show, pms_id: str, booking: Booking, send: Send) -> tuple[str, Response]:
        """What the PMS shows the reservation to be now; empty where it does not say."""
        response = await self._credentials.send(self._built(show, Asked(booking, pms_id)), send)
        body = body_of(response)
        match decide(show, response, body):
            case Rule(becomes=becomes):
                return (CANCELLED if becomes == CANCELLED else ""), response
            case True:
                return state_of(self._mapping.reservation, value_at(body, show.reservation)), response
            case _:
                return "", response

    # --- find ---

    async def find(self, booking: Booking, send: Send) -> LookupOutcome:
        if self._mapping.find is None:
            return _NOT_MAPPED
        found = await self._lookup.run(self._mapping.find, booking, send)
        if isinstance(found, Absent) and booking.pms_id is not None:
            found = await self._find_by_id(booking.pms_id, booking, send) or found
        if not isinstance(found, Tentative):
            return found
        outcome = await self._confirm(found.pms_id, booking, send)
        if isinstance(outcome, Rejected):  # made, refused in the second step, and undone
            return Deferred("pms_still_working", "What had been made of it could not be confirmed, and was undone.")
        return outcome if isinstance(outcome, Confirmed) else harmless(outcome)

    async def _find_by_id(self, pms_id: str, booking: Booking, send: Send) -> Confirmed | None:
        """The reservation of the id that our create was answered with, where it is shown and nothing in it is another's."""
        steps = (self._mapping.confirm, self._mapping.cancel)
        show = next((step.read_back for step in steps if step is not None and step.read_back is not None), None)
        if show is None:
            return None
        response = await self._credentials.send(self._built(show, Asked(booking, pms_id)), send)
        body = body_of(response)
        item = value_at(body, show.reservation) if decide(show, response, body) is True else MISSING
        return confirmed_by_id(self._mapping, item, booking)

    # --- cancel ---

    async def cancel(self, booking: Booking, pms_reservation_id: str, send: Send) -> CancelOutcome:
        cancel = self._mapping.cancel
        if cancel is None:
            return _NOT_MAPPED
        response = await self._credentials.send(self._built(cancel, Asked(booking, pms_reservation_id)), send)
        said = self._said_of_cancelling(cancel, response, booking)
        if cancel.read_back is None or (isinstance(said, Deferred) and said.retry_after_seconds):
            return said
        state, shown = await self._read_back(cancel.read_back, pms_reservation_id, booking, send)
        match state:
            case "cancelled" | "refused":
                return Cancelled()
            case "confirmed" | "tentative":
                return _not_cancelled() if isinstance(said, Cancelled) else said
            case _:
                return said if not isinstance(said, Cancelled) else harmless(not_understood(shown))

    def _said_of_cancelling(self, cancel: Cancel, response: Response, booking: Booking) -> CancelOutcome:
        body = body_of(response)
        match decide(cancel, response, body):
            case True:
                return Cancelled()
            case Rule(becomes=becomes) as rule:
                ruled = Cancelled() if becomes == CANCELLED else self._ruled(rule, response, body, booking)
                return harmless(ruled) if isinstance(ruled, InDoubt) else ruled
            case False:
                return harmless(not_understood(response))
            case None:
                return harmless(unexpected(response, self._clock.now()))

    # --- what is common to them ---

    def _built(self, operation: Operation, asked: Asked) -> Request:
        try:
            return self._requests.build(operation, asked)
        except DoesNotFit as misfit:  # it was made under another mapping
            raise NotSent("mapping_does_not_fit", str(misfit)) from misfit

    def _has_ended(self, response: Response) -> bool:
        """Whether a token is taken no more: not where the PMS says something else by the same status."""
        oauth = self._mapping.auth.oauth
        if oauth is None or response.status_code not in oauth.ended.status:
            return False
        body = body_of(response)
        if oauth.ended.when:  # the PMS's own word for it, which goes before a rule for all its errors
            return oauth.ended.passes(response.status_code, body)
        rules = (rule for operation in self._mapping.operations.values() for rule in operation.errors)
        return not any(rule.reads_the_body and rule.applies(response.status_code, body) for rule in rules)

    def _ruled(self, rule: Rule, response: Response, body: object, booking: Booking) -> Rejected | Deferred | InDoubt:
        if rule.becomes in (DEFERRED, IN_DOUBT):
            return self._put_off(rule, response)
        said, code = words(self._mapping, body), rule.becomes
        if code == "pms_refused":
            code = next((meaning for pattern, meaning in PRICE_AND_CARD if pattern.search(said)), code)
        return refusal(booking, code, said)

    def _put_off(self, rule: Rule, response: Response) -> Deferred | InDoubt:
        detail = f"By the account's mapping, this answer (HTTP {response.status_code}) says so."
        if rule.becomes == IN_DOUBT or (is_ambiguous(response.status_code) and not rule.reads_the_body):
            return InDoubt("pms_failed", detail, retry_after(response, self._clock.now()))
        return Deferred("pms_put_off", detail, retry_after(response, self._clock.now()))

    def _undecided(self, response: Response) -> Deferred | InDoubt:
        return unexpected(response, self._clock.now())

    # --- dry runs ---

    def stand_in(self, request: Request, _booking: Booking) -> StandIn | None:
        """Of a create that is confirmed by a second request, the first one's answer."""
        create, shown = self._mapping.create, self._mapping.reservation
        if self._mapping.confirm is None or request.method != create.method or "/" + _STAND_IN_ID in request.url:
            return None
        if create.id is not None:
            path, values = create.id, {create.id: _STAND_IN_ID}
        else:
            path = ".".join(filter(None, (create.reservation, shown.id)))
            values = {path: _STAND_IN_ID}
            if shown.status is not None and shown.status.tentative:
                where = ".".join(filter(None, (create.reservation, shown.status.path)))
                values[where] = min(shown.status.tentative)
        body = _STAND_IN_ID if not path else assembled(values)
        response = Response(min(create.success.status), (), to_json(body))
        return StandIn(response, f"The PMS makes the reservation, under the id {_STAND_IN_ID}.")


def _half_made(pms_id: str, why: str) -> InDoubt:
    detail = f"The PMS made it under the id {pms_id}, and it is not known to be confirmed. {why}"
    return InDoubt("pms_half_made", detail, made=True, pms_reservation_id=pms_id)


def _not_cancelled() -> Deferred:
    detail = "The PMS said that it was cancelled, and shows it as before."
    return Deferred("pms_answer_not_understood", detail)

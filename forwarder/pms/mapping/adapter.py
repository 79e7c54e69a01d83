"""A PMS that an account of kind `generic` maps: the adapter that a mapping stands for."""

from typing import Final

from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.errors import NotSent
from forwarder.pms.http.outcomes import gateway_failure, harmless, not_understood, unexpected
from forwarder.pms.http.response import Response, retry_after
from forwarder.pms.mapping.fields import DoesNotFit
from forwarder.pms.mapping.json_path import value_at
from forwarder.pms.mapping.model import ABSENT, CANCELLED, DEFERRED, IN_DOUBT, Find, Operation, PmsMapping
from forwarder.pms.mapping.parts import Rule
from forwarder.pms.mapping.request import Asked, Requests
from forwarder.pms.mapping.response import body_of, decide, found, hides_its_reference, is_ours, made, words
from forwarder.pms.mapping.unmapped import Unmapped
from forwarder.pms.port import AccountConnection, Capabilities
from forwarder.pms.refusals import refusal
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import (
    Absent,
    Cancelled,
    CancelOutcome,
    Deferred,
    InDoubt,
    LookupOutcome,
    Outcome,
    Rejected,
)

_NOT_FOUND: Final = {"propertyId": "property_not_found", "roomId": "room_not_found"}
_NOT_MAPPED: Final = Deferred("mapping_lacks_it", "The account's mapping does not say how this is asked.")


class MappedAdapter:
    """The PMS that `mapping` describes, as one account speaks to it."""

    def __init__(self, connection: AccountConnection, mapping: PmsMapping, clock: Clock) -> None:
        self._mapping = mapping
        unmapped = Unmapped(mapping)
        self.fields = unmapped.table
        self._requests = Requests(mapping, connection.base_url.rstrip("/"), connection.credential, unmapped)
        self._clock = clock

    @property
    def capabilities(self) -> Capabilities:
        return self._mapping.capabilities

    async def create(self, booking: Booking, send: Send) -> Outcome:
        try:
            request = self._requests.build(self._mapping.create, Asked(booking))
        except DoesNotFit as misfit:
            return refusal(booking, _NOT_FOUND.get(misfit.name, "pms_refused"), str(misfit))
        response = await send(request)
        body = body_of(response)
        match decide(self._mapping.create, response, body):
            case True:
                return made(self._mapping, response, body, booking)
            case Rule() as rule:
                return self._ruled(rule, response, body, booking)
            case False:
                return not_understood(response)
            case None:
                return self._undecided(response)

    async def find(self, booking: Booking, send: Send) -> LookupOutcome:
        """Of a list that was asked for by our reference, only an empty one says `Absent`; of one that was not, all its pages."""
        find = self._mapping.find
        if find is None:
            return _NOT_MAPPED
        if find.pages is None:
            looked = await self._look(find, Asked(booking), send)
            if isinstance(looked, list):
                return _not_searched() if looked else Absent()
            return looked
        for number in range(find.pages.first, find.pages.first + find.pages.most):
            looked = await self._look(find, Asked(booking, page=(find.pages.query, number)), send)
            if not isinstance(looked, list):
                return looked
            if not looked:
                return Absent()
            if any(hides_its_reference(self._mapping.reservation, item) for item in looked):
                return Deferred(
                    "pms_scope_too_small", "The PMS shows reservations without the reference that is mapped."
                )
        return Deferred("pms_lists_too_much", f"The PMS lists more than {find.pages.most} pages.")

    async def _look(self, find: Find, asked: Asked, send: Send) -> LookupOutcome | list[object]:
        """One look: what became of ours, or else the reservations that were shown, none of which is ours."""
        response = await send(self._built(find, asked))
        body = body_of(response)
        match decide(find, response, body):
            case Rule(becomes=becomes) as rule:
                return Absent() if becomes == ABSENT else harmless(self._put_off(rule, response))
            case None:
                return harmless(unexpected(response, self._clock.now()))
            case succeeded:
                items = value_at(body, find.items)
                if not succeeded or not isinstance(items, list):
                    return harmless(not_understood(response))
        ours = [item for item in items if is_ours(self._mapping.reservation, item, asked.booking)]
        return found(self._mapping, ours, response, asked.booking) if ours else items

    async def cancel(self, booking: Booking, pms_reservation_id: str, send: Send) -> CancelOutcome:
        cancel = self._mapping.cancel
        if cancel is None:
            return _NOT_MAPPED
        response = await send(self._built(cancel, Asked(booking, pms_reservation_id)))
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

    def _built(self, operation: Operation, asked: Asked) -> Request:
        try:
            return self._requests.build(operation, asked)
        except DoesNotFit as misfit:  # it was made under another mapping
            raise NotSent("mapping_does_not_fit", str(misfit)) from misfit

    def _ruled(self, rule: Rule, response: Response, body: object, booking: Booking) -> Rejected | Deferred | InDoubt:
        if rule.becomes in (DEFERRED, IN_DOUBT):
            return self._put_off(rule, response)
        return refusal(booking, rule.becomes, words(self._mapping, body))

    def _put_off(self, rule: Rule, response: Response) -> Deferred | InDoubt:
        detail = f"By the account's mapping, this answer (HTTP {response.status_code}) says so."
        if rule.becomes == IN_DOUBT:
            return InDoubt("pms_failed", detail)
        return Deferred("pms_put_off", detail, retry_after(response, self._clock.now()))

    def _undecided(self, response: Response) -> Deferred | InDoubt:
        lost = None if self.capabilities.idempotent_create else gateway_failure(response)
        return lost or unexpected(response, self._clock.now())


def _not_searched() -> Deferred:
    detail = "The PMS was asked for our reference, and answered with reservations that do not carry it."
    return Deferred("pms_answer_not_understood", detail)

"""Pushes several submissions in one request. Each has its own outcome and attempts."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

import structlog

from forwarder.process.clock import Clock
from forwarder.process.containment import FAULTS, Where, as_fault, contained
from forwarder.reservation.outcome import InDoubt, Outcome
from forwarder.store.submissions.port import Work
from forwarder.tenancy.port import Account
from forwarder.worker.push.attempts import Attempts, sound
from forwarder.worker.push.pusher import Pusher
from forwarder.worker.push.run import PreparedPush, after_create, step_of
from forwarder.worker.push_context import CancelledMeanwhile, LeaseLost, PushResult, is_lease_lost, too_late

_log = structlog.get_logger(__name__)


class BatchPusher:
    """Pushes first tries together."""

    def __init__(self, pusher: Pusher, clock: Clock) -> None:
        self._pusher = pusher
        self._clock = clock

    async def push(self, account: Account, works: Sequence[Work]) -> Sequence[PushResult | Exception]:
        """The result of each of `works`; `LeaseLost` if this worker may no longer push it, or the exception of a bug."""
        ready = await asyncio.gather(*(self._prepare(account, work) for work in works), return_exceptions=True)
        # The last check of the lease, for all of them: the remaining rows are held under the same one.
        ready = [(self._no_more(each.work) or each) if isinstance(each, PreparedPush) else each for each in ready]
        created = await self._create(account, [each for each in ready if isinstance(each, PreparedPush)])
        results = [
            created[each.work.id] if isinstance(each, PreparedPush) else _without_sending(each) for each in ready
        ]
        for work, result in zip(works, results, strict=True):
            if work.submission.card is not None:
                await self._pusher.note_use_of_card(work, result if isinstance(result, PushResult) else None)
        return results

    def _no_more(self, work: Work) -> LeaseLost | None:
        """The reason why `work` must not be sent, or None."""
        if not self._pusher.may_send(work):
            return LeaseLost()
        return CancelledMeanwhile() if self._pusher.is_cancelled(work) else None

    async def _prepare(self, account: Account, work: Work) -> PreparedPush | PushResult:
        prepared = await self._pusher.prepare(account, work)
        if isinstance(prepared, PushResult):
            return prepared
        if self._clock.now() >= work.deadline_at:
            return PushResult(too_late(), work.attempts, work.evidence)
        await self._pusher.before_sending(work, prepared.facts.target)
        return prepared

    async def _create(self, account: Account, ready: Sequence[PreparedPush]) -> Mapping[int, PushResult | Exception]:
        if not ready:
            return {}
        began = self._clock.now(), self._clock.monotonic()
        outcomes = await self._ask(ready)
        pushed: dict[int, PushResult | Exception] = {}
        for each, outcome in zip(ready, outcomes, strict=True):
            try:
                pushed[each.work.id] = self._result(account, each, began, outcome)
            except Exception as error:  # noqa: BLE001 - an invalid outcome concerns this row only
                pushed[each.work.id] = error
        return pushed

    def _result(
        self, account: Account, push: PreparedPush, began: tuple[datetime, float], outcome: Outcome
    ) -> PushResult | LeaseLost:
        if is_lease_lost(outcome):
            return LeaseLost()
        attempts = Attempts(self._clock, account.kind, push.booking.reference, tuple(push.work.attempts))
        attempts.note("create", began, outcome)
        came, evidence = after_create(outcome, push.work.evidence, push.facts, self._clock)
        step = step_of(push.work, evidence, push.facts, self._clock.now(), 0.0) if evidence.open else None
        return PushResult(came, attempts.all, evidence, step)

    async def _ask(self, ready: Sequence[PreparedPush]) -> Sequence[Outcome]:
        try:
            outcomes = await ready[0].pms.create_many([each.booking for each in ready])
        except FAULTS as error:  # an adapter's bug costs these rows, not all; what it sent is unknown
            fault = contained(Where.ADAPTER, error, action="create_many", count=len(ready))
            return [InDoubt("adapter_failed", str(fault))] * len(ready)
        if len(outcomes) != len(ready):
            _log.error("adapter.failed", action="create_many", count=len(ready), outcomes=len(outcomes))
            return [InDoubt("adapter_failed", "It did not say what became of each.")] * len(ready)
        return [sound(each, InDoubt) for each in outcomes]


def _without_sending(outcome: PushResult | BaseException) -> PushResult | Exception:
    return outcome if isinstance(outcome, PushResult) else as_fault(outcome)

"""A push, step by step: from its account queue to the outcome recorder.

may it start → push (rules, look-up, create or cancel) → decide → record

Some rows may kill workers in ways that no exception shows, such as exhausted memory or a crash of native code. A row that was taken
over repeatedly is marked in the store before it is pushed, and the mark is cleared once the push is over. A mark of another worker
shows that it died, or lost its lease, in the middle of that push. From then on the row is pushed alone, one such row at a time, so
that others are not suspected with it; after `MAX_DEATHS` it is no longer pushed.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog

from forwarder.observability.logging import log_context
from forwarder.observability.tracing.context import trace_id_of
from forwarder.process.clock import Clock
from forwarder.process.containment import FAULTS, Blame, Where, as_fault, contained
from forwarder.reservation.evidence import Came
from forwarder.reservation.outcome import InDoubt, Outcome
from forwarder.store.submissions.port import Ended, Postponed, StoreUnavailable, Work
from forwarder.tenancy.port import Account
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.policy import after_fault, came_of, decide
from forwarder.worker.outcome.recorder import OutcomeRecorder
from forwarder.worker.push.pusher import Pusher
from forwarder.worker.push.run import Attempts, PreparedPush, after_create, sound, step_of
from forwarder.worker.push_context import (
    NOT_ATTEMPTED,
    CancelledMeanwhile,
    HealthSignal,
    LeaseLost,
    PushContext,
    PushResult,
    combined_signal,
    health_signal,
    is_lease_lost,
    too_late,
)

if TYPE_CHECKING:
    from forwarder.store.submissions.recorder import Recorder

_log = structlog.get_logger(__name__)

SUSPECT_AFTER: Final = 2
"""Takeovers. Most rows are taken over once at the most, as one of thousands that a worker held."""

MAX_DEATHS: Final = 2


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


class EndsWorkers(Exception):
    """Workers died in the middle of pushes of this row, the last time while it was pushed alone."""


class Suspects:
    """The suspects of one worker; `worker_id` returns its current id."""

    def __init__(self, recorder: "Recorder", worker_id: Callable[[], str]) -> None:
        self._recorder = recorder
        self._worker_id = worker_id
        self._alone = asyncio.Lock()

    @asynccontextmanager
    async def handling(self, work_id: int) -> AsyncIterator[None]:
        """Push the row within the block. Raises `EndsWorkers` if it must not be pushed again, `LeaseLost` if the store is
        unavailable."""
        try:
            deaths = await self._recorder.suspect(self._worker_id(), work_id)
        except StoreUnavailable as error:
            raise LeaseLost from error
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._clear, work_id)
            if deaths >= MAX_DEATHS:
                raise EndsWorkers(f"{deaths} workers ended while they pushed it")
            if deaths:
                _log.warning("push.suspected", reservation_id=work_id, deaths=deaths)
                await stack.enter_async_context(self._alone)
            yield

    async def _clear(self, work_id: int) -> None:
        try:
            await self._recorder.clear_suspects([work_id])
        except StoreUnavailable as error:
            _log.warning("push.still_suspected", reservation_id=work_id, error=str(error))


class PushPipeline:
    """Runs the pushes that account queues start."""

    def __init__(
        self,
        pusher: Pusher,
        outcomes: OutcomeRecorder,
        lease: Lease,
        clock: Clock,
        *,
        push_seconds: float,
        suspects: Suspects,
    ) -> None:
        self._pusher = pusher
        self._batch_pusher = BatchPusher(pusher, clock)
        self._outcomes = outcomes
        self._lease = lease
        self._clock = clock
        self._push_seconds = push_seconds
        self._suspects = suspects
        self._blame = Blame(Where.PUSH)

    def run(self, pushes: Sequence[PushContext]) -> Awaitable[HealthSignal]:
        """Pushes these rows once, in one request; returns the PMS's health signal. Enqueues each outcome to be recorded, which also
        releases the row. Contains faults of single rows."""
        trace = pushes[0].work.submission.trace
        return self._run(pushes) if trace is None else self._run_traced(pushes, trace)

    async def _run_traced(self, pushes: Sequence[PushContext], trace: str) -> HealthSignal:
        with log_context(trace_id=trace_id_of(trace)):
            return await self._run(pushes)

    def _may_start(self, push: PushContext) -> bool:
        work = push.work
        if work.possibly_sent and (seconds := self._pusher.seconds_to_wait(push.account, work)) > 0.0:
            now = self._clock.now()
            due = now + timedelta(seconds=seconds)
            push.decision = Postponed(work.id, work.attempts, now, due, work.revision, work.evidence)
            self._outcomes.enqueue(push)
            return False
        # The target recorded with the row must be the one that a push would use now.
        if self._pusher.target(push.account) != work.target:
            self._give_back(push, "options_changed")
            return False
        return True

    async def _run(self, pushes: Sequence[PushContext]) -> HealthSignal:
        account = pushes[0].account
        ready = []
        for push in pushes:
            try:
                if self._may_start(push):
                    ready.append(push)
            except FAULTS as error:  # concerns this row only
                self._set_aside(push, error)
        if not ready:
            return NOT_ATTEMPTED
        results: Sequence[PushResult | Exception]
        try:
            if len(ready) == 1:
                results = [await self._push_one(account, ready[0].work)]
            else:
                results = await self._batch_pusher.push(account, [push.work for push in ready])
            pairs = zip(ready, results, strict=True)
            signal = combined_signal(
                [health_signal(push.work, result) for push, result in pairs if isinstance(result, PushResult)]
            )
        except FAULTS as error:  # these rows are at stake, not the worker
            results, signal = [as_fault(error)] * len(ready), NOT_ATTEMPTED
        for push, result in zip(ready, results, strict=True):
            push.result = result
            self._conclude(push)
        return signal

    async def _push_one(self, account: Account, work: Work) -> PushResult:
        if work.takeovers < SUSPECT_AFTER:  # as nearly always
            return await self._pusher.push(account, work)
        async with self._suspects.handling(work.id):
            return await self._pusher.push(account, work)

    def _conclude(self, push: PushContext) -> None:
        if isinstance(push.result, LeaseLost):
            self._give_back(push, "cancelled" if isinstance(push.result, CancelledMeanwhile) else "lease_lost")
        elif not isinstance(push.result, PushResult):
            self._set_aside(push, push.result)
        else:
            try:
                push.decision = self._decide(push.account, push.work, push.result)
                self._outcomes.enqueue(push)
                self._blame.works()
            except FAULTS as error:  # as above
                self._set_aside(push, error)
        self._pusher.sending.discard(push.work.id)

    def _decide(self, account: Account, work: Work, result: PushResult) -> Ended | Postponed:
        self._pusher.pushes.note(work, result.evidence)
        jitter, now = random.random(), self._clock.now()  # noqa: S311 - not a secret
        # Its cancellation may have been asked for meanwhile.
        cancel_by = now + timedelta(seconds=account.deadline_seconds)
        return decide(work, result, now=now, jitter=jitter, cancel_by=cancel_by)

    def _give_back(self, push: PushContext, reason: str) -> None:
        _log.warning("reservation.given_back", request_id=push.work.submission.request_id, reason=reason)
        self._lease.note_unpushed(push.work.id)
        push.release()

    def _set_aside(self, push: PushContext, error: BaseException | None) -> None:
        """Handles an unexpected exception: retries the row later, or ends it if that happens repeatedly to this row and not to
        all."""
        work, came = push.work, came_of(push.result)
        ids = {"request_id": work.submission.request_id, "reservation_id": work.id}
        fault = contained(Where.PUSH, error or RuntimeError("no result"), **ids)
        push.result = fault.error
        deadly = isinstance(error, EndsWorkers)
        if came is None and (deadly or work.id in self._pusher.sending):
            came = Came.AMBIGUOUS
        to_blame = deadly or self._blame.on_units(1)
        if not to_blame:
            self._blame.outage(fault)
        push.decision = after_fault(
            work,
            fault,
            came=came,
            now=self._clock.now(),
            push_seconds=self._push_seconds,
            last=deadly,
            look=not deadly,
            give_up=to_blame,
        )
        self._outcomes.enqueue(push)


def _without_sending(outcome: PushResult | BaseException) -> PushResult | Exception:
    return outcome if isinstance(outcome, PushResult) else as_fault(outcome)

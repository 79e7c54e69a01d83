"""A push, step by step: from its account queue to the outcome recorder.

may it start → push (rules, look-up, create or cancel) → decide → record

Some rows may kill workers in ways that no exception shows, such as exhausted memory or a crash of native code. A row that was taken
over repeatedly is marked in the store before it is pushed, and the mark is cleared once the push is over. A mark of another worker
shows that it died, or lost its lease, in the middle of that push. From then on the row is pushed alone, one such row at a time, so
that others are not suspected with it; after `MAX_DEATHS` it is no longer pushed.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from forwarder.observability.logging import log_context
from forwarder.observability.tracing import trace_id_of
from forwarder.process.clock import Clock
from forwarder.process.containment import FAULTS, Blame, Where, as_fault, contained
from forwarder.reservation.outcome import InDoubt, Outcome
from forwarder.store.submissions.port import Postponed, StoreUnavailable
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.policy import after_fault, decide
from forwarder.worker.outcome.recorder import OutcomeRecorder
from forwarder.worker.push.pusher import Pusher
from forwarder.worker.push.run import (
    NOT_ATTEMPTED,
    CancelledMeanwhile,
    HealthSignal,
    LeaseLost,
    PushContext,
    PushRun,
    after_create,
    combined_signal,
    health_signal,
    is_lease_lost,
    note_attempt,
    sound,
    step_of,
    too_late,
)

if TYPE_CHECKING:
    from forwarder.store.submissions.recorder import Recorder

_log = structlog.get_logger(__name__)

SUSPECT_AFTER: Final = 2
"""Takeovers. Most rows are taken over once at the most, as one of thousands that a worker held."""

MAX_DEATHS: Final = 2

CLEAR_AGAIN_SECONDS: Final = 0.5


class EndsWorkers(Exception):
    """Workers died in the middle of pushes of this row, the last time while it was pushed alone."""


@dataclass(eq=False, repr=False)
class PushPipeline:
    """Runs the pushes that account queues start."""

    pusher: Pusher
    outcomes: OutcomeRecorder
    lease: Lease
    clock: Clock
    recorder: "Recorder"
    push_seconds: float
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _blame: Blame = field(default_factory=lambda: Blame(Where.PUSH), init=False)

    async def run(self, pushes: Sequence[PushContext]) -> HealthSignal:
        """Pushes these rows once, in one request; returns the PMS's health signal. Enqueues each outcome to be recorded, which also
        releases the row. Contains faults of single rows."""
        trace = pushes[0].work.submission.trace
        with nullcontext() if trace is None else log_context(trace_id=trace_id_of(trace)):
            # Also where nothing is sent: an outcome that this database lacks must not get another one.
            if not await self.pusher.sure():
                for push in pushes:
                    self._give_back(push, "store_in_doubt")
                return NOT_ATTEMPTED
            ready = []
            for push in pushes:
                try:
                    if self._may_start(push):
                        ready.append(push)
                except FAULTS as error:  # concerns this row only
                    self._set_aside(push, error)
            if not ready:
                return NOT_ATTEMPTED
            try:
                if len(ready) > 1:
                    await push_together(self.pusher, self.clock, ready)
                elif ready[0].work.takeovers < SUSPECT_AFTER:  # as nearly always
                    await self.pusher.push(ready[0])
                else:
                    await self._push_suspect(ready[0])
                signal = combined_signal([health_signal(push) for push in ready if push.error is None])
            except FAULTS as error:  # these rows are at stake, not the worker
                for push in ready:
                    push.error = as_fault(error)
                signal = NOT_ATTEMPTED
            for push in ready:
                self._conclude(push)
            return signal

    def _may_start(self, push: PushContext) -> bool:
        work = push.work
        if work.possibly_sent and (seconds := self.pusher.seconds_to_wait(push.account, work)) > 0.0:
            now = self.clock.now()
            push.decision = Postponed(work, work.attempts, now, now + timedelta(seconds=seconds), work.evidence)
            self.outcomes.enqueue(push)
            return False
        # The target recorded with the row must be the one that a push would use now.
        if self.pusher.target(push.account) != work.target:
            self._give_back(push, "options_changed")
            return False
        return True

    async def _push_suspect(self, push: PushContext) -> None:
        """Pushes a row under its mark in the store. Raises `EndsWorkers`, and `LeaseLost` if the store is unavailable."""
        work_id = push.work.id
        try:
            deaths = await self.recorder.suspect(self.lease.worker_id, work_id)
        except StoreUnavailable as error:
            raise LeaseLost from error
        try:
            if deaths >= MAX_DEATHS:
                raise EndsWorkers(f"{deaths} workers ended while they pushed it")
            if deaths:
                _log.warning("push.suspected", reservation_id=work_id, deaths=deaths)
            async with self._alone if deaths else nullcontext():
                await self.pusher.push(push)
        finally:
            await self._clear_suspect(work_id)

    async def _clear_suspect(self, work_id: int) -> None:
        """Waits for the store while the lease lasts: a mark that stays counts as a death. Once cancelled, tries only once."""
        while True:
            try:
                return await self.recorder.clear_suspects([work_id])
            except StoreUnavailable as error:
                task = asyncio.current_task()
                if not self.lease.held() or (task is not None and task.cancelling()):
                    _log.warning("push.still_suspected", reservation_id=work_id, error=str(error))
                    return None
            await asyncio.sleep(CLEAR_AGAIN_SECONDS)

    def _conclude(self, push: PushContext) -> None:
        if isinstance(push.error, LeaseLost):
            self._give_back(push, "cancelled" if isinstance(push.error, CancelledMeanwhile) else "lease_lost")
        elif push.error is not None:
            self._set_aside(push, push.error)
        else:
            try:
                self.pusher.pushes.note(push.work, push.evidence)
                push.decision = decide(push, now=self.clock.now(), jitter=random.random())  # noqa: S311 - not a secret
                self.outcomes.enqueue(push)
                self._blame.works()
            except FAULTS as error:  # as above
                self._set_aside(push, error)

    def _give_back(self, push: PushContext, reason: str) -> None:
        _log.warning("reservation.given_back", request_id=push.work.submission.request_id, reason=reason)
        self.lease.note_unpushed(push.work.id)
        push.release()

    def _set_aside(self, push: PushContext, error: BaseException) -> None:
        """After an unexpected exception: retries the row later, or ends it if that happens repeatedly, and not to all rows."""
        request_id = push.work.submission.request_id
        fault = contained(Where.PUSH, error, request_id=request_id, reservation_id=push.work.id)
        push.error = fault.error
        if push.came is None:
            push.outcome = None  # not believed: what matters is whether it may have been sent
        deadly = isinstance(error, EndsWorkers)
        push.sent = push.sent or deadly
        to_blame = deadly or self._blame.on_units(1)
        if not to_blame:
            self._blame.outage(fault)
        now, seconds = self.clock.now(), self.push_seconds
        push.decision = after_fault(
            push, fault, now=now, push_seconds=seconds, last=deadly, look=not deadly, give_up=to_blame
        )
        self.outcomes.enqueue(push)


async def push_together(pusher: Pusher, clock: Clock, pushes: Sequence[PushContext]) -> None:
    """Pushes first tries in one request. Each has its own outcome and attempts, or error."""
    runs: list[PushRun] = []
    for run in await asyncio.gather(*(_prepared(pusher, clock, push) for push in pushes)):
        # The last check of the lease, for all of them: the remaining rows are held under the same one.
        if run is not None and not pusher.may_send(run.push.work):
            run.push.error = LeaseLost()
        elif run is not None and pusher.is_cancelled(run.push.work):
            run.push.error = CancelledMeanwhile()
        elif run is not None:
            runs.append(run)
    if runs:
        began = clock.now(), clock.monotonic()
        for run, outcome in zip(runs, await _create_many(runs), strict=True):
            push = run.push
            try:
                if is_lease_lost(outcome):
                    push.error = LeaseLost()
                    continue
                note_attempt(push, clock, "create", began, outcome)
                push.outcome, push.evidence = after_create(outcome, push.work.evidence, run.facts, clock)
                if push.evidence.open:
                    push.step = step_of(push.work, push.evidence, run.facts, clock.now(), 0.0)
            except Exception as error:  # noqa: BLE001 - an invalid outcome concerns this row only
                push.error = error
    for push in pushes:
        if push.work.submission.card is not None:
            await pusher.note_use_of_card(push)


async def _prepared(pusher: Pusher, clock: Clock, push: PushContext) -> PushRun | None:
    """Ready to be sent; None if the push has its outcome or error before."""
    try:
        run = await pusher.prepare(push)
        if run is not None and clock.now() >= push.work.deadline_at:
            push.outcome = too_late()
            return None
        if run is not None:
            await pusher.before_sending(push, run.facts.target)
    except FAULTS as error:  # concerns this row only
        push.error = as_fault(error)
        return None
    return run


async def _create_many(runs: Sequence[PushRun]) -> Sequence[Outcome]:
    try:
        outcomes = await runs[0].pms.create_many([run.booking for run in runs])
    except FAULTS as error:  # an adapter's bug costs these rows, not all; what it sent is unknown
        fault = contained(Where.ADAPTER, error, action="create_many", count=len(runs))
        return [InDoubt("adapter_failed", str(fault))] * len(runs)
    if len(outcomes) != len(runs):
        _log.error("adapter.failed", action="create_many", count=len(runs), outcomes=len(outcomes))
        return [InDoubt("adapter_failed", "It did not say what became of each.")] * len(runs)
    return [sound(each, InDoubt) for each in outcomes]

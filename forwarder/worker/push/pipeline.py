"""A push, step by step: from its account queue to the outcome recorder.

may it start → push (rules, look-up, create or cancel) → decide → record
"""

import random
from collections.abc import Awaitable, Sequence
from datetime import timedelta

import structlog

from forwarder.observability.logging import log_context
from forwarder.observability.tracing.context import trace_id_of
from forwarder.process.clock import Clock
from forwarder.process.containment import FAULTS, Blame, Where, as_fault, contained
from forwarder.reservation.evidence import Came
from forwarder.store.submissions.port import Ended, Postponed, Work
from forwarder.tenancy.port import Account
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.contained import after_fault, came_of
from forwarder.worker.outcome.policy import decide
from forwarder.worker.outcome.recorder import OutcomeRecorder
from forwarder.worker.push.batch_push import BatchPusher
from forwarder.worker.push.pusher import Pusher
from forwarder.worker.push.suspects import SUSPECT_AFTER, EndsWorkers, Suspects
from forwarder.worker.push_context import (
    NOT_ATTEMPTED,
    CancelledMeanwhile,
    HealthSignal,
    LeaseLost,
    PushContext,
    PushResult,
    combined_signal,
    health_signal,
)

_log = structlog.get_logger(__name__)


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

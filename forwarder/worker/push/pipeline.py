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
from forwarder.store.submissions.work import Attempt, Ended, Postponed, Work
from forwarder.tenancy.port import Account
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.contained import after_fault, may_be_made
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

_MAX_REMEMBERED = 100_000

_PushId = tuple[int, int]
"""Which push it is that may have been made: how often the row was taken over, and the number of the last that is recorded so."""


class PushPipeline:
    """What an account queue does with each push that starts."""

    def __init__(
        self,
        pusher: Pusher,
        outcomes: OutcomeRecorder,
        lease: Lease,
        clock: Clock,
        *,
        quiet_seconds: float,
        suspects: Suspects,
    ) -> None:
        self._pusher = pusher
        self._batch_pusher = BatchPusher(pusher, clock)
        self._outcomes = outcomes
        self._lease = lease
        self._clock = clock
        self._quiet_seconds = quiet_seconds
        self._quiet_periods = QuietPeriods(clock, quiet_seconds)
        self._suspects = suspects
        self._blame = Blame(Where.PUSH)

    def run(self, pushes: Sequence[PushContext]) -> Awaitable[HealthSignal]:
        """Push these rows once, in one request; what that showed of the PMS. What each came to is recorded from then on, and each
        is released when it is. Raises nothing that one row could be the cause of."""
        trace = pushes[0].work.submission.trace
        return self._run(pushes) if trace is None else self._run_traced(pushes, trace)

    async def _run_traced(self, pushes: Sequence[PushContext], trace: str) -> HealthSignal:
        with log_context(trace_id=trace_id_of(trace)):
            return await self._run(pushes)

    def _may_start(self, push: PushContext) -> bool:
        work = push.work
        if work.possibly_sent and (quiet_seconds := self._quiet_periods.seconds_left(work)) > 0.0:
            push.decision = self._leave_alone(work, quiet_seconds)
            self._outcomes.enqueue(push)
            return False
        # What is recorded of the row must be true of what a push would carry now.
        if self._pusher.safeguards(push.account) != work.safeguards:
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
            except FAULTS as error:  # this row is at stake, not the others
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
        self._quiet_periods.note(work, result)
        jitter, now = random.random(), self._clock.now()  # noqa: S311 - not a secret
        # Its cancellation may have been asked for meanwhile.
        cancel_by = now + timedelta(seconds=account.deadline_seconds)
        return decide(work, result, now=now, quiet_seconds=self._quiet_seconds, jitter=jitter, cancel_by=cancel_by)

    def _give_back(self, push: PushContext, reason: str) -> None:
        _log.warning("reservation.given_back", request_id=push.work.submission.request_id, reason=reason)
        self._lease.note_unpushed(push.work.id)
        push.release()

    def _leave_alone(self, work: Work, seconds: float) -> Postponed:
        now = self._clock.now()
        due = now + timedelta(seconds=seconds)
        return Postponed(
            work.id,
            work.attempts,
            now,
            due,
            possibly_sent=True,
            revision=work.revision,
            sent_safeguards=work.sent_safeguards,
        )

    def _set_aside(self, push: PushContext, error: BaseException | None) -> None:
        """An exception that nobody expected: the row is tried again later, and ends where that happens again and again to it and
        not to all."""
        work, result = push.work, push.result
        ids = {"request_id": work.submission.request_id, "reservation_id": work.id}
        fault = contained(Where.PUSH, error or RuntimeError("no result"), **ids)
        sent = work.id in self._pusher.sending or (isinstance(result, PushResult) and may_be_made(result.outcome))
        push.result = fault.error
        deadly = isinstance(error, EndsWorkers)
        to_blame = deadly or self._blame.on_units(1)
        if not to_blame:
            self._blame.outage(fault)
        push.decision = after_fault(
            work,
            fault,
            sent=sent or deadly,
            now=self._clock.now(),
            quiet_seconds=self._quiet_seconds,
            last=deadly,
            look=not deadly,
            give_up=to_blame,
        )
        self._outcomes.enqueue(push)


class QuietPeriods:
    """Leaves pushes that may have been made alone for `seconds`; one that is new to this worker, from when it first sees it.

    A row is due by a wall clock, perhaps another host's. Where that clock jumps, or two differ, the PMS would be searched before
    the push has come to rest, and what it has not made yet would be pushed again. So whoever looks has also waited by its own
    monotonic clock.

    A worker that died over a push recorded nothing of it. Its last byte was sent before its lease ended, and so before the row was
    taken over: whoever sees the row for the first time after that waits as long as for a push whose end it saw itself.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._since: dict[int, tuple[_PushId, float]] = {}

    def seconds_left(self, work: Work) -> float:
        """For how long `work` must be neither looked for nor pushed; 0.0 where that is over, or nothing may have been made."""
        if not work.possibly_sent:
            return 0.0
        last = work.takeovers, _last_push(work.attempts)
        push, since = self._since.get(work.id, (None, 0.0))
        if push != last:
            since = self._begin(work, last)
        return max(since + self._seconds - self._clock.monotonic(), 0.0)

    def note(self, work: Work, result: PushResult) -> None:
        """What a push has come to just now."""
        if not result.possibly_sent:
            self._since.pop(work.id, None)
            return
        number = _last_push(result.attempts)
        if number != _last_push(work.attempts):
            self._begin(work, (work.takeovers, number))

    def _begin(self, work: Work, push: _PushId) -> float:
        self._since.pop(work.id, None)
        if len(self._since) >= _MAX_REMEMBERED:
            # A row that is forgotten only waits once more.
            del self._since[next(iter(self._since))]
        now = self._clock.monotonic()
        self._since[work.id] = push, now
        return now


def _last_push(attempts: Sequence[Attempt]) -> int:
    in_doubt = (a.number for a in reversed(attempts) if a.action == "create" and a.outcome == "in_doubt")
    return next(in_doubt, 0)

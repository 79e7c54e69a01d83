"""From what a push came to, to what is recorded: how it ended, or another try. Pure.

    Confirmed                        → CONFIRMED
    Rejected                         → REJECTED
    Deferred                         → tried again           no time left → FAILED; IN_DOUBT where it is doubtful
    InDoubt, the PMS can be asked    → asked later           no time left → IN_DOUBT, looked for on a schedule
    InDoubt, the PMS cannot          → IN_DOUBT              an operator settles it

What is IN_DOUBT already is only looked for, before its deadline as after it: found → CONFIRMED, not there → FAILED, not known →
looked for again.
What is to be cancelled and was surely not made is CANCELLED. What was made of it is cancelled by `cancellation`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from forwarder.process.clock import iso
from forwarder.reservation.outcome import Cancelled, Confirmed, Deferred, InDoubt, Rejected, Status
from forwarder.reservation.problem import Problem
from forwarder.reservation.problems import endings
from forwarder.reservation.record import Standing, compose_record
from forwarder.store.submissions.work import Attempt, Final, Postponed, Work
from forwarder.worker.outcome.cancellation_policy import cancellation_of, decide_cancellation
from forwarder.worker.outcome.result_event import event_of
from forwarder.worker.outcome.retry import next_look, next_try
from forwarder.worker.push.result import PushResult


def decide(
    work: Work,
    pushed: PushResult,
    *,
    now: datetime,
    settle_seconds: float,
    luck: float,
    cancel_by: datetime | None = None,
) -> Final | Postponed:
    """What to record of `pushed`. `settle_seconds`: how long an ambiguous push is left alone; `luck`: jitter in [0, 1);
    `cancel_by`: as in `Final`, of what is confirmed now."""
    if work.made is not None:
        return decide_cancellation(work, work.made, pushed, now=now, luck=luck)
    if isinstance(pushed.outcome, Confirmed):
        return ended(work, pushed.attempts, Status.CONFIRMED, now=now, confirmed=pushed.outcome, cancel_by=cancel_by)
    judge = _Judge(work, pushed, now, settle_seconds, luck)
    match pushed.outcome:
        case Rejected(problem):
            return ended(work, pushed.attempts, Status.REJECTED, now=now, problem=problem)
        case Cancelled():
            return judge.never_made()
        case Deferred() | InDoubt() if work.status is Status.IN_DOUBT and pushed.doubtful:
            return judge.look_again()
        case Deferred(reason, detail) if work.status is Status.IN_DOUBT:
            return judge.give_up(reason, detail)
        case Deferred(reason, detail, wait):
            return judge.try_again(wait) or judge.give_up(reason, detail)
        case InDoubt(reason, detail):
            return judge.ask_later() or judge.park(reason, detail)
        case _:
            assert_never(pushed.outcome)


@dataclass(frozen=True, slots=True)
class _Judge:
    work: Work
    pushed: PushResult
    now: datetime
    settle_seconds: float
    luck: float

    def try_again(self, wait: float | None) -> Postponed | None:
        due = next_try(
            self.work.tries + 1, now=self.now, deadline=self.work.deadline_at, at_least_seconds=wait, luck=self.luck
        )
        return None if due is None else self._postponed(due)

    def ask_later(self) -> Postponed | None:
        """Once the ambiguous push has come to rest, if that is in time to push again what was not made."""
        due = self._look_at() if self.pushed.settleable else None
        return None if due is None or due >= self.work.deadline_at else self._postponed(due)

    def look_again(self) -> Postponed:
        return self._postponed(self._look_at() if self.pushed.findable else None)

    def give_up(self, reason: str, detail: str) -> Final:
        if self.pushed.doubtful:
            return self.park(reason, detail)
        if self.work.cancel is not None:
            return self.never_made()
        problem = endings.DELIVERY_FAILED.problem(
            f"The PMS could not be made to take it before the deadline. Last: {reason}: {detail}",
        )
        return ended(self.work, self.pushed.attempts, Status.FAILED, now=self.now, problem=problem)

    def never_made(self) -> Final:
        """Cancelled before anything was made."""
        return ended(self.work, self.pushed.attempts, Status.CANCELLED, now=self.now)

    def park(self, reason: str, detail: str) -> Final:
        problem = endings.IN_DOUBT.problem(
            f"The PMS did not say. It is not sent again until that is settled. Last: {reason}: {detail}",
        )
        final = ended(self.work, self.pushed.attempts, Status.IN_DOUBT, now=self.now, problem=problem)
        return replace(final, look_at=self._look_at() if self.pushed.findable else None, doubt=self.pushed.doubt)

    def _look_at(self) -> datetime | None:
        return next_look(
            self.work.tries + 1,
            now=self.now,
            deadline=self.work.deadline_at,
            at_least_seconds=self.settle_seconds,
            luck=self.luck,
        )

    def _postponed(self, due: datetime | None) -> Postponed:
        return Postponed(self.work.id, self.pushed.attempts, self.now, due, self.pushed.doubtful, self.pushed.doubt)


def ended(
    work: Work,
    attempts: Sequence[Attempt],
    status: Status,
    *,
    now: datetime,
    confirmed: Confirmed | None = None,
    problem: Problem | None = None,
    cancel_by: datetime | None = None,
) -> Final:
    """How `work` ended: its record and its event. Of a confirmed one `confirmed` is what the PMS gave, of any other `problem` says
    why."""
    moment = iso(now)
    described = None if problem is None else replace(problem, request_id=work.submission.request_id).as_json()
    standing = Standing(
        work.id,
        work.submission.request_id,
        status,
        work.created_at,
        moment,
        cancelled_at=moment if status is Status.CANCELLED else "",
        pms_reservation_id=None if confirmed is None else confirmed.pms_reservation_id,
        answer=None if confirmed is None else confirmed.record,
        problem=described,
    )
    record = compose_record(work.submission.reservation, standing)
    cancellation = cancellation_of(work, status) if status is Status.CANCELLED else None
    event = event_of(work, status, moment, record, cancellation)
    return Final(
        work.id,
        status,
        attempts,
        now,
        event,
        standing.pms_reservation_id,
        described,
        cancelled_at=now if status is Status.CANCELLED else None,
        cancel_by=cancel_by,
    )

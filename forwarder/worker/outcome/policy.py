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

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from forwarder.operations.completion import completed
from forwarder.reservation.outcome import Cancelled, Confirmed, Deferred, InDoubt, Rejected, Status
from forwarder.reservation.problems import endings
from forwarder.store.submissions.work import Ended, Postponed, Work
from forwarder.worker.outcome.cancellation_policy import decide_cancellation
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
) -> Ended | Postponed:
    """What to record of `pushed`. `settle_seconds`: how long an ambiguous push is left alone; `luck`: jitter in [0, 1);
    `cancel_by`: as in `Final`, of what is confirmed now."""
    if work.pms_reservation is not None:
        return decide_cancellation(work, work.pms_reservation, pushed, now=now, luck=luck)
    if isinstance(pushed.outcome, Confirmed):
        return completed(
            work, pushed.attempts, Status.CONFIRMED, now=now, confirmed=pushed.outcome, cancel_by=cancel_by
        )
    judge = _Judge(work, pushed, now, settle_seconds, luck)
    match pushed.outcome:
        case Rejected(problem):
            return completed(work, pushed.attempts, Status.REJECTED, now=now, problem=problem)
        case Cancelled():
            return judge.never_made()
        case Deferred() | InDoubt() if work.status is Status.IN_DOUBT and pushed.possibly_sent:
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

    def give_up(self, reason: str, detail: str) -> Ended:
        if self.pushed.possibly_sent:
            return self.park(reason, detail)
        if self.work.cancellation is not None:
            return self.never_made()
        problem = endings.DELIVERY_FAILED.problem(
            f"The PMS could not be made to take it before the deadline. Last: {reason}: {detail}",
        )
        return completed(self.work, self.pushed.attempts, Status.FAILED, now=self.now, problem=problem)

    def never_made(self) -> Ended:
        """Cancelled before anything was made."""
        return completed(self.work, self.pushed.attempts, Status.CANCELLED, now=self.now)

    def park(self, reason: str, detail: str) -> Ended:
        problem = endings.IN_DOUBT.problem(
            f"The PMS did not say. It is not sent again until that is settled. Last: {reason}: {detail}",
        )
        final = completed(self.work, self.pushed.attempts, Status.IN_DOUBT, now=self.now, problem=problem)
        return replace(
            final,
            look_at=self._look_at() if self.pushed.findable else None,
            sent_safeguards=self.pushed.sent_safeguards,
        )

    def _look_at(self) -> datetime | None:
        return next_look(
            self.work.tries + 1,
            now=self.now,
            deadline=self.work.deadline_at,
            at_least_seconds=self.settle_seconds,
            luck=self.luck,
        )

    def _postponed(self, due: datetime | None) -> Postponed:
        return Postponed(
            self.work.id, self.pushed.attempts, self.now, due, self.pushed.possibly_sent, self.pushed.sent_safeguards
        )

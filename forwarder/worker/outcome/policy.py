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
from forwarder.worker.push_context import PushResult


def decide(
    work: Work,
    result: PushResult,
    *,
    now: datetime,
    quiet_seconds: float,
    jitter: float,
    cancel_by: datetime | None = None,
) -> Ended | Postponed:
    """What to record of `result`. `quiet_seconds`: how long an ambiguous push is left alone; `jitter` is in [0, 1);
    `cancel_by`: as in `Final`, of what is confirmed now."""
    if work.pms_reservation is not None:
        return decide_cancellation(work, work.pms_reservation, result, now=now, jitter=jitter)
    if isinstance(result.outcome, Confirmed):
        return completed(
            work, result.attempts, Status.CONFIRMED, now=now, confirmed=result.outcome, cancel_by=cancel_by
        )
    decision = _Decision(work, result, now, quiet_seconds, jitter)
    match result.outcome:
        case Rejected(problem):
            return completed(work, result.attempts, Status.REJECTED, now=now, problem=problem)
        case Cancelled():
            return decision.never_made()
        case Deferred() | InDoubt() if work.status is Status.IN_DOUBT and result.possibly_sent:
            return decision.look_again()
        case Deferred(reason, detail) if work.status is Status.IN_DOUBT:
            return decision.give_up(reason, detail)
        case Deferred(reason, detail, wait):
            return decision.try_again(wait) or decision.give_up(reason, detail)
        case InDoubt(reason, detail):
            return decision.ask_later() or decision.park(reason, detail)
        case _:
            assert_never(result.outcome)


@dataclass(frozen=True, slots=True)
class _Decision:
    work: Work
    result: PushResult
    now: datetime
    quiet_seconds: float
    jitter: float

    def try_again(self, wait: float | None) -> Postponed | None:
        due = next_try(
            self.work.tries + 1, now=self.now, deadline=self.work.deadline_at, min_seconds=wait, jitter=self.jitter
        )
        return None if due is None else self._postponed(due)

    def ask_later(self) -> Postponed | None:
        """Once the ambiguous push has come to rest, if that is in time to push again what was not made."""
        due = self._look_at() if self.result.checkable else None
        return None if due is None or due >= self.work.deadline_at else self._postponed(due)

    def look_again(self) -> Postponed:
        return self._postponed(self._look_at() if self.result.findable else None)

    def give_up(self, reason: str, detail: str) -> Ended:
        if self.result.possibly_sent:
            return self.park(reason, detail)
        if self.work.cancellation is not None:
            return self.never_made()
        problem = endings.DELIVERY_FAILED.problem(
            f"The PMS could not be made to take it before the deadline. Last: {reason}: {detail}",
        )
        return completed(self.work, self.result.attempts, Status.FAILED, now=self.now, problem=problem)

    def never_made(self) -> Ended:
        """Cancelled before anything was made."""
        return completed(self.work, self.result.attempts, Status.CANCELLED, now=self.now)

    def park(self, reason: str, detail: str) -> Ended:
        problem = endings.IN_DOUBT.problem(
            f"The PMS did not say. It is not sent again until that is settled. Last: {reason}: {detail}",
        )
        final = completed(self.work, self.result.attempts, Status.IN_DOUBT, now=self.now, problem=problem)
        return replace(
            final,
            look_at=self._look_at() if self.result.findable else None,
            sent_safeguards=self.result.sent_safeguards,
        )

    def _look_at(self) -> datetime | None:
        return next_look(
            self.work.tries + 1,
            now=self.now,
            deadline=self.work.deadline_at,
            min_seconds=self.quiet_seconds,
            jitter=self.jitter,
        )

    def _postponed(self, due: datetime | None) -> Postponed:
        return Postponed(
            self.work.id, self.result.attempts, self.now, due, self.result.possibly_sent, self.result.sent_safeguards
        )

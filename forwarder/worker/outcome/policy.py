"""Decides from a push's result what to record: the submission's outcome, or when to retry. Pure.

    Confirmed                        → CONFIRMED
    Rejected                         → REJECTED
    Deferred, nothing open           → retried               no time left → FAILED
    a push is open: LookUp, SendAgain → later                no time left → IN_DOUBT, looked up on a schedule
    a push is open: Park             → IN_DOUBT              looked up on a schedule if possible; else left to an operator

`reservation.evidence.next_step` decides the next step for open pushes. A submission that is IN_DOUBT already is only looked up,
before and after its deadline: found → CONFIRMED, not made → FAILED, unknown → looked up again.
A cancelled submission that was surely not made is CANCELLED; `decide_cancellation` decides about one that was made.

`after_fault` decides about a row whose processing raised an unexpected exception:

    surely not sent    retried after a pause; after `MAX_TRIES` faults in a row FAILED, with a dead letter of class internal_error
    possibly sent      looked up after a pause; after `MAX_TRIES` faults in a row IN_DOUBT
    a cancellation     retried after a pause; after `MAX_TRIES` faults in a row it stays CONFIRMED, with the problem

While the pushes of all rows end like this, the rows are not to blame, and none is given up.
"""

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, assert_never

from forwarder.pms.port import REFUSED_IN_WORDS
from forwarder.process.clock import iso
from forwarder.process.loops import Fault
from forwarder.reservation import problems as catalogue
from forwarder.reservation.evidence import Came, LookUp, Park, SendAgain, read_target
from forwarder.reservation.outcome import (
    INTERNAL_ERROR,
    Cancelled,
    Confirmed,
    Deferred,
    InDoubt,
    Outcome,
    Rejected,
    Status,
    cancellation_failed,
)
from forwarder.reservation.problems import Problem
from forwarder.store.submissions.port import (
    Ended,
    PmsReservation,
    Postponed,
    cancellation_of,
    completed,
    described_problem,
    event_of,
    with_attempt,
)
from forwarder.worker.push.run import PushContext

MAX_PAUSE_SECONDS: Final = 900.0
MAX_LOOK_PAUSE_SECONDS: Final = 3600.0
LOOKED_FOR: Final = timedelta(days=7)
"""How long after its deadline a submission in doubt is looked up automatically. After that it is left to an operator."""
LAST_CALL: Final = timedelta(seconds=5)  # how long before the deadline the last attempt is made
MAX_TRIES: Final = 3  # a fault may pass, as one of a race does: so often a row is tried before it is set aside
_PAUSES: Final = (timedelta(minutes=1), timedelta(minutes=5))
CARD_KEY_MISSING: Final = "card_key_missing"  # the reason of a push by a worker that lacks the card's secret
_NEVER_BETTER: Final = {
    "card_gone": catalogue.CARD_GONE,
    "card_code_gone": catalogue.CARD_GONE,
    "card_not_bound": catalogue.CARD_NOT_BOUND,
    INTERNAL_ERROR: catalogue.DELIVERY_FAILED,
}
"""Reasons that are not retried, and the problems that they end with."""
SAME_REFUSALS: Final = 3
"""How often in a row a PMS must refuse a submission in the same words, unknown to its adapter, until that counts as its answer."""


def decide(push: PushContext, *, now: datetime, jitter: float) -> Ended | Postponed:
    """The decision to record for the outcome of `push`. `jitter` is in [0, 1)."""
    work, outcome = push.work, push.outcome
    if work.pms_reservation is not None:
        return decide_cancellation(push, work.pms_reservation, now=now, jitter=jitter)
    decision = _Decision(push, now, jitter)
    match outcome:
        case Confirmed():
            # Its cancellation may have been asked for meanwhile.
            by, status, known = now + timedelta(seconds=push.account.deadline_seconds), Status.CONFIRMED, push.evidence
            return completed(work, push.attempts, status, now=now, confirmed=outcome, cancel_by=by, evidence=known)
        case Rejected(problem):
            return decision.ended(Status.REJECTED, problem)
        case Cancelled():
            return decision.ended(Status.CANCELLED)
        case Deferred() | InDoubt() if push.possibly_sent and work.status is Status.IN_DOUBT:
            return decision.postponed(decision.look_at())
        case Deferred(reason, detail) | InDoubt(reason, detail) if push.possibly_sent:
            return decision.ask_later() or decision.park(reason, detail)
        case Deferred(reason, detail) if work.status is Status.IN_DOUBT or reason in _NEVER_BETTER:
            return decision.give_up(reason, detail)
        case Deferred(_, detail) if _came_back_the_same(push, "create"):
            refused = catalogue.PMS_REFUSED.problem(detail, work.submission.request_id)
            return decision.ended(Status.REJECTED, refused)
        case Deferred(reason, detail, wait):
            # Without a secret: short, because that does not involve the PMS, and a worker with it may start at any time.
            longest = 60.0 if reason == CARD_KEY_MISSING else MAX_PAUSE_SECONDS
            by = work.deadline_at
            due = next_try(work.tries + 1, now=now, deadline=by, min_seconds=wait, jitter=jitter, max_seconds=longest)
            return decision.give_up(reason, detail) if due is None else decision.postponed(due)
        case InDoubt(reason, detail):
            return decision.park(reason, detail)
        case None:
            raise TypeError("the push has no outcome")
        case _:
            assert_never(outcome)


def _came_back_the_same(push: PushContext, action: str) -> bool:
    """Whether the PMS refused the last attempts of `action` in the same words. Words with digits, such as times, may differ."""
    last = [one for one in push.attempts if one.action == action][-SAME_REFUSALS:]
    same = {(one.reason, re.sub(r"[^\s\d]*\d\S*", "", one.detail or "")) for one in last}
    return len(last) == SAME_REFUSALS and len(same) == 1 and last[0].reason == REFUSED_IN_WORDS


@dataclass(frozen=True, slots=True)
class _Decision:
    push: PushContext
    now: datetime
    jitter: float

    def ask_later(self) -> Postponed | None:
        """Postponed until the next step is due, if that leaves time to create it again; else None."""
        due = self.look_at() if isinstance(self.push.step, LookUp | SendAgain) else None
        return None if due is None or due >= self.push.work.deadline_at else self.postponed(due)

    def give_up(self, reason: str, detail: str) -> Ended:
        if self.push.work.cancellation is not None:
            return self.ended(Status.CANCELLED)
        said = f"The PMS could not be made to take it before the deadline. Last: {reason}: {detail}"
        known = _NEVER_BETTER.get(reason)
        return self.ended(Status.FAILED, known.problem(detail) if known else catalogue.DELIVERY_FAILED.problem(said))

    def park(self, reason: str, detail: str) -> Ended:
        if isinstance(self.push.step, Park):
            reason, detail = self.push.step.reason, self.push.step.detail
        known = " ".join(self.push.evidence.words)
        said = f"It may have been made, and is not sent again until that is settled. {known} Last: {reason}: {detail}"
        return replace(self.ended(Status.IN_DOUBT, catalogue.IN_DOUBT.problem(said)), look_at=self.look_at())

    def ended(self, status: Status, problem: Problem | None = None) -> Ended:
        work, evidence = self.push.work, self.push.evidence
        return completed(work, self.push.attempts, status, now=self.now, problem=problem, evidence=evidence)

    def look_at(self) -> datetime | None:
        """When the next step is due; None if only an operator can help."""
        step = self.push.step.look if isinstance(self.push.step, Park) else self.push.step
        if step is None and self.push.step is not None:
            return None
        work, asked = self.push.work, getattr(self.push.outcome, "retry_after_seconds", None) or 0.0
        least = max(asked, step.seconds if isinstance(step, LookUp | SendAgain) else 0.0)
        return next_look(work.tries + 1, now=self.now, deadline=work.deadline_at, min_seconds=least, jitter=self.jitter)

    def postponed(self, due: datetime | None) -> Postponed:
        return Postponed(self.push.work, self.push.attempts, self.now, due, self.push.evidence)


def decide_cancellation(push: PushContext, made: PmsReservation, *, now: datetime, jitter: float) -> Ended | Postponed:
    """The decision to record for an attempt to cancel `made`, the push's reservation. `jitter` is in [0, 1).

        Cancelled    → CANCELLED
        Rejected     → stays CONFIRMED, with the PMS's refusal
        Deferred     → retried           no time left, or no use → stays CONFIRMED, with the problem

    A cancellation can be repeated any number of times, so doubt about one only means a delay."""
    work, request_id = push.work, push.work.submission.request_id
    match push.outcome:
        case Cancelled():
            moment, status = iso(now), Status.CANCELLED
            record = {**made.record, "updatedAt": moment, "cancelledAt": moment, "status": status.value}
            event = event_of(work, status, moment, record, cancellation_of(work, status))
            pms_id, known = made.pms_reservation_id, push.evidence
            return Ended(work.id, status, push.attempts, now, event, pms_id, None, cancelled_at=now, evidence=known)
        case Rejected(problem):
            return _kept(push, made, now, problem)
        case Deferred(_, detail) if _came_back_the_same(push, "cancel"):
            return _kept(push, made, now, catalogue.CANCELLATION_REFUSED.problem(detail, request_id))
        case Deferred(reason, detail, wait):
            due = next_try(work.tries + 1, now=now, deadline=work.deadline_at, min_seconds=wait, jitter=jitter)
            if due is not None and reason not in _NEVER_BETTER:
                return Postponed(work, push.attempts, now, due, push.evidence)
            last = push.attempts[-1] if push.attempts else None
            if last is not None and last.action in ("cancel", "prepare") and last.reason is not None:
                # The deadline passed between two attempts: the last failure is the reason.
                reason, detail = last.reason, last.detail or detail
            return _kept(push, made, now, cancellation_failed(request_id, reason, detail))
        case other:
            raise TypeError(f"no outcome of a cancellation: {type(other).__name__}")


def _kept(push: PushContext, made: PmsReservation, now: datetime, problem: Problem) -> Ended:
    work, status, described = push.work, Status.CONFIRMED, described_problem(problem)
    event = event_of(work, status, iso(now), made.record, cancellation_of(work, status, described))
    ended = Ended(work.id, status, push.attempts, now, event, made.pms_reservation_id, None, evidence=push.evidence)
    return replace(ended, cancel_problem=described)


def next_try(
    tried: int,
    *,
    now: datetime,
    deadline: datetime,
    min_seconds: float | None,
    jitter: float,
    max_seconds: float = MAX_PAUSE_SECONDS,
) -> datetime | None:
    """When to retry after `tried` attempts, or None if that would be past the deadline.

    Exponential backoff with full jitter (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015): the delay is
    drawn evenly between nothing and a ceiling that doubles with each try, up to `max_seconds`. `min_seconds` is what the PMS asked
    for (`Retry-After`). Never in less than a second: the push itself made the first quick retries."""
    due = now + _pause(tried, max_seconds, min_seconds, jitter)
    if due < deadline:
        return due
    # A last attempt, if there is time for it: a long Retry-After must not waste the remaining time.
    last = deadline - LAST_CALL
    return last if last > now + timedelta(seconds=1) else None


def next_look(
    tried: int, *, now: datetime, deadline: datetime, min_seconds: float | None, jitter: float
) -> datetime | None:
    """When to look the submission up again; None if that would be more than `LOOKED_FOR` past its deadline. `min_seconds` is how
    long an ambiguous push may take to settle: an earlier look-up would prove nothing."""
    due = now + _pause(tried, MAX_LOOK_PAUSE_SECONDS, min_seconds, jitter)
    return due if due < deadline + LOOKED_FOR else None


def _pause(tried: int, max_seconds: float, min_seconds: float | None, jitter: float) -> timedelta:
    ceiling = min(max_seconds, 2.0 * 2.0 ** min(max(tried - 1, 0), 16))
    return timedelta(seconds=max(1.0, jitter * ceiling) + (min_seconds or 0.0))


def after_fault(
    push: PushContext,
    fault: Fault,
    *,
    now: datetime,
    push_seconds: float,
    last: bool = False,
    look: bool = True,
    give_up: bool = True,
) -> Ended | Postponed:
    """The decision to record for `push` after `fault`. `last`: do not retry; `look`: whether it may be looked up after that.
    `give_up`: False if the row is not to blame: then it is retried until its deadline, even if `last`."""
    work, came = push.work, push.came
    possibly_sent = work.pms_reservation is None and (came is not None or work.possibly_sent)
    outcome: Outcome = Deferred(INTERNAL_ERROR, str(fault))
    action, evidence = "prepare" if work.pms_reservation is None else "cancel", work.evidence
    if possibly_sent:
        action, outcome = "find", InDoubt(INTERNAL_ERROR, str(fault), made=came is Came.POSITIVE)
        if came is not None:
            action, evidence = "create", evidence.after(outcome, read_target(work.target or ""), iso(now))
    attempts = with_attempt(work.attempts, action, iso(now), 0.0, outcome)
    faults = sum(1 for _ in takewhile(lambda each: each.reason == INTERNAL_ERROR, reversed(attempts)))
    if (faults < MAX_TRIES and not last) or not give_up:
        pause = max(_PAUSES[min(faults, len(_PAUSES)) - 1], timedelta(seconds=push_seconds if possibly_sent else 0.0))
        return Postponed(work, attempts, now, now + pause, evidence)
    findable = look and all(each.to.reference for each in evidence.open)
    step = Park(INTERNAL_ERROR, str(fault), LookUp(push_seconds) if findable else None) if possibly_sent else None
    ended = PushContext(push.account, work, outcome=outcome, attempts=attempts, evidence=evidence, step=step)
    return decide(ended, now=now, jitter=0.0)

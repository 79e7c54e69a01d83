"""From what a cancellation came to, to what is recorded: done, refused, or another try. Pure.

    Cancelled    → CANCELLED
    Rejected     → stays CONFIRMED, with the PMS's no
    Deferred     → tried again       no time left → stays CONFIRMED, with the problem

It may be asked for any number of times, so that a doubt about one is no more than a delay.
"""

from datetime import datetime

from forwarder.operations.completion import cancellation_of, event_of
from forwarder.process.clock import iso
from forwarder.reservation.cancellation import cancellation_failed
from forwarder.reservation.outcome import Cancelled, Deferred, Rejected, Status
from forwarder.reservation.problem import Problem
from forwarder.store.submissions.work import Ended, PmsReservation, Postponed, Work
from forwarder.worker.outcome.retry import next_try
from forwarder.worker.push_context import PushResult


def decide_cancellation(
    work: Work, made: PmsReservation, result: PushResult, *, now: datetime, jitter: float
) -> Ended | Postponed:
    """What to record of the try to cancel what was `made` of `work`. `jitter` is in [0, 1)."""
    request_id = work.submission.request_id
    match result.outcome:
        case Cancelled():
            return _cancelled(work, made, result, now)
        case Rejected(problem):
            return _kept(work, made, result, now, problem)
        case Deferred(reason, detail, wait):
            due = next_try(work.tries + 1, now=now, deadline=work.deadline_at, min_seconds=wait, jitter=jitter)
            if due is not None:
                return Postponed(work.id, result.attempts, now, due, possibly_sent=False)
            return _kept(work, made, result, now, cancellation_failed(request_id, *_last(result, reason, detail)))
        case other:
            raise TypeError(f"no outcome of a cancellation: {type(other).__name__}")


def _cancelled(work: Work, made: PmsReservation, result: PushResult, now: datetime) -> Ended:
    moment, status = iso(now), Status.CANCELLED
    record = {**made.record, "updatedAt": moment, "cancelledAt": moment, "status": status.value}
    event = event_of(work, status, moment, record, cancellation_of(work, status))
    return Ended(work.id, status, result.attempts, now, event, made.pms_reservation_id, None, cancelled_at=now)


def _kept(work: Work, made: PmsReservation, result: PushResult, now: datetime, problem: Problem) -> Ended:
    status, described = Status.CONFIRMED, problem.as_json()
    event = event_of(work, status, iso(now), made.record, cancellation_of(work, status, described))
    return Ended(
        work.id,
        status,
        result.attempts,
        now,
        event,
        made.pms_reservation_id,
        None,
        cancel_problem=described,
    )


def _last(result: PushResult, reason: str, detail: str) -> tuple[str, str]:
    """What went wrong last, where the deadline came between two tries."""
    last = result.attempts[-1] if result.attempts else None
    if last is None or last.action != "cancel" or last.reason is None:
        return reason, detail
    return last.reason, last.detail or detail

"""Decides what to record for a row whose processing raised an unexpected exception. Pure.

    surely not sent    retried after a pause; after `MAX_TRIES` faults in a row FAILED, with a dead letter of class internal_error
    possibly sent      looked up after a pause; after `MAX_TRIES` faults in a row IN_DOUBT

    a cancellation     retried after a pause; after `MAX_TRIES` faults in a row it stays CONFIRMED, with the problem

While the pushes of all rows end like this, the rows are not to blame, and none is given up.
"""

from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from forwarder.process.clock import iso
from forwarder.process.containment import Fault
from forwarder.reservation.evidence import Came, LookUp, Park, read_target
from forwarder.reservation.failures import INTERNAL_ERROR
from forwarder.reservation.outcome import CancelOutcome, Confirmed, Deferred, InDoubt, Outcome
from forwarder.store.submissions.completion import with_attempt
from forwarder.store.submissions.port import Ended, Postponed, Work
from forwarder.worker.outcome.policy import decide
from forwarder.worker.push_context import PushResult

MAX_TRIES: Final = 3
"""A fault may pass, as one of a race does: so often a row is tried before it is set aside."""

_PAUSES: Final = (timedelta(minutes=1), timedelta(minutes=5))


def after_fault(
    work: Work,
    fault: Fault,
    *,
    came: Came | None,
    now: datetime,
    push_seconds: float,
    last: bool = False,
    look: bool = True,
    give_up: bool = True,
) -> Ended | Postponed:
    """The decision to record for `work` after `fault`. `came`: the possible result of this push at its PMS; None if it made
    nothing. `last`: do not retry; `look`: whether it may be looked up after that. `give_up`: False if the row is not to blame: then
    it is retried until its deadline, even if `last`."""
    possibly_sent = work.pms_reservation is None and (came is not None or work.possibly_sent)
    outcome: Outcome | CancelOutcome
    evidence = work.evidence
    if possibly_sent:
        doubt = InDoubt(INTERNAL_ERROR, str(fault), made=came is Came.POSITIVE)
        action, outcome = "find" if came is None else "create", doubt
        if came is not None:
            evidence = evidence.after(doubt, read_target(work.target or ""), iso(now))
    else:
        action = "prepare" if work.pms_reservation is None else "cancel"
        outcome = Deferred(INTERNAL_ERROR, str(fault))
    attempts = with_attempt(work.attempts, action, iso(now), 0.0, outcome)
    faults = sum(1 for _ in takewhile(lambda each: each.reason == INTERNAL_ERROR, reversed(attempts)))
    if (faults < MAX_TRIES and not last) or not give_up:
        pause = max(_PAUSES[min(faults, len(_PAUSES)) - 1], timedelta(seconds=push_seconds if possibly_sent else 0.0))
        return Postponed(work.id, attempts, now, now + pause, work.revision, evidence)
    findable = look and all(push.to.reference for push in evidence.open)
    step = Park(INTERNAL_ERROR, str(fault), LookUp(push_seconds) if findable else None) if possibly_sent else None
    return decide(work, PushResult(outcome, attempts, evidence, step), now=now, jitter=0.0)


def came_of(result: object) -> Came | None:
    """The possible result of this push at its PMS; None if it surely made nothing."""
    match result.outcome if isinstance(result, PushResult) else None:
        case Confirmed():
            return Came.POSITIVE
        case InDoubt() as doubt:
            return Came.POSITIVE if doubt.made or doubt.pms_reservation_id is not None else Came.AMBIGUOUS
        case _:
            return None

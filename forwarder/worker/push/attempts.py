"""The attempts of one submission: each exchange with the PMS is timed, noted, counted, and survived where an adapter has a bug."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct
from prometheus_client import Counter, Histogram

from forwarder.observability import metrics
from forwarder.process.clock import Clock, iso
from forwarder.process.containment import FAULTS, Where, contained
from forwarder.reservation.outcome import (
    Absent,
    AnyOutcome,
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    InDoubt,
    LookupOutcome,
    Outcome,
    Rejected,
)
from forwarder.reservation.problems.problem import Problem
from forwarder.store.submissions.completion import with_attempt
from forwarder.store.submissions.port import Attempt

R = TypeVar("R", Outcome, LookupOutcome, CancelOutcome)


class Attempts(Struct, eq=False):
    """The attempts of one submission, oldest first (`all`). Times, notes and counts each exchange with the PMS."""

    clock: Clock
    kind: str
    request_id: str
    all: tuple[Attempt, ...]

    async def make(self, action: str, asking: Awaitable[R], after_a_bug: Callable[[str, str], R]) -> R:
        """The outcome of `asking`. An exception of the adapter is contained to this row: returns `after_a_bug(reason, detail)`."""
        began = self.clock.now(), self.clock.monotonic()
        try:
            outcome = sound(await asking, after_a_bug)
        except FAULTS as error:  # as said
            fault = contained(Where.ADAPTER, error, action=action, request_id=self.request_id)
            outcome = after_a_bug("adapter_failed", str(fault))
        self.note(action, began, outcome)
        return outcome

    def note(self, action: str, began: tuple[datetime, float], outcome: AnyOutcome) -> None:
        """Notes that `action` has just ended with `outcome`. `began`: its start, by the wall and the monotonic clock."""
        started_at, since = began
        seconds = self.clock.monotonic() - since
        self.all = with_attempt(self.all, action, iso(started_at), seconds, outcome)
        pushes, took = _pushes(self.kind, action, self.all[-1].outcome)
        pushes.inc()
        took.observe(seconds)


def sound(outcome: R, instead: Callable[[str, str], R]) -> R:
    """Validates `outcome`, which may come from a third-party adapter: returns it with fields of the right types, or
    `instead(reason, detail)` if it is not an outcome. Converts a numeric id to text, and drops an invalid record. The recorder
    bounds their sizes."""
    put_right: R | None = _put_right(outcome)
    if put_right is None:
        return instead(
            "adapter_failed", f"It returned {type(outcome).__name__}, which is no outcome, or lacks what it must have."
        )
    return put_right


def _put_right(outcome: Any) -> Any:
    match outcome:
        case Confirmed(str(), Mapping()) | Deferred(str(), str(), None | int() | float()):
            return outcome
        case InDoubt(str(), str(), None | int() | float(), bool(), None | str(), None | int()):
            return outcome
        case Rejected(Problem()) | Absent() | Cancelled():
            return outcome
        case Confirmed(str() | int() as found):
            given: Any = outcome.record
            return Confirmed(str(found), given if isinstance(given, Mapping) else {}, named=bool(outcome.named))
        case Deferred(reason, detail, _):
            return Deferred(str(reason), str(detail))
        case InDoubt(reason, detail, _, made, pms_id, _):  # a yes stays one
            return InDoubt(
                str(reason), str(detail), made=bool(made), pms_reservation_id=None if pms_id is None else str(pms_id)
            )
        case _:
            return None


@cache
def _pushes(kind: str, action: str, outcome: str) -> tuple[Counter, Histogram]:
    """The metrics by their labels, cached: looking them up costs more than counting."""
    return metrics.PUSHES.labels(kind, action, outcome), metrics.PUSH_SECONDS.labels(kind, action)

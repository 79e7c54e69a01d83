"""One push, from its account queue to the record: its context, what it carried, its result, and what it showed of the PMS. No I/O.

    ingest → queue → rules → push → decide → record → publish

The queue makes the context when the push starts. Each later step adds what it learnt, and nothing comes back but the release.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeVar

from msgspec import Struct

from forwarder.pms.port import LEASE_LOST, NOT_ABOUT_THE_PMS
from forwarder.process.clock import Clock
from forwarder.reservation.evidence import NOTHING_SENT, Evidence, NextStep
from forwarder.reservation.outcome import (
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    LookupOutcome,
    Outcome,
    Rejected,
)
from forwarder.reservation.value import value
from forwarder.store.submissions.work import Attempt, Ended, Postponed, Work
from forwarder.tenancy.port import Account

_T = TypeVar("_T", bound=Outcome | LookupOutcome | CancelOutcome)

_ASKED_ABOUT_ONE: Final = {"find", "cancel"}
_REFUSED_REQUEST: Final = "pms_refused_request"
"""A bare 4xx: of a look-up or a cancellation it says that the PMS will not do this, and nothing about its health."""
_MAX_REMEMBERED: Final = 100_000
_RESPONSES = {"confirmed", "rejected", "absent", "cancelled"}


class PushResult(Struct, frozen=True):
    """What a push came to. `attempts` are the last there were, earlier ones first. `evidence`: what is known of the pushes now.
    `step`: what is to be done next about those that are open; None where the account's PMS is not known."""

    outcome: Outcome | CancelOutcome
    attempts: tuple[Attempt, ...]
    evidence: Evidence = NOTHING_SENT
    step: NextStep | None = None

    @property
    def possibly_sent(self) -> bool:
        """Whether one of the pushes may have been made, and that is not settled by the outcome."""
        return bool(self.evidence.open) and not isinstance(self.outcome, Confirmed | Rejected | Cancelled)


def _not_held(_work: Work) -> None:
    """Nothing to release: no queue holds it."""


class PushContext(Struct, eq=False):
    """One row on its way, for one account. `result` is what the push came to, or what ended it: `LeaseLost`, or a bug.
    `decision` is what is to be recorded of it."""

    account: Account
    work: Work
    on_released: Callable[[Work], None] = _not_held
    result: PushResult | Exception | None = None
    decision: Ended | Postponed | None = None
    released: bool = False

    def release(self) -> None:
        """The row is no longer held: what became of it is recorded, or is not this worker's to record. Counts once."""
        if not self.released:
            self.released = True
            self.on_released(self.work)


class LeaseLost(Exception):
    """The row may be another worker's by now: nothing more may be sent for it, and nothing recorded."""


class CancelledMeanwhile(LeaseLost):
    """Its cancellation was ingested before it was sent: it is given back unsent."""


def while_leased(outcome: _T) -> _T:
    """`outcome`; raises `LeaseLost` where the lease ran out before all was sent that it takes."""
    if is_lease_lost(outcome):
        raise LeaseLost
    return outcome


def is_lease_lost(outcome: Outcome | LookupOutcome | CancelOutcome) -> bool:
    """Whether `outcome` says that the lease ran out on the way."""
    return isinstance(outcome, Deferred) and outcome.reason == LEASE_LOST


def too_late() -> Deferred:
    """What becomes of a submission that was surely not made by its deadline."""
    return Deferred("deadline_passed", "It had not been made when its deadline came.")


class PushClock:
    """For how long pushes that may have made something have been left alone, by this worker's own monotonic clock.

    A row is due by a wall clock, perhaps another host's. Where that clock jumps, or two differ, an absence would be believed too
    early. So the seconds run from when this worker saw the push end, or first saw the row: a worker that died over a push sent its
    last byte before its lease ended, and so before anybody else saw the row.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[int, tuple[tuple[int, int], float]] = {}

    def seconds(self, work: Work) -> float:
        """How long the last open push of `work` has been left alone."""
        last = work.takeovers, work.evidence.number
        push, since = self._since.get(work.id, (None, 0.0))
        if push != last:
            since = self._begin(work.id, last)
        return self._clock.monotonic() - since

    def note(self, work: Work, evidence: Evidence) -> None:
        """That its evidence is `evidence` as of now."""
        if not evidence.open:
            self._since.pop(work.id, None)
        elif evidence.number != work.evidence.number:
            self._begin(work.id, (work.takeovers, evidence.number))

    def _begin(self, work_id: int, push: tuple[int, int]) -> float:
        self._since.pop(work_id, None)
        if len(self._since) >= _MAX_REMEMBERED:
            # A row that is forgotten only waits once more.
            del self._since[next(iter(self._since))]
        now = self._clock.monotonic()
        self._since[work_id] = push, now
        return now


class Health(Enum):
    """What a push showed of the PMS and the way to it."""

    WELL = "well"
    FAILING = "failing"
    UNKNOWN = "unknown"
    """It was asked, and what came of that says nothing about it."""
    NOT_ATTEMPTED = "not_attempted"
    """It was not asked."""


@value(frozen=True, slots=True)
class HealthSignal:
    """What a push showed of its PMS, and the reason where that is failing."""

    health: Health
    reason: str = ""


NOT_ATTEMPTED: Final = HealthSignal(Health.NOT_ATTEMPTED)
_WELL: Final = HealthSignal(Health.WELL)


def health_signal(work: Work, result: PushResult) -> HealthSignal:
    """By the last that was seen of the PMS. A rule's refusal, a card that cannot be opened, or whatever else ended a push before
    the PMS was asked counts as not attempted: otherwise a few foreign messages could open an account's breaker."""
    if result.attempts[-1:] == work.attempts[-1:]:
        return NOT_ATTEMPTED
    last = result.attempts[-1]
    if last.action == "prepare":
        return NOT_ATTEMPTED
    if last.outcome in _RESPONSES:
        return _WELL
    if last.reason in NOT_ABOUT_THE_PMS or (last.action in _ASKED_ABOUT_ONE and last.reason == _REFUSED_REQUEST):
        return HealthSignal(Health.UNKNOWN)
    return HealthSignal(Health.FAILING, last.reason or "")


def combined_signal(signals: Sequence[HealthSignal]) -> HealthSignal:
    """Of several rows in one request: well, where one of them was answered; else the first that shows anything."""
    if len(signals) == 1:
        return signals[0]
    shown = [signal for signal in signals if signal.health is not Health.NOT_ATTEMPTED]
    well = [signal for signal in shown if signal.health is Health.WELL]
    return next(iter(well or shown), NOT_ATTEMPTED)

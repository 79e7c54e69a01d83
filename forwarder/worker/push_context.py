"""One push, from its account queue to the recorded outcome: its context, and its health signal about the PMS. No I/O.

    ingest → queue → rules → push → decide → record → publish

The queue creates the context when the push starts. Each later step adds what it learned; only the release returns to the queue.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from forwarder.pms.port import LEASE_LOST, NOT_ABOUT_THE_PMS
from forwarder.process.clock import Clock
from forwarder.reservation.evidence import NOTHING_SENT, Came, Evidence, NextStep
from forwarder.reservation.outcome import (
    AnyOutcome,
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    InDoubt,
    Outcome,
    Rejected,
)
from forwarder.reservation.value import value
from forwarder.store.submissions.port import Attempt, Ended, Postponed, Work
from forwarder.tenancy.port import Account

_ASKED_ABOUT_ONE: Final = {"find", "cancel"}
_REFUSED_REQUEST: Final = "pms_refused_request"
"""A bare 4xx. For a look-up or a cancellation it means that the PMS does not support it, and says nothing about its health."""
_MAX_REMEMBERED: Final = 100_000
_RESPONSES = {"confirmed", "rejected", "absent", "cancelled"}


class PushContext(Struct, eq=False):
    """One row being pushed, for one account. Each step adds what it learned.

    `outcome`: of this push; None until it is over. `attempts`: the last ones, oldest first. `evidence`: of all pushes so far. Both
    are the row's until the push adds to them. `step`: the next one for open pushes; None if the account's PMS is not known.
    `sent`: it may have been sent to the PMS. `error`: what ended it without an outcome: `LeaseLost`, or a bug.
    `decision`: what to record. `on_released`: removes it from the account queue that holds it, if one does.
    """

    account: Account
    work: Work
    on_released: Callable[[Work], None] = lambda _: None
    outcome: Outcome | CancelOutcome | None = None
    attempts: tuple[Attempt, ...] = ()
    evidence: Evidence = NOTHING_SENT
    step: NextStep | None = None
    sent: bool = False
    error: BaseException | None = None
    decision: Ended | Postponed | None = None
    released: bool = False

    def __post_init__(self) -> None:
        if not self.attempts:
            self.attempts = self.work.attempts
        if self.evidence is NOTHING_SENT:
            self.evidence = self.work.evidence

    @property
    def possibly_sent(self) -> bool:
        """Whether one of the pushes may have made a booking, and the outcome does not settle that."""
        return bool(self.evidence.open) and not isinstance(self.outcome, Confirmed | Rejected | Cancelled)

    @property
    def came(self) -> Came | None:
        """The possible result of this push at its PMS; None if it surely made nothing."""
        match self.outcome:
            case Confirmed():
                return Came.POSITIVE
            case InDoubt() as doubt:
                return Came.POSITIVE if doubt.made or doubt.pms_reservation_id is not None else Came.AMBIGUOUS
            case None if self.sent:
                return Came.AMBIGUOUS
            case _:
                return None

    def release(self) -> None:
        """Releases the row: its outcome is recorded, or is no longer this worker's to record. Takes effect once."""
        if not self.released:
            self.released = True
            self.on_released(self.work)


class LeaseLost(Exception):
    """The row may belong to another worker: this one must neither send nor record anything for it."""


class CancelledMeanwhile(LeaseLost):
    """Its cancellation was ingested before it was sent, so it is given back unsent."""


def is_lease_lost(outcome: AnyOutcome) -> bool:
    """Whether `outcome` reports that the lease expired during the push."""
    return isinstance(outcome, Deferred) and outcome.reason == LEASE_LOST


def too_late() -> Deferred:
    """The outcome of a submission that was surely not made by its deadline."""
    return Deferred("deadline_passed", "It had not been made when its deadline came.")


class PushClock:
    """Measures how long ago the last open push of a row ended, by this worker's own monotonic clock.

    A row is due by a wall clock, perhaps another host's. If that clock jumps, or two differ, an absence would be believed too
    early. So the time counts from when this worker saw the push end, or first saw the row: a worker that died during a push sent
    its last byte before its lease ended, and so before any other worker saw the row.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[int, tuple[tuple[int, int], float]] = {}

    def seconds(self, work: Work) -> float:
        """Seconds since the last open push of `work`."""
        last = work.takeovers, work.evidence.number
        push, since = self._since.get(work.id, (None, 0.0))
        return self._clock.monotonic() - (since if push == last else self._begin(work.id, last))

    def note(self, work: Work, evidence: Evidence) -> None:
        """Restarts the clock of `work` if `evidence`, as of now, has a new open push; forgets it if none is open."""
        if not evidence.open:
            self._since.pop(work.id, None)
        elif evidence.number != work.evidence.number:
            self._begin(work.id, (work.takeovers, evidence.number))

    def _begin(self, work_id: int, push: tuple[int, int]) -> float:
        self._since.pop(work_id, None)
        if len(self._since) >= _MAX_REMEMBERED:
            # A forgotten row only waits once more.
            del self._since[next(iter(self._since))]
        now = self._clock.monotonic()
        self._since[work_id] = push, now
        return now


class Health(Enum):
    """What a push showed about the PMS and the connection to it."""

    WELL = "well"
    FAILING = "failing"
    UNKNOWN = "unknown"
    """The PMS was called, but the result says nothing about its health."""
    NOT_ATTEMPTED = "not_attempted"
    """The PMS was not called."""


@value(frozen=True, slots=True)
class HealthSignal:
    """The health of a PMS that a push showed, and the reason if it is failing."""

    health: Health
    reason: str = ""


NOT_ATTEMPTED: Final = HealthSignal(Health.NOT_ATTEMPTED)
_WELL: Final = HealthSignal(Health.WELL)


def health_signal(push: PushContext) -> HealthSignal:
    """The signal of the last attempt. A push that ended before the PMS was called, for instance by a rule's refusal or a card
    that cannot be opened, counts as not attempted: otherwise a few foreign messages could open an account's breaker."""
    if push.attempts[-1:] == push.work.attempts[-1:]:
        return NOT_ATTEMPTED
    last = push.attempts[-1]
    if last.action == "prepare":
        return NOT_ATTEMPTED
    if last.outcome in _RESPONSES:
        return _WELL
    if last.reason in NOT_ABOUT_THE_PMS or (last.action in _ASKED_ABOUT_ONE and last.reason == _REFUSED_REQUEST):
        return HealthSignal(Health.UNKNOWN)
    return HealthSignal(Health.FAILING, last.reason or "")


def combined_signal(signals: Sequence[HealthSignal]) -> HealthSignal:
    """The signal of several rows in one request: well if the PMS answered one of them; else the first one that shows anything."""
    if len(signals) == 1:
        return signals[0]
    shown = [signal for signal in signals if signal.health is not Health.NOT_ATTEMPTED]
    well = [signal for signal in shown if signal.health is Health.WELL]
    return next(iter(well or shown), NOT_ATTEMPTED)

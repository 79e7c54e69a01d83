"""One push, from its account queue to the record: its context, what it carried, its result, and what it showed of the PMS. No I/O.

    ingest → queue → rules → push → decide → record → publish

The queue makes the context when the push starts. Each later step adds what it learnt, and nothing comes back but the release.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, TypeVar

from msgspec import Struct

from forwarder.pms.port import LEASE_LOST, NOT_ABOUT_THE_PMS, Capabilities
from forwarder.reservation.outcome import CancelOutcome, Deferred, LookupOutcome, Outcome
from forwarder.reservation.value import value
from forwarder.store.submissions.work import Attempt, Ended, Postponed, Work
from forwarder.tenancy.port import Account

_T = TypeVar("_T", bound=Outcome | LookupOutcome | CancelOutcome)

_ASKED_ABOUT_ONE: Final = {"find", "cancel"}
_REFUSED_REQUEST: Final = "pms_refused_request"
"""A bare 4xx: of a look-up or a cancellation it says that the PMS will not do this, and nothing about its health."""
_RESPONSES = {"confirmed", "rejected", "absent", "cancelled"}


class PushResult(Struct, frozen=True):
    """What a push came to. `attempts` are the last there were, earlier ones first; `possibly_sent`: one of them may have been made.

    `checkable`: the PMS can be asked again about that one, by key or by look-up; `findable`: by look-up. `sent_safeguards`: what
    it carried, as text.
    """

    outcome: Outcome | CancelOutcome
    attempts: tuple[Attempt, ...]
    possibly_sent: bool
    checkable: bool = True
    findable: bool = True
    sent_safeguards: str = ""


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


@dataclass(frozen=True, slots=True)
class Safeguards:
    """What a push carried that keeps it from being made twice: `key`, an idempotency key that the PMS honours; `reference`, our
    reference, by which it can be found. `endpoint` identifies the PMS that it went to: another one cannot be asked about it.

    An account's options may change between a push and the next look at it, and so may what its kind of PMS can do. So what an
    earlier push carried is recorded with its row; what the current settings could do says nothing about it.
    """

    endpoint: str = ""
    key: bool = False
    reference: bool = False

    def __bool__(self) -> bool:
        return self.key or self.reference

    def __str__(self) -> str:
        """As the store keeps it; empty for none."""
        names = (name for name, carried in (("key", self.key), ("reference", self.reference)) if carried)
        return " ".join((self.endpoint, *names)) if self else ""

    def common_with(self, other: "Safeguards") -> "Safeguards":
        """What both have: of two pushes what either may be asked about; of a push and the current settings what is of use now."""
        if self is other:  # as nearly always
            return self
        if self.endpoint != other.endpoint:
            return NO_SAFEGUARDS
        return Safeguards(self.endpoint, self.key and other.key, self.reference and other.reference)


NO_SAFEGUARDS = Safeguards()
"""Nothing can be asked: it may be sent once, and only a person can find out what became of it."""


def safeguards_of(kind: str, base_url: str, can: Capabilities) -> Safeguards:
    """What a push to such a PMS carries."""
    endpoint = hashlib.sha256(f"{kind} {base_url}".encode()).hexdigest()[:16]
    return Safeguards(endpoint, can.idempotent_create, can.find_by_reference)


@lru_cache(maxsize=1024)
def read_safeguards(written: str) -> Safeguards:
    """What `str` of safeguards gave. What cannot be read counts as none: only what is certain is trusted."""
    endpoint, *names = written.split(" ")
    if not names or not set(names) <= {"key", "reference"}:
        return NO_SAFEGUARDS
    return Safeguards(endpoint, "key" in names, "reference" in names)


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

"""One push: its context from the account queue to the recorded outcome, its steps, and its health signal about the PMS.

The push follows `next_step` for the row's evidence until there is an outcome or something to wait for. A booking that may exist
already is never simply created again, but looked up, or sent again under its key. After its deadline, or when cancelled, it is only
looked up: a booking that is found is confirmed first, and then cancelled like any other. Only with a PMS that supports keys but no
look-up is a cancelled one sent again under its key, to get a booking that can be cancelled.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar, assert_never

from msgspec import Struct
from prometheus_client import Counter, Histogram

from forwarder.observability import metrics
from forwarder.pms.port import CANCELLED_IN_PMS, LEASE_LOST, LOOKS_ALIKE, NOT_ABOUT_THE_PMS, Pms
from forwarder.process.clock import Clock, iso
from forwarder.process.loops import FAULTS, Where, contained
from forwarder.reservation.booking import Booking
from forwarder.reservation.evidence import (
    NOTHING_SENT,
    Came,
    Create,
    Evidence,
    Facts,
    LookUp,
    NextStep,
    NotMade,
    Park,
    Refuse,
    SendAgain,
    Target,
    next_step,
)
from forwarder.reservation.fast import value
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
    Status,
)
from forwarder.reservation.problems import Problem
from forwarder.store.submissions.port import Attempt, Ended, Postponed, Work, with_attempt
from forwarder.tenancy.port import Account

_MAX_REMEMBERED: Final = 100_000


class PushContext(Struct, eq=False):
    """One row being pushed, for one account, from its queue on. Each step adds what it learned.

    `outcome`: of this push; None until it is over. `attempts`: the last ones, oldest first. `evidence`: of all pushes so far. Both
    are the row's until the push adds to them. `step`: the next one for open pushes; None if the account's PMS is not known.
    `sent`: it may have been sent to the PMS. `error`: what ended it without an outcome: `LeaseLost`, or a bug."""

    account: Account
    work: Work
    on_released: Callable[[Work], None] = lambda _: None
    outcome: Outcome | Cancelled | None = None
    attempts: tuple[Attempt, ...] = ()
    evidence: Evidence = NOTHING_SENT
    step: NextStep | None = None
    sent: bool = False
    error: BaseException | None = None
    decision: Ended | Postponed | None = None
    released: bool = False

    def __post_init__(self) -> None:
        self.attempts = self.attempts or self.work.attempts
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
    its last byte before its lease ended, and so before any other worker saw the row."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[int, tuple[tuple[int, int], float]] = {}

    def seconds(self, work: Work) -> float:
        last, (push, since) = (work.takeovers, work.evidence.number), self._since.get(work.id, (None, 0.0))
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
            del self._since[next(iter(self._since))]  # it only waits once more
        now = self._clock.monotonic()
        self._since[work_id] = push, now
        return now


class PmsHealth(Enum):
    """What a push showed about the PMS. `UNKNOWN`: it was called, but the result says nothing. `NOT_ATTEMPTED`: it was not."""

    WELL = "well"
    FAILING = "failing"
    UNKNOWN = "unknown"
    NOT_ATTEMPTED = "not_attempted"


@value(frozen=True, slots=True)
class HealthSignal:
    """What a push showed, and the reason if the PMS is failing."""

    health: PmsHealth
    reason: str = ""


NOT_ATTEMPTED: Final = HealthSignal(PmsHealth.NOT_ATTEMPTED)


def health_signal(push: PushContext) -> HealthSignal:
    """The signal of the last attempt. A push that ended before the PMS was called, as by a rule's refusal, counts as not attempted:
    otherwise a few foreign messages could open an account's breaker."""
    if push.attempts[-1:] == push.work.attempts[-1:] or (last := push.attempts[-1]).action == "prepare":
        return NOT_ATTEMPTED
    if last.outcome in ("confirmed", "rejected", "absent", "cancelled"):
        return HealthSignal(PmsHealth.WELL)
    # A bare 4xx to a look-up or a cancellation means that the PMS does not support it.
    unsupported = last.action in ("find", "cancel") and last.reason == "pms_refused_request"
    if unsupported or last.reason in NOT_ABOUT_THE_PMS:
        return HealthSignal(PmsHealth.UNKNOWN)
    return HealthSignal(PmsHealth.FAILING, last.reason or "")


def combined_signal(signals: Sequence[HealthSignal]) -> HealthSignal:
    """The signal of several rows in one request: well if the PMS answered one of them; else the first one that shows anything."""
    shown = [signal for signal in signals if signal.health is not PmsHealth.NOT_ATTEMPTED]
    well = [signal for signal in shown if signal.health is PmsHealth.WELL]
    return next(iter(well or shown), NOT_ATTEMPTED)


R = TypeVar("R", Outcome, LookupOutcome, CancelOutcome)


async def ask(push: PushContext, clock: Clock, action: str, asking: Awaitable[R], on_bug: Callable[[str, str], R]) -> R:
    """The PMS's outcome of `asking`, noted as an attempt of `push`. An exception of the adapter is contained to this row: returns
    `on_bug(reason, detail)`. Raises `LeaseLost` if the lease expired before all requests were sent."""
    began = clock.now(), clock.monotonic()
    try:
        outcome = sound(await asking, on_bug)
    except FAULTS as error:  # as said
        fault = contained(Where.ADAPTER, error, action=action, request_id=push.work.submission.request_id)
        outcome = on_bug("adapter_failed", str(fault))
    note_attempt(push, clock, action, began, outcome)
    if is_lease_lost(outcome):
        raise LeaseLost
    return outcome


def note_attempt(
    push: PushContext, clock: Clock, action: str, began: tuple[datetime, float], outcome: AnyOutcome
) -> None:
    """Notes and counts that `action` has just ended with `outcome`. `began`: its start, by the wall and the monotonic clock."""
    seconds = clock.monotonic() - began[1]
    push.attempts = with_attempt(push.attempts, action, iso(began[0]), seconds, outcome)
    pushes, took = _pushes(push.account.metric_kind, action, push.attempts[-1].outcome)
    pushes.inc()
    took.observe(seconds)


@cache
def _pushes(kind: str, action: str, outcome: str) -> tuple[Counter, Histogram]:
    """The metrics by their labels, cached: looking them up costs more than counting."""
    return metrics.PUSHES.labels(kind, action, outcome), metrics.PUSH_SECONDS.labels(kind, action)


def sound(outcome: R, instead: Callable[[str, str], R]) -> R:
    """Validates `outcome`, which may come from a third-party adapter: returns it with fields of the right types, or
    `instead(reason, detail)` if it is not an outcome. Converts a numeric id to text, and drops an invalid record."""
    given: Any = outcome
    match given:
        case Confirmed(str(), Mapping()) | Deferred(str(), str(), None | int() | float()):
            return outcome
        case InDoubt(str(), str(), None | int() | float(), bool(), None | str(), None | int()):
            return outcome
        case Rejected(Problem()) | Absent() | Cancelled():
            return outcome
        case Confirmed(str() | int() as pms_id):
            record: Any = given.record
            given = Confirmed(str(pms_id), record if isinstance(record, Mapping) else {}, named=bool(given.named))
        case Deferred(reason, detail, _):
            given = Deferred(str(reason), str(detail))
        case InDoubt(reason, detail, _, made, pms_id, _):  # a yes stays one
            known = None if pms_id is None else str(pms_id)
            given = InDoubt(str(reason), str(detail), made=bool(made), pms_reservation_id=known)
        case _:
            detail = f"It returned {type(given).__name__}, which is no outcome, or lacks what it must have."
            return instead("adapter_failed", detail)
    return given  # type: ignore[no-any-return]


class PushRun(Struct, eq=False):
    """One prepared push: what to push, and where to. `create` and `resume` end with its outcome, or raise `LeaseLost`.

    `before_sending`: the last check of the lease, which makes the intent durable; raises `LeaseLost`. `waited`: seconds since the
    last open push of a row. `instead`: the outcome if it was surely not made before, because a rule refuses it now, or its card is
    gone; a booking that may exist is still looked up."""

    push: PushContext
    pms: Pms
    facts: Facts
    clock: Clock
    before_sending: Callable[[PushContext, Target], Awaitable[None]]
    waited: Callable[[Work], float]
    booking: Booking
    instead: Rejected | Deferred | None = None

    async def resume(self) -> None:
        """Continues a submission that may have been made before, or is cancelled: settles that first."""
        push, work, evidence = self.push, self.push.work, self.push.work.evidence
        waited, looked = (self.waited(work) if evidence.open else 0.0), False
        while True:
            step = self._next_step(evidence, waited)
            match step:
                case Create():
                    await self.create(evidence.settled(iso(self.clock.now())))
                    if push.step != LookUp(0.0) or push.evidence.refusal is None:
                        return None
                    # Refused by a PMS that shows bookings at once: look up whether our own earlier push was the cause.
                    evidence, waited, looked = push.evidence, 0.0, False
                case SendAgain():
                    await self.create(evidence)
                    return None
                case Refuse(problem):
                    return self._end(Rejected(problem), evidence.settled(iso(self.clock.now())))
                case NotMade():
                    not_made = self.instead or too_late()
                    if self.instead is None and work.status is Status.IN_DOUBT:
                        not_made = Deferred("not_made", "The PMS had not made it, and it is not sent again.")
                    outcome = not_made if work.cancellation is None else Cancelled()
                    return self._end(outcome, evidence.settled(iso(self.clock.now())))
                case LookUp() | Park(look=LookUp()) if not looked:
                    looked, known = True, evidence.pms_id
                    await self.before_sending(push, self.facts.target)
                    booking = self.booking if known is None else replace(self.booking, pms_id=known)
                    found: LookupOutcome = await ask(push, self.clock, "find", self.pms.find(booking), Deferred)
                    if not isinstance(found, Absent):
                        return self._found(found, evidence)
                    evidence = evidence.absent(iso(self.clock.now()), waited)
                case Park(reason, detail):
                    return self._end(InDoubt(reason, detail), evidence, step)
                case LookUp():
                    shown = f"The PMS does not show it. {evidence.words[-1]}" if evidence.words else ""
                    return self._end(InDoubt("not_shown_yet", shown), evidence, step)
                case _:
                    assert_never(step)

    def _next_step(self, evidence: Evidence, waited: float) -> NextStep:
        forbidden = self.instead is not None
        return step_of(self.push.work, evidence, self.facts, self.clock.now(), waited, forbidden=forbidden)

    async def create(self, evidence: Evidence) -> None:
        push = self.push
        if self.clock.now() >= push.work.deadline_at:
            return self._end(too_late(), evidence)
        await self.before_sending(push, self.facts.target)
        # A failing adapter may have sent it, so its outcome is `InDoubt`.
        outcome: Outcome = await ask(push, self.clock, "create", self.pms.create(self.booking), InDoubt)
        return self._end(*after_create(outcome, evidence, self.facts, self.clock))

    def _found(self, found: Confirmed | Deferred, evidence: Evidence) -> None:
        match found:
            case Confirmed(pms_id):
                self._end(found, evidence.found(pms_id, evidence.open[-1].to, iso(self.clock.now())))
            case Deferred(reason) if reason == CANCELLED_IN_PMS and self.push.work.cancellation is not None:
                self._end(Cancelled(), evidence.settled(iso(self.clock.now())))
            case Deferred(reason, detail) if reason == LOOKS_ALIKE:  # for a person; looked up again in ten minutes
                self._end(InDoubt(reason, detail), evidence, Park(reason, detail, LookUp(600.0)))
            case Deferred():
                self._end(found, evidence)

    def _end(self, outcome: Outcome | Cancelled, evidence: Evidence, step: NextStep | None = None) -> None:
        push = self.push
        if step is None and evidence.open and isinstance(outcome, Deferred | InDoubt):
            is_new = evidence.number != push.work.evidence.number
            step = self._next_step(evidence, 0.0 if is_new else self.waited(push.work))
        push.outcome, push.evidence, push.step = outcome, evidence, step


def step_of(
    work: Work, evidence: Evidence, facts: Facts, now: datetime, waited: float, *, forbidden: bool = False
) -> NextStep:
    """The next step for `work` by that evidence. `forbidden`: a rule refuses it now, or its card is gone."""
    in_time = now < work.deadline_at and work.status is Status.PENDING and not forbidden
    only_by_key = facts.target.key and not facts.target.reference and bool(evidence.open)
    may_create = in_time and (work.cancellation is None or only_by_key)
    return next_step(evidence, facts, now, waited, may_create=may_create)


def after_create(outcome: Outcome, evidence: Evidence, facts: Facts, clock: Clock) -> tuple[Outcome, Evidence]:
    """The outcome of a create, and the evidence including it. A refusal that our own earlier push may have caused is a doubt."""
    after = evidence.after(outcome, facts.target, iso(clock.now()))
    if not isinstance(outcome, Rejected | Deferred) or after is evidence:
        return outcome, after
    if not facts.target.reference:
        return outcome, evidence  # the key rules out that the earlier push caused it
    no = outcome.problem.code if isinstance(outcome, Rejected) else outcome.detail
    return InDoubt("refused_in_doubt", f"The PMS refused it, perhaps because of an earlier push of it: {no}"), after

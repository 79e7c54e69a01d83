"""One push: follows `next_step` for the row's evidence until there is an outcome or something to wait for.

A booking that may exist already is never simply created again, but looked up, or sent again under its key. After its deadline, or
when cancelled, it is only looked up: a booking that is found is confirmed first, and then cancelled like any other. Only with a PMS
that supports keys but no look-up is a cancelled one sent again under its key, to get a booking that can be cancelled.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar, assert_never

from msgspec import Struct
from prometheus_client import Counter, Histogram

from forwarder.observability import metrics
from forwarder.pms.port import CANCELLED_IN_PMS, LOOKS_ALIKE, Pms
from forwarder.process.clock import Clock, iso
from forwarder.process.containment import FAULTS, Where, contained
from forwarder.reservation.booking import Booking
from forwarder.reservation.evidence import (
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
from forwarder.reservation.problems.problem import Problem
from forwarder.store.submissions.port import Work, with_attempt
from forwarder.worker.push_context import LeaseLost, PushContext, is_lease_lost, too_late

R = TypeVar("R", Outcome, LookupOutcome, CancelOutcome)

_ALIKE_AGAIN: Final = 600.0
"""Seconds until the next look-up if the PMS shows a similar booking."""


async def ask(
    push: PushContext, clock: Clock, action: str, asking: Awaitable[R], after_a_bug: Callable[[str, str], R]
) -> R:
    """The PMS's outcome of `asking`, noted as an attempt of `push`. An exception of the adapter is contained to this row: returns
    `after_a_bug(reason, detail)`. Raises `LeaseLost` if the lease expired before all requests were sent."""
    began = clock.now(), clock.monotonic()
    try:
        outcome = sound(await asking, after_a_bug)
    except FAULTS as error:  # as said
        fault = contained(Where.ADAPTER, error, action=action, request_id=push.work.submission.request_id)
        outcome = after_a_bug("adapter_failed", str(fault))
    note_attempt(push, clock, action, began, outcome)
    if is_lease_lost(outcome):
        raise LeaseLost
    return outcome


def note_attempt(
    push: PushContext, clock: Clock, action: str, began: tuple[datetime, float], outcome: AnyOutcome
) -> None:
    """Notes and counts that `action` has just ended with `outcome`. `began`: its start, by the wall and the monotonic clock."""
    started_at, since = began
    seconds = clock.monotonic() - since
    push.attempts = with_attempt(push.attempts, action, iso(started_at), seconds, outcome)
    pushes, took = _pushes(push.account.metric_kind, action, push.attempts[-1].outcome)
    pushes.inc()
    took.observe(seconds)


@cache
def _pushes(kind: str, action: str, outcome: str) -> tuple[Counter, Histogram]:
    """The metrics by their labels, cached: looking them up costs more than counting."""
    return metrics.PUSHES.labels(kind, action, outcome), metrics.PUSH_SECONDS.labels(kind, action)


def sound(outcome: R, instead: Callable[[str, str], R]) -> R:
    """Validates `outcome`, which may come from a third-party adapter: returns it with fields of the right types, or
    `instead(reason, detail)` if it is not an outcome. Converts a numeric id to text, and drops an invalid record. The recorder
    bounds their sizes."""
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
            return instead(
                "adapter_failed",
                f"It returned {type(given).__name__}, which is no outcome, or lacks what it must have.",
            )
    put_right: R = given
    return put_right


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

    def create(self) -> Coroutine[Any, Any, None]:
        """Creates it; nothing was sent before."""
        return self._create(self.push.work.evidence)

    async def resume(self) -> None:
        """Continues a submission that may have been made before, or is cancelled: settles that first."""
        push, work, evidence = self.push, self.push.work, self.push.work.evidence
        waited, looked = (self.waited(work) if evidence.open else 0.0), False
        while True:
            step = self._next_step(evidence, waited)
            match step:
                case Create():
                    await self._create(evidence.settled(iso(self.clock.now())))
                    if push.step != LookUp(0.0) or push.evidence.refusal is None:
                        return None
                    # Refused by a PMS that shows bookings at once: look up whether our own earlier push was the cause.
                    evidence, waited, looked = push.evidence, 0.0, False
                case SendAgain():
                    await self._create(evidence)
                    return None
                case Refuse(problem):
                    return self._end(Rejected(problem), evidence.settled(iso(self.clock.now())))
                case NotMade():
                    return self._end(self._not_made(), evidence.settled(iso(self.clock.now())))
                case LookUp() | Park(look=LookUp()) if not looked:
                    looked = True
                    found = await self._find(evidence)
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

    def _not_made(self) -> Outcome | Cancelled:
        """The outcome if it was surely not made and will not be created."""
        if self.push.work.cancellation is not None:
            return Cancelled()
        if self.instead is not None:
            return self.instead
        if self.push.work.status is Status.IN_DOUBT:
            return Deferred("not_made", "The PMS had not made it, and it is not sent again.")
        return too_late()

    async def _create(self, evidence: Evidence) -> None:
        """Ask the PMS to make it, unless it is too late for that."""
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
                target = evidence.open[-1].to
                self._end(found, evidence.found(pms_id, target, iso(self.clock.now())))
            case Deferred(reason) if reason == CANCELLED_IN_PMS and self.push.work.cancellation is not None:
                self._end(Cancelled(), evidence.settled(iso(self.clock.now())))
            case Deferred(reason, detail) if reason == LOOKS_ALIKE:  # for a person to look at
                self._end(InDoubt(reason, detail), evidence, Park(reason, detail, LookUp(_ALIKE_AGAIN)))
            case Deferred():
                self._end(found, evidence)

    async def _find(self, evidence: Evidence) -> LookupOutcome:
        await self.before_sending(self.push, self.facts.target)
        known = evidence.pms_id
        looked_for = self.booking if known is None else replace(self.booking, pms_id=known)
        found: LookupOutcome = await ask(self.push, self.clock, "find", self.pms.find(looked_for), Deferred)
        return found

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
    if isinstance(outcome, Rejected | Deferred) and after is not evidence:
        if facts.target.reference:
            no = outcome.problem.code if isinstance(outcome, Rejected) else outcome.detail
            return InDoubt(
                "refused_in_doubt", f"The PMS refused it, perhaps because of an earlier push of it: {no}"
            ), after
        return outcome, evidence  # the key rules out that the earlier push caused it
    return outcome, after

"""Checks that a submission comes to the right end at a PMS with habits: it takes its course as in a worker, in virtual time.

One booking at most is made, no end is wrong, and an operator is needed only where nobody else can know.
"""

import asyncio
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from forwarder.pms.accounts import target_of
from forwarder.pms.http.connections import ConnectionPool, PoolLimits
from forwarder.pms.port import Capabilities, Pms
from forwarder.process.clock import iso
from forwarder.reservation.booking import Booking
from forwarder.reservation.evidence import LookUp, SendAgain, Target
from forwarder.reservation.outcome import Confirmed, Status
from forwarder.reservation.submission import Submission
from forwarder.store.submissions.port import Ended, Postponed, Work
from forwarder.tenancy.port import Account
from forwarder.worker.outcome.policy import decide
from forwarder.worker.parts import WorkerSettings
from forwarder.worker.push.pipeline import facts_of
from forwarder.worker.push.run import PushClock, PushContext, PushRun, step_of
from forwarder_pms_kit.conformance.answers import WAITS
from forwarder_pms_kit.conformance.habits import DAY, HABITS, Habit, HabitualTransport, shape_of
from forwarder_pms_kit.conformance.trial import PUSH_SECONDS, Check, Findings, NotApplicable, Trial

_MAX_STEPS: Final = 150
_JITTER: Final = 0.99
_DEADLINE: Final = timedelta(hours=27)
_WATCHED: Final = timedelta(hours=30)
_REFERENCE: Final = re.compile(rb"rsv_?[a-z2-7]{20,32}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Course:
    """How one submission ended: its status, after how many virtual seconds, by which steps, with which id; how many bookings the
    PMS made of it; whether it shows ours under another id; and whether it waits for the PMS, or for the operator to compare."""

    status: Status
    seconds: float
    steps: tuple[str, ...]
    pms_id: str | None = None
    made: int = 0
    shown_otherwise: bool = False
    waits: bool = False

    def wrong(self, *, person: bool) -> str | None:
        """What is wrong with it. `person`: it may be in doubt."""
        ended = f"{self.status} after {self.seconds:.0f} s ({'; '.join(self.steps)})"
        if self.made > 1:
            return f"the PMS made {self.made} bookings of one submission: {ended}"
        if self.made and self.waits:
            return None
        if self.made and self.status in (Status.REJECTED, Status.FAILED, Status.PENDING):
            return f"the PMS made it, and it ended {ended}"
        if not self.made and self.status in (Status.CONFIRMED, Status.PENDING):
            return f"the PMS made nothing, and it ended {ended}"
        if self.shown_otherwise:
            return f"it was confirmed with the id {self.pms_id}, and the PMS shows it under another"
        if self.status is Status.IN_DOUBT and not person:
            return f"it needed an operator, although the PMS can be asked: {ended}"
        return None


class VirtualClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self._began = datetime.now(UTC).replace(microsecond=0)
        self._seconds = 0.0

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        return self._seconds

    async def sleep(self, seconds: float) -> None:
        self._seconds += max(seconds, 0.0)


async def course_of(habit: Habit, trial: Trial) -> Course:
    """What becomes of one submission. Raises `NotApplicable` if this site cannot show the habit, and `Misbehaved`."""
    creates, by_reference = await _ready(habit, trial)
    clock, booking = VirtualClock(), trial.site.booking()
    mark = trial.sent_reference(booking) if by_reference else booking.arrival.isoformat()
    transport = HabitualTransport(ConnectionPool(PoolLimits()), habit, clock, creates, mark.encode())
    trial.will_ask(booking)
    trial.proxy.begin()
    async with trial.directory(PUSH_SECONDS, transport) as directory:
        course = await _taken(booking, trial.connect(directory=directory), trial, clock)
        await clock.sleep(DAY)  # for a create that comes late
        await transport.settle(asyncio.get_running_loop().time() + PUSH_SECONDS)
    if habit.kept is not None and habit.first is not None and transport.searched_by_mark:
        raise NotApplicable("it is searched by our reference: finds-by-reference shows in which form the PMS keeps it")
    if habit.again is not None and not transport.said_again:
        raise NotApplicable("it did not ask for the booking again")
    # A create that reached the PMS again without a key counts as a second booking, even if a calendar refused it.
    carried = min(transport.carried, 1) if trial.can.idempotent_create else transport.carried
    course = replace(course, made=max(await trial.held(booking) or 0, carried))
    found = await trial.find(booking) if course.pms_id is not None and trial.can.find_by_reference else None
    elsewhere = isinstance(found, Confirmed) and found.pms_reservation_id != course.pms_id
    return replace(course, shown_otherwise=elsewhere)


async def _taken(booking: Booking, pms: Pms, trial: Trial, clock: VirtualClock) -> Course:
    """As the worker does: push, record, wait until the next step is due."""
    can, began = pms.capabilities, clock.now()
    account = Account("conformance", "conformance", trial.kind, trial.site.base_url, "")
    target = target_of(trial.kind, account.base_url, trial.site.credential, can)
    facts, pushes, steps = facts_of(target, can, account, WorkerSettings()), PushClock(clock), list[str]()
    submission = Submission(
        booking.reference, "conformance", "conformance", "general", began, booking.fields, booking.reference[-32:]
    )
    work = Work(1, 1, submission, 0, iso(began), began + _DEADLINE, (), 0)
    for _ in range(_MAX_STEPS):
        match step_of(work, work.evidence, facts, clock.now(), pushes.seconds(work)):
            case LookUp(seconds) | SendAgain(seconds):
                await clock.sleep(seconds)
        push = PushContext(account, work)
        run = PushRun(push, pms, facts, clock, _nothing_to_check, pushes.seconds, booking)
        again = work.possibly_sent or work.status is Status.IN_DOUBT
        await trial.run(run.resume() if again else run.create(work.evidence), "a push")
        known = work.attempts[-1].number if work.attempts else 0
        steps += [f"{one.action} {one.outcome}" for one in push.attempts if one.number > known]
        pushes.note(work, push.evidence)
        decision = decide(push, now=clock.now(), jitter=_JITTER)
        status, due, pms_id = work.status, None, None
        match decision:
            case Ended():
                status, due, pms_id = decision.status, decision.look_at, decision.pms_reservation_id
            case Postponed():
                due = decision.due_at
        waits = decision.attempts[-1].reason in WAITS
        if waits or due is None or due > began + _WATCHED:
            return Course(status, clock.monotonic(), tuple(steps), pms_id, waits=waits)
        await clock.sleep((due - clock.now()).total_seconds())
        work = replace(
            work, status=status, attempts=tuple(decision.attempts), evidence=decision.evidence, tries=work.tries + 1
        )
    return Course(work.status, clock.monotonic(), tuple(steps))


async def _nothing_to_check(_push: PushContext, _target: Target) -> None:
    """There is no lease."""


async def _ready(habit: Habit, trial: Trial) -> tuple[tuple[str, str], bool]:
    """The request that books, and whether it has our reference. Raises `NotApplicable`."""
    if habit.keys_last == DAY and not trial.can.idempotent_create:
        raise NotApplicable("it declares no idempotency keys")
    if habit.keys_last == 0.0 and not trial.site.refuses_taken_nights:
        raise NotApplicable("this site keeps no calendar")
    normal = await trial.normal_push()
    request = normal.booking_request
    by_reference = (
        _REFERENCE.search(request.body + request.target.encode() + repr(request.headers).encode()) is not None
    )
    if habit.kept is not None and not by_reference:
        raise NotApplicable("our reference is not sent")
    if trial.can.find_by_reference and not await trial.shows_at_once():
        raise NotApplicable("this PMS takes its time to show a booking, which is habit enough")
    return shape_of(request.method, request.target.partition("?")[0]), by_reference


def may_need_a_person(habit: Habit, can: Capabilities) -> bool:
    """Whether nobody but an operator can know how it ended at a PMS of these capabilities."""
    proves = can.idempotent_create or (can.find_by_reference and can.proves_absence and not can.finds_by_stay)
    return habit.person or not proves


def _check(name: str, habit: Habit) -> Check:
    async def find(trial: Trial) -> Findings:
        wrong = (await course_of(habit, trial)).wrong(person=may_need_a_person(habit, trial.can))
        if wrong is not None:
            yield wrong

    return Check(f"habit-{name}", f"With the habit {name}, one booking is made at most, and each end is right.", find)


HABIT_CHECKS: Final = tuple(_check(name, habit) for name, habit in HABITS.items())
"""A check for each habit."""

"""One adapter on trial at one site, behind the faulty wire: what is asked of it, and what really came of that."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar
from unittest import SkipTest

from forwarder.pms.adapter import AdapterKind
from forwarder.pms.auth.grants import MemoryGrants
from forwarder.pms.conformance.faults import LOST, Strike, after
from forwarder.pms.conformance.site import Site
from forwarder.pms.conformance.wire import FaultyWire, faulty_wire
from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import PushPolicy
from forwarder.pms.port import CANCELLED_IN_PMS, UNPACED, AccountConnection, Capabilities, Pace, Pms, PmsDirectory
from forwarder.pms.registry import Registry
from forwarder.process.clock import SystemClock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Cancellation, Cancelled, Confirmed, Deferred, InDoubt, Lookup, Outcome

R = TypeVar("R")

PUSH_SECONDS: Final = 15.0
SHORT_SECONDS: Final = 0.3
"""The push time-out where it is to run out."""
GRACE_SECONDS: Final = 5.0
"""How much later than the push time-out a push may be seen to end, on a machine that is busy."""


class NotApplicable(SkipTest):
    """The check asks for what this adapter, or this site, does not claim to have. The message says what. Test runners skip it."""


class Misbehaved(Exception):
    """The adapter did what no adapter may, so that there is nothing to go on with. The message says what."""


@dataclass(frozen=True, slots=True)
class Course:
    """How a push goes where nothing goes wrong: the status of each of its exchanges, and which of them makes the reservation,
    counted from 1."""

    statuses: tuple[int, ...]
    books_at: int


class Trial:
    """What checks use. `pms` is patient, `hurried` is soon out of patience; both go through `wire`."""

    def __init__(self, kind: str, adapter: AdapterKind, site: Site, wire: FaultyWire) -> None:
        self.kind = kind
        self.adapter = adapter
        self.site = site
        self.wire = wire
        self.registry = Registry({kind: adapter})
        self._directories: dict[str, PmsDirectory] = {}
        self._asked: list[Booking] = []
        self._paid_for = 0
        self._course: Course | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Trial"]:
        """With its ways to the PMS open; in the end what was booked is cancelled, if the site wants that."""
        async with self.directory(PUSH_SECONDS) as patient, self.directory(SHORT_SECONDS) as hurried:
            self._directories = {"patient": patient, "hurried": hurried}
            yield self
            if self.site.tidy:
                await self._tidy()

    def beside(self, wire: FaultyWire) -> "Trial":
        """The same adapter behind another wire. What it books is cancelled with the rest."""
        other = Trial(self.kind, self.adapter, self.site, wire)
        other._asked = self._asked
        return other

    def directory(self, push_seconds: float) -> AbstractAsyncContextManager[PmsDirectory]:
        """A directory of this adapter alone, to be entered."""
        policy = PushPolicy(push_seconds=push_seconds, max_pause_seconds=0.01)
        return open_directory(SystemClock(), policy=policy, registry=self.registry)

    @cached_property
    def pms(self) -> Pms:
        return self.connect()

    @cached_property
    def hurried(self) -> Pms:
        return self.connect(directory=self._directories["hurried"])

    @property
    def options(self) -> Mapping[str, Any]:
        return self.site.options_at(self.wire.address)

    @property
    def can(self) -> Capabilities:
        """What the adapter says that it can, as this account."""
        return self.pms.capabilities

    def connect(
        self,
        *,
        base_url: str | None = None,
        credential: str | None = None,
        pace: Pace = UNPACED,
        directory: PmsDirectory | None = None,
    ) -> Pms:
        """The PMS as another process would see it, with other settings where they are given."""
        connection = AccountConnection(
            "conformance",
            self.kind,
            self.wire.url if base_url is None else base_url,
            self.site.credential if credential is None else credential,
            pace,
            self.options,
            # What was granted for the right settings says nothing of the wrong ones.
            self.site.grants if base_url is None and credential is None else MemoryGrants(),
        )
        return (directory or self._directories["patient"]).connect(connection)

    async def create(self, booking: Booking, pms: Pms | None = None) -> Outcome:
        self._asked.append(booking)
        return await self.told((pms or self.pms).create(booking), "create")

    async def find(self, booking: Booking, pms: Pms | None = None) -> Lookup:
        return await self.told((pms or self.pms).find(booking), "find")

    async def cancel(self, booking: Booking, pms_id: str, pms: Pms | None = None) -> Cancellation:
        return await self.told((pms or self.pms).cancel(booking, pms_id), "cancel")

    async def told(self, asked: Coroutine[Any, Any, R], operation: str) -> R:
        """What `asked` brings. Raises `Misbehaved` where it raises, or outlasts every patience."""
        owed = self.wire.exchanges_in_all - self._paid_for
        self._paid_for += owed
        await self.site.turns.come(self.site.seconds_between * owed)
        task = asyncio.create_task(asked)
        done, _ = await asyncio.wait([task], timeout=PUSH_SECONDS + GRACE_SECONDS)
        if not done:
            task.cancel()
            raise Misbehaved(f"{operation} did not return within {PUSH_SECONDS + GRACE_SECONDS:.0f} s")
        try:
            return task.result()
        except (Exception, asyncio.CancelledError) as error:
            raise Misbehaved(f"{operation} raised {type(error).__name__}: {error}") from error

    async def struck(self, strike: Strike, at: int | None, asked: Callable[[], Awaitable[R]]) -> R | Misbehaved | None:
        """What `asked` comes to under `strike`; None where it asked nothing that could be struck."""
        self.wire.begin(strike, at)
        try:
            outcome = await asked()
        except Misbehaved as fault:
            return fault
        return outcome if self.wire.met.is_set() else None

    async def made(self, **fields: Any) -> tuple[Booking, Confirmed]:
        """A reservation that there is from now on."""
        self.wire.begin()
        booking = self.site.booking(**fields)
        outcome = await self.create(booking)
        if not isinstance(outcome, Confirmed):
            raise Misbehaved(f"a plain create with nothing in its way came to {outcome}")
        return booking, outcome

    async def held(self, booking: Booking) -> int | None:
        """How many reservations of `booking` the PMS has; None where nobody can tell."""
        self.wire.begin()
        if self.site.held is not None:
            return self.site.held(booking.reference)
        if not self.can.find_by_reference:
            return None
        return 1 if isinstance(await self.find(booking), Confirmed) else 0

    async def course(self) -> Course:
        """Found out by a push that goes well, and others whose answers are lost."""
        if self._course is None:
            self._course = await self._found_out()
        return self._course

    async def _found_out(self) -> Course:
        await self.made()  # tokens and the like are there from now on
        await self.made()
        statuses = tuple(0 if each.answer is None else each.answer.status for each in self.wire.exchanges)
        if not statuses:
            raise Misbehaved("create said Confirmed, and nothing was asked of the PMS through `send`")
        lost: Strike = next(after(LOST))
        for at in range(1, len(statuses) + 1):
            booking = self.site.booking()
            self.wire.begin(lost, at)
            await self.create(booking)
            if await self.held(booking):
                return Course(statuses, at)
        return Course(statuses, len(statuses))

    async def _tidy(self) -> None:
        self.wire.begin()
        if not (self.can.cancel and self.can.find_by_reference):
            return
        every = [await self._gone(booking) for booking in self._asked]
        if all(every):  # else their nights are not free
            self.site.stays.restart()

    async def _gone(self, booking: Booking) -> bool:
        found = await self.find(booking)
        if isinstance(found, Confirmed):
            return isinstance(await self.cancel(booking, found.pms_reservation_id), Cancelled)
        return isinstance(found, Absent) or found.reason == CANCELLED_IN_PMS


@asynccontextmanager
async def trial(kind: str, adapter: AdapterKind, site: Site) -> AsyncIterator[Trial]:
    """A trial of `adapter`, to be asked anything in this event loop."""
    async with faulty_wire(site.base_url) as wire, Trial(kind, adapter, site, wire).opened() as opened:
        yield opened


@dataclass(frozen=True, slots=True)
class Creation:
    """What `create` said, what the PMS holds since (None where nobody can tell), and what it had answered before the strike."""

    where: str
    booking: Booking
    outcome: Outcome | Misbehaved
    held: int | None
    answered: bytes

    def unlike(self, *expected: type[Outcome]) -> str | None:
        """What is wrong with it, where nothing else than `expected` may be said of what was not made."""
        if self.held is not None and self.held > 1:
            return f"{self.where}: the PMS holds {self.held} reservations of one booking"
        match self.outcome:
            case Confirmed(pms_id) if self.held:
                given = pms_id.encode() in self.answered
                return None if given else f"{self.where}: it said {self.outcome}, with an id that the PMS never gave"
            case InDoubt() if self.held:
                return None
            case Misbehaved() | Confirmed():
                return f"{self.where}: {self.outcome if isinstance(self.outcome, Misbehaved) else self._said()}"
            case outcome if isinstance(outcome, expected) and not self.held:
                return None
            case _:
                return f"{self.where}: {self._said()}"

    def _said(self) -> str:
        knows = {None: "", 0: " where the PMS holds nothing"}
        return f"it said {self.outcome}{knows.get(self.held, ' where the PMS holds the reservation')}"


async def created_under(
    strike: Strike, at: int | None, course: Course, trial: Trial, *, pms: Pms | None = None
) -> Creation | None:
    """A create of a new booking; None where nothing of it could be struck."""
    booking = trial.site.booking()
    outcome = await trial.struck(strike, at, lambda: trial.create(booking, pms))
    if outcome is None:
        return None
    answered = b"".join(each.answer.body for each in trial.wire.exchanges if each.answer is not None)
    held = await trial.held(booking)
    if held is None and strike.delivered and at is not None and at >= course.books_at:
        held = 1
    where = str(strike) if at is None else f"{strike} (exchange {at} of {len(course.statuses)})"
    return Creation(where, booking, outcome, held, answered)


def exchanges(course: Course) -> Iterator[tuple[int, tuple[type[Outcome], ...]]]:
    """Each exchange of a create, and what a failure of it may be said to be where nothing is held since: a doubt, if it is the one
    that books; of those before it, and of those after it where what was booked has been undone, also surely nothing."""
    for at in range(1, len(course.statuses) + 1):
        yield at, (InDoubt,) if at == course.books_at else (Deferred, InDoubt)

"""One adapter on trial at one site, behind the faulty proxy: what is asked of it, and what really came of that; and the checks that
put a promise of every adapter to the test. Their findings say where it is broken."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Literal, TypeVar
from unittest import SkipTest

from forwarder.pms import sdk
from forwarder.pms.accounts import Plaintext
from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import PushPolicy, Transport
from forwarder.pms.port import LOOKS_ALIKE, UNPACED, MemoryGrants, Pace, Pms, PmsDirectory
from forwarder.pms.registry import Registry
from forwarder.pms.rehearsal import table_of
from forwarder.process.clock import SystemClock
from forwarder_pms_kit.conformance.faults import LOST, Disruption, after
from forwarder_pms_kit.conformance.proxy import Exchange, FaultyProxy, faulty_proxy
from forwarder_pms_kit.conformance.site import Site

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
class NormalPush:
    """A push in which nothing goes wrong: its exchanges, and which of them makes the reservation, counted from 1."""

    exchanges: tuple[Exchange, ...]
    booking_exchange: int

    @property
    def booking_request(self) -> Exchange:
        return self.exchanges[self.booking_exchange - 1]


class Trial:
    """What checks use. `pms` has a long push time-out, `impatient` a short one; both go through `proxy`."""

    def __init__(self, kind: str, adapter: sdk.AdapterKind, site: Site, proxy: FaultyProxy) -> None:
        self.kind = kind
        self.adapter = adapter
        self.site = site
        self.proxy = proxy
        self.registry = Registry({kind: adapter})
        self._directories: dict[str, PmsDirectory] = {}
        self._asked: list[sdk.Booking] = []
        self._paid_for = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Trial"]:
        """With its ways to the PMS open; in the end what was booked is cancelled, if the site wants that."""
        async with self.directory(PUSH_SECONDS) as patient, self.directory(SHORT_SECONDS) as impatient:
            self._directories = {"patient": patient, "impatient": impatient}
            yield self
            if self.site.tidy and self.can.cancel and self.can.find_by_reference:
                self.proxy.begin()
                self.site.stays.left += [booking for booking in self._asked if not await self._gone(booking)]
                self.site.stays.tidied()

    def beside(self, proxy: FaultyProxy) -> "Trial":
        """The same adapter behind another proxy. What it books is cancelled with the rest."""
        other = Trial(self.kind, self.adapter, self.site, proxy)
        other._asked = self._asked
        return other

    def directory(
        self, push_seconds: float, transport: Transport | None = None
    ) -> AbstractAsyncContextManager[PmsDirectory]:
        """A directory of this adapter alone, to be entered. `transport`: in place of the usual connections."""
        policy = PushPolicy(push_seconds=push_seconds, max_pause_seconds=0.01)
        return open_directory(
            SystemClock(),
            policy=policy,
            transport=transport,
            registry=self.registry,
            plaintext=Plaintext.EVERYTHING,
        )

    @cached_property
    def pms(self) -> Pms:
        return self.connect()

    @cached_property
    def impatient(self) -> Pms:
        return self.connect(directory=self._directories["impatient"])

    @property
    def options(self) -> Mapping[str, Any]:
        return self.site.options_at(self.proxy.address)

    @property
    def can(self) -> sdk.Capabilities:
        """What the adapter says that it can, as this account."""
        return self.pms.capabilities

    @property
    def fields(self) -> sdk.FieldTable:
        """What becomes of each field of a request, as the adapter says of this account."""
        return table_of(
            sdk.AccountConnection("", self.kind, self.proxy.url, "", options=self.options), SystemClock(), self.registry
        )

    def connect(
        self,
        *,
        base_url: str | None = None,
        credential: str | None = None,
        pace: Pace = UNPACED,
        directory: PmsDirectory | None = None,
    ) -> Pms:
        """The PMS as another process would see it, with other settings where they are given."""
        connection = sdk.AccountConnection(
            "conformance",
            self.kind,
            self.proxy.url if base_url is None else base_url,
            self.site.credential if credential is None else credential,
            pace,
            self.options,
            # What was granted for the right settings says nothing of the wrong ones; where it is lent there is no other.
            self.site.grants if credential is None and (base_url is None or self.site.lent) else MemoryGrants(),
        )
        return (directory or self._directories["patient"]).connect(connection)

    def will_ask(self, *bookings: sdk.Booking) -> None:
        """They are about to be asked for: what is made of them is cancelled in the end."""
        self._asked += bookings

    async def create(self, booking: sdk.Booking, pms: Pms | None = None) -> sdk.Outcome:
        self.will_ask(booking)
        return await self.run((pms or self.pms).create(booking), "create")

    async def find(self, booking: sdk.Booking, pms: Pms | None = None) -> sdk.LookupOutcome:
        return await self.run((pms or self.pms).find(booking), "find")

    async def cancel(self, booking: sdk.Booking, pms_id: str, pms: Pms | None = None) -> sdk.CancelOutcome:
        return await self.run((pms or self.pms).cancel(booking, pms_id), "cancel")

    async def run(self, asked: Coroutine[Any, Any, R], operation: str) -> R:
        """What `asked` brings. Raises `Misbehaved` where it raises, or takes longer than any push may."""
        owed = self.proxy.exchanges_in_all - self._paid_for
        self._paid_for += owed
        now, stays = time.monotonic(), self.site.stays
        stays.free_at = max(stays.free_at, now) + self.site.seconds_between * owed
        await asyncio.sleep(stays.free_at - now)
        task = asyncio.create_task(asked)
        done, _ = await asyncio.wait([task], timeout=PUSH_SECONDS + GRACE_SECONDS)
        if not done:
            task.cancel()
            raise Misbehaved(f"{operation} did not return within {PUSH_SECONDS + GRACE_SECONDS:.0f} s")
        try:
            return task.result()
        except (Exception, asyncio.CancelledError) as error:
            raise Misbehaved(f"{operation} raised {type(error).__name__}: {error}") from error

    async def disrupted(
        self, disruption: Disruption, at: int | None, asked: Callable[[], Awaitable[R]]
    ) -> R | Misbehaved | None:
        """What `asked` comes to under `disruption`; None where no exchange could be disrupted."""
        self.proxy.begin(disruption, at)
        try:
            outcome = await asked()
        except Misbehaved as fault:
            return fault
        return outcome if self.proxy.met.is_set() else None

    async def made(self, **fields: Any) -> tuple[sdk.Booking, sdk.Confirmed]:
        """A reservation that there is from now on."""
        self.proxy.begin()
        booking = self.site.booking(**fields)
        outcome = await self.create(booking)
        if not isinstance(outcome, sdk.Confirmed):
            raise Misbehaved(f"a plain create with nothing in its way came to {_said_of(outcome, booking)}")
        return booking, outcome

    def sent_reference(self, booking: sdk.Booking) -> str:
        return self.can.reference_form.of(booking.reference)

    async def held(self, booking: sdk.Booking) -> int | None:
        """How many reservations of `booking` the PMS has; None where nobody can tell."""
        self.proxy.begin()
        if self.site.held is not None:
            by = self.sent_reference(booking) if self.site.held_by is None else self.site.held_by(booking)
            return self.site.held(by)
        if not self.can.find_by_reference:
            return None
        found = await self.find(booking)
        return 1 if isinstance(found, sdk.Confirmed) or looks_alike(found) else 0

    async def normal_push(self) -> NormalPush:
        """Found out by a push that goes well, and others whose responses are lost."""

        async def asked() -> NormalPush:
            await self.made()  # tokens and the like are there from now on
            await self.made()
            exchanges = tuple(self.proxy.exchanges)
            if not exchanges:
                raise Misbehaved("create said Confirmed, and nothing was asked of the PMS through `send`")
            lost: Disruption = next(after(LOST))
            for at in range(1, len(exchanges) + 1):
                booking = self.site.booking()
                self.proxy.begin(lost, at)
                await self.create(booking)
                if await self.held(booking):
                    return NormalPush(exchanges, at)
            return NormalPush(exchanges, len(exchanges))

        return await self.once("a normal push", asked)

    async def shows_at_once(self) -> bool:

        async def asked() -> bool:
            booking, _ = await self.made()
            return not isinstance(await self.find(booking), sdk.Absent)

        return await self.once("shows at once", asked)

    async def once(self, what: str, find_out: Callable[[], Awaitable[R]]) -> R:
        """What `find_out` brings, asked once for all trials of this adapter at the site with these options."""
        key = f"{what} of {id(self.adapter)} with {self.site.options}"
        if key not in self.site.observed:
            self.site.observed[key] = await find_out()
        found: R = self.site.observed[key]
        return found

    async def _gone(self, booking: sdk.Booking) -> bool:
        found = await self.find(booking)
        if isinstance(found, sdk.Confirmed):
            return isinstance(await self.cancel(booking, found.pms_reservation_id), sdk.Cancelled)
        return isinstance(found, sdk.Absent) or found.reason == sdk.CANCELLED_IN_PMS


def _said_of(outcome: sdk.Outcome, booking: sdk.Booking) -> str:
    """An outcome in words, with what to do where it is about the nights that were asked for."""
    if not isinstance(outcome, sdk.Rejected):
        return str(outcome)
    said = f"Rejected, {outcome.problem.code}: {outcome.problem.detail}"
    if outcome.problem.code != "room_unavailable":
        return said
    return f"{said} (property {booking.property_id} from {booking.arrival} on: book where the nights are free)"


def looks_alike(found: object) -> bool:
    """Whether a look-up by stay says that there is one, which may be ours."""
    return isinstance(found, sdk.Deferred) and found.reason == LOOKS_ALIKE


@asynccontextmanager
async def trial(kind: str, adapter: sdk.AdapterKind, site: Site) -> AsyncIterator[Trial]:
    """A trial of `adapter`, to be asked anything in this event loop."""
    async with faulty_proxy(site.base_url, site.trust()) as proxy, Trial(kind, adapter, site, proxy).opened() as opened:
        yield opened


@dataclass(frozen=True, slots=True)
class Creation:
    """What `create` said, after how many seconds; what the PMS holds since (None where nobody can tell), and what it had answered.

    `before_booking`: the disrupted exchange is no later than the one that books. `expected`: the outcomes that are true where
    nothing is held since: a doubt, if the exchange that books was disrupted; if another was, also surely nothing."""

    where: str
    booking: sdk.Booking
    outcome: sdk.Outcome | Misbehaved
    held: int | None
    answered: bytes
    seconds: float
    before_booking: bool
    expected: tuple[type[sdk.Outcome], ...]

    def unlike(self, *expected: type[sdk.Outcome]) -> str | None:
        """What is wrong with it, where nothing else than `expected` may be said of what was not made."""
        if self.held is not None and self.held > 1:
            return f"{self.where}: the PMS holds {self.held} reservations of one booking"
        match self.outcome:
            case sdk.Confirmed(pms_id) if self.held:
                given = pms_id.encode() in self.answered
                return None if given else f"{self.where}: it said {self.outcome}, with an id that the PMS never gave"
            case sdk.InDoubt() if self.held:
                return None
            case Misbehaved() | sdk.Confirmed():
                return f"{self.where}: {self.outcome if isinstance(self.outcome, Misbehaved) else self._said()}"
            case outcome if isinstance(outcome, expected) and not self.held:
                return None
            case _:
                return f"{self.where}: {self._said()}"

    def _said(self) -> str:
        knows = {None: "", 0: " where the PMS holds nothing"}
        return f"it said {self.outcome}{knows.get(self.held, ' where the PMS holds the reservation')}"


async def creations(
    trial: Trial,
    disruptions: Iterable[Disruption],
    places: Iterable[int | None] | None = None,
    *,
    pms: Pms | None = None,
) -> AsyncIterator[Creation]:
    """A create of a new booking under each of `disruptions`, at each exchange of a push; or at `places`, of which None is every
    exchange. Those where no exchange could be disrupted are left out."""
    normal = await trial.normal_push()
    every = range(1, len(normal.exchanges) + 1) if places is None else tuple(places)
    for disruption in disruptions:
        for at in every:
            booking, began = trial.site.booking(), time.monotonic()
            outcome = await trial.disrupted(disruption, at, partial(trial.create, booking, pms))
            seconds = time.monotonic() - began
            if outcome is None:
                continue
            answered = b"".join(one.response.content for one in trial.proxy.exchanges if one.response is not None)
            held = await trial.held(booking)
            if held is None and disruption.delivered and at is not None and at >= normal.booking_exchange:
                held = 1
            where = str(disruption) if at is None else f"{disruption} (exchange {at} of {len(normal.exchanges)})"
            early = at is not None and at <= normal.booking_exchange
            expected = (sdk.InDoubt,) if at == normal.booking_exchange else (sdk.Deferred, sdk.InDoubt)
            yield Creation(where, booking, outcome, held, answered, seconds, early, expected)


# --- checks ---

Findings = AsyncIterator[str]
Verdict = Literal["passed", "failed", "not applicable"]

_MAX_FINDINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Check:
    """`promise` is one sentence. `find` yields a sentence for each way in which it is broken; it may raise `NotApplicable`."""

    name: str
    promise: str
    find: Callable[[Trial], Findings]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check. `findings`: what is wrong, or why the check does not apply; none where it passed."""

    check: Check
    verdict: Verdict
    findings: tuple[str, ...]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.check.name,
            "promise": self.check.promise,
            "verdict": self.verdict,
            "findings": list(self.findings),
            "seconds": round(self.seconds, 3),
        }


def check(find: Callable[[Trial], Findings]) -> Check:
    """A check of a function: named as the function is, with its docstring as the promise."""
    promise = " ".join((find.__doc__ or "").split())
    return Check(find.__name__.replace("_", "-"), promise, find)


async def result_of(asked: Check, trial: Trial) -> Result:
    """Put it to the test. Raises nothing of what the adapter does."""
    began = time.monotonic()
    findings: list[str] = []
    verdict: Verdict = "passed"
    try:
        async for finding in asked.find(trial):
            findings.append(finding)
            if len(findings) == _MAX_FINDINGS:
                break
    except NotApplicable as reason:
        verdict, findings = "not applicable", [str(reason)]
    except Misbehaved as fault:
        findings.append(str(fault))
    if findings and verdict == "passed":
        verdict = "failed"
    return Result(asked, verdict, tuple(findings), time.monotonic() - began)

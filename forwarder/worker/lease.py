"""The worker's lease on its rows, and its watch over the store that granted it. The worker pushes nothing while either is in doubt.

The worker holds its rows until a moment on its own monotonic clock, and starts no push after that. The store keeps the lease under
`worker_id`; it covers every row with that id. A worker that was suspended for longer than its lease sees by its own clock that the
lease has expired, before it sends another byte. The remaining gap: a process that is suspended for longer than the lease between
this check and the first byte on the wire.

No decision depends on a wall clock, so that a clock jump cannot end a lease that its holder still trusts. Each renewal advances a
heartbeat in the store, which the other workers watch. If a heartbeat does not advance for the length of its lease, by the watcher's
monotonic clock, that lease began before the watcher first saw it, and so has expired.

The store is in doubt when a connection leads to another database or to a restarted one (a failover, a restore), and when the wall
clock moved against the monotonic clock (a paused virtual machine, whose lease may have expired unnoticed). Then the worker renews
its lease, and checks that the store has everything that it acknowledged to this worker, and all results on the topics. A missing
row proves that transactions were lost: the worker then stops all its loops; a worker that starts on such a store does not begin.

What another worker pushed looks free in a database that lost its claim. So after a failover no worker pushes before each has
checked, or lost its lease; and one that finds a loss begins a recovery, which all of them wait for.

It cannot detect that the database lost a claim of another worker which died during its push without publishing an outcome, nor that
it lost a worker altogether, which started within the seconds that are missing. A synchronous standby loses none.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from forwarder.process.clock import Clock
from forwarder.store.submissions.port import Heartbeat, StoreUnavailable, Work
from forwarder.topics.port import LogUnavailable
from forwarder.worker.parts import Lacking

if TYPE_CHECKING:
    from forwarder.store.submissions.recorder import Recorder

_LOOK_SECONDS: Final = 5.0
_CLOCKS_APART_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)


@dataclass(eq=False, repr=False)
class Lease:
    """One worker's lease on its rows. The first `renew` takes it. Calls `on_lost` whenever the lease turns out to be lost."""

    recorder: "Recorder"
    clock: Clock
    seconds: float
    on_lost: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self._ends = float("-inf")
        self._unpushed: set[int] = set()
        # Held while rows are claimed or given back, until they are in memory or gone from it: its holder sees every leased row of
        # this worker in memory.
        self._changing_hands = asyncio.Lock()
        self.worker_id = _new_id()
        self.interval_seconds = self.seconds / 3  # how often to renew: two may fail

    def held(self) -> bool:
        """True while no other worker can have taken over this worker's rows."""
        return self.clock.monotonic() < self._ends

    def covers(self, work: Work) -> bool:
        """True while no other worker can have taken over `work`: it was leased under this lease, which is still held."""
        return work.leased_by == self.worker_id and self.held()

    async def renew(self) -> bool:
        """Extends the lease. False if it was lost: this worker then has a new id, and holds nothing yet. Raises `StoreUnavailable`;
        the lease then runs on until it expires."""
        # Counted from before the request: other workers can see the new heartbeat only later.
        started = self.clock.monotonic()
        if await self.recorder.renew(self.worker_id, seconds=self.seconds):
            self._ends = started + self.seconds
            return True
        _log.warning("lease.lost", worker_id=self.worker_id)
        self.worker_id = _new_id()
        self._ends = float("-inf")
        self._unpushed.clear()
        self.on_lost()
        return False

    def note_unpushed(self, work_id: int) -> None:
        """Notes a row that was not pushed, and is no longer in memory: if it is leased to this worker, it must be given back."""
        self._unpushed.add(work_id)

    async def give_back(self, work_ids: Iterable[int]) -> None:
        """Gives back rows that have not started. Raises `StoreUnavailable`; they stay noted, and are given back later."""
        self._unpushed.update(work_ids)
        await self.give_back_unpushed()

    async def give_back_queued(self, withdraw: Callable[[], Collection[int]]) -> int:
        """Gives back the rows that `withdraw` takes from the account queues; returns how many. Calls it at once, so that none of
        them starts meanwhile, and again once all rows leased so far are queued. Raises as `give_back` does."""
        withdrawn = frozenset(withdraw())
        self._unpushed.update(withdrawn)
        async with self._changing_hands:
            late = frozenset(withdraw())
            self._unpushed.update(late)
            await self._release_unpushed()
            return len(withdrawn | late)

    async def give_back_unpushed(self) -> None:
        """Gives back the rows noted so far. Raises `StoreUnavailable`; they stay noted."""
        async with self._changing_hands:
            await self._release_unpushed()

    async def _release_unpushed(self) -> None:
        if unpushed := frozenset(self._unpushed):
            await self.recorder.release(self.worker_id, unpushed)
            self._unpushed -= unpushed

    async def abandon_strays(self, in_memory: Callable[[], Collection[int]]) -> None:
        """Abandons rows leased to this worker that are not `in_memory`, as if they were taken over: a commit whose response was
        lost came through late, or a bug prevented the recording of an outcome. Raises `StoreUnavailable`."""
        async with self._changing_hands:
            worker_id = self.worker_id
            held = frozenset(await self.recorder.leased_ids(worker_id))
            if strays := held.difference(in_memory(), self._unpushed):
                _log.warning("rows.strayed", worker_id=worker_id, count=len(strays))
                await self.recorder.abandon(worker_id, strays, now=self.clock.now())

    async def claim(self, claim: Callable[[str], Awaitable[Sequence[Work]]]) -> Sequence[Work]:
        """The rows that `claim` leases to this worker; the caller must put them into memory before it awaits anything. A row whose
        return got no response may be claimed again; then it is no longer noted to be given back."""
        async with self._changing_hands:
            works = await claim(self.worker_id)
            self._unpushed.difference_update(work.id for work in works)
            return works

    async def end(self) -> None:
        """Ends the lease now: other workers may take over the rows still held under it. Raises `StoreUnavailable`."""
        self._ends = float("-inf")
        await self.recorder.end_lease(self.worker_id)

    async def keep(self) -> bool:
        """Like `renew`, but True if the store is unavailable: the lease is not known to be lost."""
        try:
            return await self.renew()
        except StoreUnavailable as error:
            _log.warning("lease.not_renewed", worker_id=self.worker_id, error=str(error))
            return True


class LeaseWatch:
    """Finds out whose lease has run out, from reading the heartbeats of all lease holders every now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}

    def stopped(self, heartbeats: Sequence[Heartbeat]) -> Sequence[Heartbeat]:
        """The `heartbeats` that have not advanced for the length of their lease."""
        now = self._clock.monotonic()
        before, self._seen = self._seen, {}
        for heartbeat in heartbeats:
            sequence, since = before.get(heartbeat.worker_id, (None, now))
            self._seen[heartbeat.worker_id] = (heartbeat.sequence, since if sequence == heartbeat.sequence else now)
        return [each for each in heartbeats if now - self._seen[each.worker_id][1] >= each.lease_seconds]


@dataclass(eq=False, repr=False)
class StoreWatch:
    """The watch of one worker. `held`: the rows in its memory, as `Recorder.unclaimed` takes them; `lacking`: counts results on the
    topics that the store lacks. `behind` is set once the store is known to lack something; `lacks` has the counts."""

    lease: Lease
    held: Callable[[], Mapping[int, Work]]
    lacking: Lacking | None

    def __post_init__(self) -> None:
        self.recorder, self.clock = self.lease.recorder, self.lease.clock
        self._identity = self.recorder.identity
        self._changes = self._identity.changes
        self._whole: int | None = None  # the change after which it found nothing missing, while others had yet to look
        self._apart = self._clocks_apart()
        self._checking = asyncio.Lock()
        self._failures = 0
        self.behind = asyncio.Event()
        self.lacks: Mapping[str, int] = {}

    def in_doubt(self) -> bool:
        """Whether the store or the lease may have changed since the last check. Cheap, called before each push."""
        another = self._identity.changes != self._changes
        return another or abs(self._clocks_apart() - self._apart) > _CLOCKS_APART_SECONDS

    async def sure(self) -> bool:
        """Whether a push may start; checks the store first if that is in doubt. False if the check is not possible."""
        if not self.in_doubt():
            return True
        failures = self._failures
        async with self._checking:
            if self.behind.is_set() or self._failures != failures:  # one failure answers all pushes that waited
                return False
            if self.in_doubt() and not await self._check():
                self._failures += 1
                return False
            return True

    async def look(self) -> None:
        """Observes which database responds, checks it if it is another one, then waits. Raises `StoreUnavailable`."""
        await self.recorder.observe()
        await self.sure()
        await self.clock.sleep(_LOOK_SECONDS)

    async def _check(self) -> bool:
        changes, apart, database = self._identity.changes, self._clocks_apart(), self._identity.seen
        another = changes != self._changes
        try:
            if not await self.lease.renew():
                return False  # queued rows were withdrawn, other workers may have them; the next check is under a new lease
            lacks = {} if another and changes == self._whole else await self._lacks()
            if another and not lacks:
                self._whole = changes
                lacks = dict(await self.recorder.agree(self.lease.worker_id, database))
                if lacks.keys() == {"workers"}:
                    _log.info("store.others_check", workers=lacks["workers"])
                    return False
            # After that: a worker that cannot reach the log keeps no other one waiting.
            if self.lacking is not None:
                lacks |= await self.lacking(1_000)  # of each partition: another worker may have lost more than this one
            # Not where one has begun already, or the database was recreated: there is nothing to bring up to date.
            if another and lacks and not lacks.keys() & {"recoveries", "keys"}:
                await self.recorder.report_loss(self.clock.now())
        except (StoreUnavailable, LogUnavailable) as error:
            _log.warning("store.not_checked", error=str(error))
            return False
        if lacks:
            _log.error("store.behind_the_log", **lacks)
            self.lacks = lacks
            self.behind.set()
            return False
        _log.info("store.checked", another_database=another)
        self._changes, self._apart = changes, apart
        return True

    async def _lacks(self) -> dict[str, int]:
        before, now = self.held(), self.clock.now()
        unclaimed = await self.recorder.unclaimed(before)
        held = self.held()
        # Rows leave the memory before they are given back: only one that stayed there all the time was lost.
        lost = [work_id for work_id in unclaimed if held.get(work_id) is before[work_id]]
        lacks = dict(await self.recorder.lacking(now=now))
        if lost:
            self.recorder.remember_lost(lost, now)
            lacks["claims"] = len(lost)
        return lacks

    def _clocks_apart(self) -> float:
        return self.clock.now().timestamp() - self.clock.monotonic()


def _new_id() -> str:
    return f"worker-{secrets.token_hex(8)}"

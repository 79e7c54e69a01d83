"""The worker's lease: it holds its rows until a moment on its own monotonic clock, and starts no push after that.

The store keeps the lease under `worker_id`; it covers every row with that id. A worker that was suspended for longer than its lease
sees by its own clock that the lease has expired, before it sends another byte. The remaining gap: a process that is suspended for
longer than the lease between this check and the first byte on the wire.

No decision depends on a wall clock, so that a clock jump cannot end a lease that its holder still trusts. Each renewal advances a
heartbeat in the store, which the other workers watch. If a heartbeat does not advance for the length of its lease, by the watcher's
monotonic clock, that lease began before the watcher first saw it, and so has expired.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from forwarder.process.clock import Clock
from forwarder.store.submissions.port import Heartbeat, StoreUnavailable, Work

if TYPE_CHECKING:
    from forwarder.store.submissions.recorder import Recorder

_log = structlog.get_logger(__name__)


class Lease:
    """One worker's lease on its rows. The first `renew` takes it. Calls `on_lost` whenever the lease turns out to be lost."""

    def __init__(
        self, recorder: "Recorder", clock: Clock, seconds: float, on_lost: Callable[[], object] = lambda: None
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._seconds = seconds
        self._on_lost = on_lost
        self._ends = float("-inf")
        self._unpushed: set[int] = set()
        self._changing_hands = asyncio.Lock()
        """Held while rows are claimed or given back, until they are in memory or gone from it: its holder sees every leased row of
        this worker in memory."""
        self.worker_id = _new_id()

    @property
    def interval_seconds(self) -> float:
        """How often to renew: three times within a lease, so that two may fail."""
        return self._seconds / 3

    def held(self) -> bool:
        """True while no other worker can have taken over this worker's rows."""
        return self._clock.monotonic() < self._ends

    def covers(self, work: Work) -> bool:
        """True while no other worker can have taken over `work`: it was leased under this lease, which is still held."""
        return work.leased_by == self.worker_id and self.held()

    async def renew(self) -> bool:
        """Extends the lease. False if it was lost: this worker then has a new id, and holds nothing yet.

        Raises `StoreUnavailable`; the lease then runs on until it expires.
        """
        # Counted from before the request: other workers can see the new heartbeat only later.
        started = self._clock.monotonic()
        if await self._recorder.renew(self.worker_id, seconds=self._seconds):
            self._ends = started + self._seconds
            return True
        _log.warning("lease.lost", worker_id=self.worker_id)
        self.worker_id = _new_id()
        self._ends = float("-inf")
        self._unpushed.clear()
        self._on_lost()
        return False

    def note_unpushed(self, work_id: int) -> None:
        """Notes a row that was not pushed: the lease had expired when its turn came, or a push under an earlier lease is still in
        flight. If the row is leased to this worker, it must be given back, because it is no longer in memory."""
        self._unpushed.add(work_id)

    async def give_back(self, work_ids: Iterable[int]) -> None:
        """Gives back rows whose pushes have not started. Raises `StoreUnavailable`; the rows stay noted, and are given back
        later."""
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
        unpushed = frozenset(self._unpushed)
        if unpushed:
            await self._recorder.release(self.worker_id, unpushed)
            self._unpushed -= unpushed

    async def abandon_strays(self, in_memory: Callable[[], Collection[int]]) -> None:
        """Abandons rows that the store has leased to this worker but that are not `in_memory`, as if they were taken over: a commit
        whose response was lost came through late, or a bug prevented the recording of an outcome. Otherwise no worker would process
        them while this one lives. Raises `StoreUnavailable`."""
        async with self._changing_hands:
            worker_id = self.worker_id
            held = frozenset(await self._recorder.leased_ids(worker_id))
            strays = held.difference(in_memory(), self._unpushed)
            if strays:
                _log.warning("rows.strayed", worker_id=worker_id, count=len(strays))
                await self._recorder.abandon(worker_id, strays, now=self._clock.now())

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
        await self._recorder.end_lease(self.worker_id)

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
        return [
            heartbeat for heartbeat in heartbeats if now - self._seen[heartbeat.worker_id][1] >= heartbeat.lease_seconds
        ]


def _new_id() -> str:
    return f"worker-{secrets.token_hex(8)}"

"""The worker's lease: it holds its rows until a moment on its own monotonic clock, and starts no push after that.

The lease is kept in the store under `worker_id` and covers every row that bears it. A worker that was stopped for longer than
its lease finds out by its own clock that it holds nothing any more, before it sends another byte. What remains: a process that is
stopped for longer than the lease between this check and the first byte on the wire.

No wall clock decides anything here, so that no clock that jumps can end a lease that its holder still trusts. Each renewal
advances a heartbeat in the store, and the other workers watch it. A worker whose heartbeat stands still for the length of its
lease, on the monotonic clock of the one who watches, began that lease before it was first seen, and so has lost it.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

import structlog

from forwarder.process.clock import Clock
from forwarder.store.submissions.port import Recorder, StoreUnavailable
from forwarder.store.submissions.work import Heartbeat, Work

_log = structlog.get_logger(__name__)


class Lease:
    """One worker's hold on its rows. Taken by the first `renew`. `on_lost` is called whenever it turns out to be lost."""

    def __init__(
        self, recorder: Recorder, clock: Clock, seconds: float, on_lost: Callable[[], object] = lambda: None
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._seconds = seconds
        self._on_lost = on_lost
        self._ends = float("-inf")
        self._unpushed: set[int] = set()
        self._changing_hands = asyncio.Lock()
        """Held while rows are claimed or given back, until they are in memory or gone from it: so whoever holds it sees in memory
        all that this worker has leased."""
        self.worker_id = _new_id()

    @property
    def interval_seconds(self) -> float:
        """How often to renew: three times within a lease, so that two may fail."""
        return self._seconds / 3

    def held(self) -> bool:
        """True while nobody else can have taken over what this worker holds."""
        return self._clock.monotonic() < self._ends

    def covers(self, work: Work) -> bool:
        """True while nobody else can have taken over `work`: it was leased under this very lease, which is still held."""
        return work.leased_by == self.worker_id and self.held()

    async def renew(self) -> bool:
        """Extend the lease. False when it was lost: this is then a new worker, with a new id, that holds nothing yet.

        Raises `StoreUnavailable`; the lease then simply runs on to its end.
        """
        # Counted from before the request: whoever watches can see the new heartbeat only later.
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
        """A row was not pushed: the lease had run out when its turn came, or a push of it under an earlier lease is not over yet.
        If this worker has it leased all the same, it must be given back, for it is no longer in memory."""
        self._unpushed.add(work_id)

    async def give_back(self, work_ids: Iterable[int]) -> None:
        """Give back rows whose pushes have not started. Raises `StoreUnavailable`; they are then noted, and given back later."""
        self._unpushed.update(work_ids)
        await self.give_back_unpushed()

    async def give_back_queued(self, withdraw: Callable[[], Collection[int]]) -> int:
        """Give back what `withdraw` takes from the account queues; returns how many. It is called at once, so that nothing of that
        starts meanwhile, and again when all that was leased so far is in them. Raises as `give_back` does."""
        withdrawn = frozenset(withdraw())
        self._unpushed.update(withdrawn)
        async with self._changing_hands:
            late = frozenset(withdraw())
            self._unpushed.update(late)
            await self._release_unpushed()
            return len(withdrawn | late)

    async def give_back_unpushed(self) -> None:
        """Give back the rows noted so far. Raises `StoreUnavailable`; they stay noted."""
        async with self._changing_hands:
            await self._release_unpushed()

    async def _release_unpushed(self) -> None:
        unpushed = frozenset(self._unpushed)
        if unpushed:
            await self._recorder.release(self.worker_id, unpushed)
            self._unpushed -= unpushed

    async def abandon_strays(self, in_memory: Callable[[], Collection[int]]) -> None:
        """Give up, as if they were taken over, the rows that the store has leased to this worker and that are not `in_memory`: a
        commit whose response was lost came through late, or a bug kept an outcome from being recorded. Nobody would work on them
        for as long as this worker lives. Raises `StoreUnavailable`."""
        async with self._changing_hands:
            worker_id = self.worker_id
            held = frozenset(await self._recorder.leased_ids(worker_id))
            strays = held.difference(in_memory(), self._unpushed)
            if strays:
                _log.warning("rows.strayed", worker_id=worker_id, count=len(strays))
                await self._recorder.abandon(worker_id, strays, now=self._clock.now())

    async def claim(self, claim: Callable[[str], Awaitable[Sequence[Work]]]) -> Sequence[Work]:
        """What `claim` leases to this worker; the caller puts it into memory before it awaits anything. It may contain a row whose
        giving back got no response: now that it is leased anew, it is not given back any more."""
        async with self._changing_hands:
            works = await claim(self.worker_id)
            self._unpushed.difference_update(work.id for work in works)
            return works

    async def end(self) -> None:
        """End the lease now: others may take over whatever is still held under it. Raises `StoreUnavailable`."""
        self._ends = float("-inf")
        await self._recorder.end_lease(self.worker_id)

    async def keep(self) -> bool:
        """As `renew`, but True when the store could not be asked: nothing is known to be lost."""
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
        """Those of `heartbeats` that have not advanced for the length of their lease."""
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

"""The worker's lease: what it holds, it holds until a moment on its own monotonic clock, and not a push longer.

The lease is kept in the store under `worker_id` and covers every row that bears it. A worker that was stopped for longer than
its lease finds, on its own clock, that it holds nothing any more, before it sends another byte. The window that is left: a
process stopped between this check and the first byte on the wire, for longer than the lease.
"""

import secrets
from datetime import timedelta

import structlog

from forwarder.runtime.clock import Clock
from forwarder.store.port import Recorder, StoreUnavailable

_log = structlog.get_logger(__name__)


class Lease:
    """One worker's hold on its rows. Taken by the first `renew`."""

    def __init__(self, recorder: Recorder, clock: Clock, seconds: float) -> None:
        self._recorder = recorder
        self._clock = clock
        self._seconds = seconds
        self._ends = float("-inf")
        self._unpushed: set[int] = set()
        self.worker_id = _new_id()

    @property
    def interval_seconds(self) -> float:
        """How often to renew: three times within a lease, so that two may fail."""
        return self._seconds / 3

    def held(self) -> bool:
        """True while nobody else can have taken over what this worker holds."""
        return self._clock.monotonic() < self._ends

    async def renew(self) -> bool:
        """Prolong the lease. False when it was lost: then this is a new worker, with a new id, that holds nothing yet.

        Raises `StoreUnavailable`; the lease then simply runs on to its end.
        """
        # Counted from before the request: the store's end can only be later than what we believe.
        started, now = self._clock.monotonic(), self._clock.now()
        if await self._recorder.renew(self.worker_id, now=now, until=now + timedelta(seconds=self._seconds)):
            self._ends = started + self._seconds
            return True
        _log.warning("lease.lost", worker_id=self.worker_id)
        self.worker_id = _new_id()
        self._ends = float("-inf")
        self._unpushed.clear()
        return False

    def note_unpushed(self, work_id: int) -> None:
        """A row was left, because the lease had run out when its turn came. Where nobody took it over before the lease was
        renewed it is still this worker's, and has to be given back: in memory it is nobody's."""
        self._unpushed.add(work_id)

    async def give_back_unpushed(self) -> None:
        """Give back the rows noted so far. Raises `StoreUnavailable`; they stay noted."""
        unpushed = frozenset(self._unpushed)
        if unpushed:
            await self._recorder.release(self.worker_id, unpushed)
            self._unpushed -= unpushed

    async def give_up(self) -> None:
        """Let go at once of whatever is still held under this lease. Raises `StoreUnavailable`."""
        now = self._clock.now()
        self._ends = float("-inf")
        await self._recorder.renew(self.worker_id, now=now, until=now)

    async def keep(self) -> bool:
        """As `renew`, but True when the store could not be asked: nothing is known to be lost."""
        try:
            return await self.renew()
        except StoreUnavailable as error:
            _log.warning("lease.not_renewed", worker_id=self.worker_id, error=str(error))
            return True


def _new_id() -> str:
    return f"worker-{secrets.token_hex(8)}"

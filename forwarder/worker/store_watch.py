"""Checks that the store is still the one that acknowledged this worker's work. The worker pushes nothing while that is in doubt.

It is in doubt when a connection leads to another database or to a restarted one (a failover, a restore), and when the wall clock
moved against the monotonic clock (a paused virtual machine, whose lease may have expired unnoticed). Then the worker renews its
lease, and checks that the store has everything that it acknowledged to this worker, and all results on the topics. A missing row
proves that transactions were lost: the worker then stops all its loops; a worker that starts on such a store does not begin.

What another worker pushed looks free in a database that lost its claim. So after a failover no worker pushes before each has
checked, or lost its lease; and one that finds a loss begins a recovery, which all of them wait for.

It cannot detect that the database lost a claim of another worker which died during its push without publishing an outcome, nor that
it lost a worker altogether, which started within the seconds that are missing. A synchronous standby loses none.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import structlog

from forwarder.process.clock import Clock
from forwarder.store.submissions.port import StoreUnavailable, Work
from forwarder.topics.port import LogUnavailable
from forwarder.worker.lease import Lease
from forwarder.worker.parts import Lacking

if TYPE_CHECKING:
    from forwarder.store.submissions.recorder import Recorder

_LOOK_SECONDS: Final = 5.0
_LOOKED_AT: Final = 1_000
"""Messages of each partition: another worker may have lost more than this one."""
_CLOCKS_APART_SECONDS: Final = 5.0
_NO_RECOVERY: Final = frozenset({"recoveries", "keys"})
"""Where one has begun already, or the database was created anew: there is nothing to bring up to date."""

_log = structlog.get_logger(__name__)


class StoreWatch:
    """The watch of one worker. `held`: the rows in its memory, as `Recorder.unclaimed` takes them; `lacking`: counts results on the
    topics that the store lacks.

    `behind` is set once the store is known to lack something; `lacks` has the counts.
    """

    def __init__(
        self,
        recorder: "Recorder",
        lease: Lease,
        clock: Clock,
        *,
        held: Callable[[], Mapping[int, Work]],
        lacking: Lacking | None,
    ) -> None:
        self._recorder = recorder
        self._lease = lease
        self._clock = clock
        self._held = held
        self._lacking = lacking
        self._changes = recorder.changes
        self._whole: int | None = None
        """The change after which this worker found nothing missing, while others had yet to look."""
        self._apart = self._clocks_apart()
        self._checking = asyncio.Lock()
        self._failures = 0
        self.behind = asyncio.Event()
        self.lacks: Mapping[str, int] = {}

    def in_doubt(self) -> bool:
        """Whether the store or the lease may have changed since the last check. Cheap, called before each push."""
        return (
            self._recorder.changes != self._changes or abs(self._clocks_apart() - self._apart) > _CLOCKS_APART_SECONDS
        )

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
        await self._recorder.observe()
        await self.sure()
        await self._clock.sleep(_LOOK_SECONDS)

    async def _check(self) -> bool:
        changes, apart, database = self._recorder.changes, self._clocks_apart(), self._recorder.database
        another = changes != self._changes
        try:
            if not await self._lease.renew():
                return False  # queued rows were withdrawn, other workers may have them; the next check is under a new lease
            lacks = {} if another and changes == self._whole else await self._lacks()
            if another and not lacks:
                self._whole = changes
                lacks = dict(await self._recorder.agree(self._lease.worker_id, database))
                if lacks.keys() == {"workers"}:
                    _log.info("store.others_check", workers=lacks["workers"])
                    return False
            # After that: a worker that cannot reach the log keeps no other one waiting.
            if self._lacking is not None:
                lacks |= await self._lacking(_LOOKED_AT)
            if another and lacks and not lacks.keys() & _NO_RECOVERY:
                await self._recorder.report_loss(self._clock.now())
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
        before, now = self._held(), self._clock.now()
        unclaimed = await self._recorder.unclaimed(before)
        held = self._held()
        # Rows leave the memory before they are given back: only one that stayed there all the time was lost.
        lost = [work_id for work_id in unclaimed if held.get(work_id) is before[work_id]]
        lacks = dict(await self._recorder.lacking(now=now))
        if lost:
            self._recorder.remember_lost(lost, now)
            lacks["claims"] = len(lost)
        return lacks

    def _clocks_apart(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

"""Whether the store is still the one that acknowledged this worker's work. Nothing is pushed while that is in doubt.

In doubt it is when a connection leads to another database or to one that restarted (a failover, a restore), and when the wall clock
moved against the monotonic clock (a virtual machine that was paused: its lease may have run out unseen). Then the worker renews its
lease, and asks the store for exactly what it was told is durable, and the topics for what else was done. What lacks is proof that
transactions were lost: the worker then stops all its loops, as one that starts on such a store does not begin.

What it cannot know: a claim that another worker made and that the database lost, where that worker died over its push without
publishing an outcome. A synchronous standby loses none.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog

from forwarder.process.clock import Clock
from forwarder.store.submissions.port import Recorder, StoreUnavailable
from forwarder.topics.port import LogUnavailable
from forwarder.worker.lease import Lease
from forwarder.worker.parts import Lacking

_LOOK_SECONDS: Final = 5.0
_LOOKED_AT: Final = 1_000
"""Messages of each partition: another worker may have lost more than this one."""
_CLOCKS_APART_SECONDS: Final = 5.0
_SETTLES_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class StoreWatch:
    """Of one worker. `held`: the ids of the rows in its memory; `lacking`: what the topics tell and the store lacks.

    `behind` is set once the store is known to lack something; `lacks` says how much of what.
    """

    def __init__(
        self,
        recorder: Recorder,
        lease: Lease,
        clock: Clock,
        *,
        held: Callable[[], Collection[int]],
        lacking: Lacking | None,
    ) -> None:
        self._recorder = recorder
        self._lease = lease
        self._clock = clock
        self._held = held
        self._lacking = lacking
        self._changes = recorder.changes
        self._apart = self._clocks_apart()
        self._checking = asyncio.Lock()
        self._failures = 0
        self.behind = asyncio.Event()
        self.lacks: Mapping[str, int] = {}

    def in_doubt(self) -> bool:
        """Whether the store, or the lease, may not be what it was at the last check. Cheap: asked before each push."""
        return (
            self._recorder.changes != self._changes or abs(self._clocks_apart() - self._apart) > _CLOCKS_APART_SECONDS
        )

    async def sure(self) -> bool:
        """Whether a push may start; where that is in doubt, the store is asked first. False too while it cannot be asked."""
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
        """Look which database answers, check it where that is another one, then wait. Raises `StoreUnavailable`."""
        await self._recorder.observe()
        await self.sure()
        await self._clock.sleep(_LOOK_SECONDS)

    async def _check(self) -> bool:
        changes, apart = self._recorder.changes, self._clocks_apart()
        try:
            if not await self._lease.renew():
                return False  # what waited is others' now, and was withdrawn; the next check is under a new lease
            lacks = await self._lacks()
            if self._lacking is not None:
                lacks |= await self._lacking(_LOOKED_AT)
        except (StoreUnavailable, LogUnavailable) as error:
            _log.warning("store.not_checked", error=str(error))
            return False
        if lacks:
            self.lacks = lacks
            self.behind.set()
            return False
        _log.info("store.checked", another_database=changes != self._changes)
        self._changes, self._apart = changes, apart
        return True

    async def _lacks(self) -> dict[str, int]:
        held = frozenset(self._held())
        lacks = await self._recorder.lacking(held, now=self._clock.now())
        if "claims" in lacks:
            # A row whose outcome was recorded at this moment is in memory a little longer: only what stays there proves anything.
            await self._clock.sleep(_SETTLES_SECONDS)
            held &= frozenset(self._held())
            lacks = await self._recorder.lacking(held, now=self._clock.now())
            if "claims" in lacks:
                self._recorder.remember_lost(held, self._clock.now())
        return dict(lacks)

    def _clocks_apart(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

"""The lanes under way: one for each endpoint that something is due for, so many at most, those of failing endpoints last.

Thus an endpoint that hangs has its own few posts and its own lane, and however many of them hang, half of the lanes are for others.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import structlog

from forwarder.notifier.backoff import Backoff
from forwarder.process.loops import cancel_all

_log = structlog.get_logger(__name__)


class EndpointDispatcher:
    """Starts lanes and keeps them apart."""

    def __init__(self, run: Callable[[str], Coroutine[Any, Any, None]], rests: Backoff, *, at_most: int) -> None:
        self._run = run
        self._rests = rests
        self._at_most = at_most
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._failing: set[str] = set()
        self._broken: asyncio.Future[None] | None = None
        self.crowded = False
        """Whether somebody found no place when last looked: then a lane ends after a few posts, so that others have a turn."""

    def start(self, endpoint_ids: Iterable[str]) -> None:
        """Start the lanes of those endpoints, but for those that rest, have one, or find no place: they are due still."""
        wanted = [one for one in endpoint_ids if one not in self._under_way and not self._rests.resting(one)]
        random.shuffle(wanted)  # whoever finds no place is not the last in the row the next time too
        wanted.sort(key=self._rests.failing)
        self.crowded = False
        for endpoint_id in wanted:
            if not self._place_for(endpoint_id):
                self.crowded = not self._rests.failing(endpoint_id)
                return
            self._start_one(endpoint_id)

    def _place_for(self, endpoint_id: str) -> bool:
        full = len(self._under_way) >= self._at_most
        return not full and not (self._rests.failing(endpoint_id) and len(self._failing) >= self._at_most // 2)

    def _start_one(self, endpoint_id: str) -> None:
        if self._rests.failing(endpoint_id):
            self._failing.add(endpoint_id)
        task = asyncio.create_task(self._run(endpoint_id))
        self._under_way[endpoint_id] = task
        task.add_done_callback(partial(self._end, endpoint_id))

    async def watch(self) -> None:
        """Never returns; raises what a lane raised, which is a bug."""
        self._broken = asyncio.get_running_loop().create_future()
        await self._broken

    async def finish(self, seconds: float) -> int:
        """Wait for the lanes under way, at most so long, then break off; how many were broken off."""
        tasks = list(self._under_way.values())
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=seconds)
        await cancel_all(late)
        return len(late)

    def _end(self, endpoint_id: str, ended: asyncio.Future[None]) -> None:
        del self._under_way[endpoint_id]
        self._failing.discard(endpoint_id)
        error = None if ended.cancelled() else ended.exception()
        if error is None:
            return
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)
        else:
            _log.error("webhook.lane_broke", endpoint_id=endpoint_id, error=type(error).__name__)

"""One real recorder as a worker uses it, with pushes that only take time: whether what is under way stays its own."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from forwarder.store.engine import Engine
from forwarder.store.submissions.port import StoreUnavailable, Work
from forwarder.store.submissions.recorder import Recorder
from tests.support.store.stored import arrivals, final, lease
from tests.support.worker.works import NOW

T = TypeVar("T")

_WORKER = "w1"
_BATCH = 8
_CLAIM = 20
_QUIET_SECONDS = 2.0


class Holding:
    """`pushed` are the rows whose push began; `pushed_again` those of them that were leased once more as surely not sent."""

    def __init__(self, engine: Engine, chance: random.Random) -> None:
        self._recorder = Recorder(engine)
        self._random = chance
        self._under_way: set[int] = set()
        self._not_offered: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.pushed: set[int] = set()
        self.pushed_again: list[int] = []
        self.outages = 0

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Take in, claim, push and record, for as long as the block runs; then let what is under way come to its end."""
        await self._keep_trying(lambda: lease(self._recorder, _WORKER))
        loops = [asyncio.create_task(self._ingest()), asyncio.create_task(self._sweep())]
        try:
            yield
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_QUIET_SECONDS)
            for task in self._tasks:
                task.cancel()

    async def _ingest(self) -> None:
        first = 1
        while True:
            batch = arrivals(range(first, first + _BATCH), held=False)
            first += _BATCH
            self._start(await self._keep_trying(partial(self._recorder.ingest, _WORKER, batch, now=NOW)))

    async def _sweep(self) -> None:
        while True:
            given_back = frozenset(self._not_offered)
            await self._keep_trying(partial(self._recorder.release, _WORKER, given_back))
            self._not_offered -= given_back
            due = partial(self._recorder.claim, _WORKER, "acc", range(16), now=NOW, limit=_CLAIM)
            self._start(await self._keep_trying(due))
            await asyncio.sleep(0)

    def _start(self, works: Iterable[Work]) -> None:
        for work in works:
            if work.id in self._under_way:
                self._not_offered.add(work.id)
                continue
            if work.id in self.pushed and not work.possibly_sent:
                self.pushed_again.append(work.id)
            self.pushed.add(work.id)
            self._under_way.add(work.id)
            task = asyncio.create_task(self._push(work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _push(self, work: Work) -> None:
        await asyncio.sleep(self._random.uniform(0.02, 0.2))  # the PMS
        await self._keep_trying(lambda: self._recorder.record(_WORKER, [final(work)], []))
        self._under_way.discard(work.id)

    async def _keep_trying(self, step: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await step()
            except StoreUnavailable:
                self.outages += 1
                await asyncio.sleep(self._random.uniform(0.05, 0.1))  # as a worker pauses first

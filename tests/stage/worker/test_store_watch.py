"""What keeps pushes from starting while it is in doubt whether the store is still the one that acknowledged this worker's work."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import cast

from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.worker.lease import Lease
from forwarder.worker.store_watch import StoreWatch
from tests.support.memory.clock import ManualClock, settle


class _Store:
    """`changes` when it is another database. It answers a renewal once `answering` is set, and is away until `there`."""

    database = "one"

    def __init__(self) -> None:
        self.changes = 0
        self.renewals = 0
        self.there = False
        self.answering = asyncio.Event()

    async def renew(self, _worker_id: str, *, seconds: float) -> bool:
        self.renewals += 1
        await self.answering.wait()
        if not self.there:
            raise StoreUnavailable("away")
        return seconds > 0

    async def agree(self, _worker_id: str, _database: str | None) -> Mapping[str, int]:
        return {}

    async def lacking(self, _held: Mapping[int, int], *, now: datetime) -> Mapping[str, int]:
        return {}


async def test_one_question_serves_all_pushes_that_wait_for_a_store_in_doubt() -> None:
    store, clock = _Store(), ManualClock()
    recorder = cast("Recorder", store)
    watch = StoreWatch(recorder, Lease(recorder, clock, 30.0), clock, held=dict, lacking=None)
    assert await watch.sure()
    assert store.renewals == 0
    for there, asked in ((False, 1), (True, 2)):
        store.changes, store.there = 1, there
        store.answering.clear()
        waiting = [asyncio.create_task(watch.sure()) for _ in range(50)]
        await settle()
        store.answering.set()
        assert await asyncio.gather(*waiting) == [there] * 50
        assert store.renewals == asked
    assert not watch.in_doubt()


async def test_a_push_that_waited_starts_although_the_clock_jumped_again_meanwhile() -> None:
    store, clock = _Store(), ManualClock()
    store.there = True
    recorder = cast("Recorder", store)
    watch = StoreWatch(recorder, Lease(recorder, clock, 30.0), clock, held=dict, lacking=None)
    clock.jump(3600)
    waiting = [asyncio.create_task(watch.sure()) for _ in range(5)]
    await settle()
    clock.jump(-3600)
    store.answering.set()
    assert await asyncio.gather(*waiting) == [True] * 5
    assert not watch.in_doubt()

"""What keeps pushes from starting while it is in doubt whether the store is still the one that acknowledged this worker's work."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import cast

import pytest

from forwarder.store.engine import StoreIdentity
from forwarder.store.submissions.port import StoreUnavailable, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.worker.lease import Lease, StoreWatch
from tests.support.memory.clock import ManualClock, settle
from tests.support.worker.works import work


class _Store:
    """Its `identity` changes when it is another database. It answers a renewal once `answering` is set; away until `there`."""

    def __init__(self) -> None:
        self.identity = StoreIdentity(seen="one")
        self.renewals = 0
        self.there = False
        self.answering = asyncio.Event()
        self.reading: Callable[[], object] = lambda: None
        self.lost: set[int] = set()

    async def renew(self, _worker_id: str, *, seconds: float) -> bool:
        self.renewals += 1
        await self.answering.wait()
        if not self.there:
            raise StoreUnavailable("away")
        return seconds > 0

    async def agree(self, _worker_id: str, _database: str | None) -> Mapping[str, int]:
        return {}

    async def unclaimed(self, held: Mapping[int, Work]) -> Collection[int]:
        self.reading()
        return list(held)

    def remember_lost(self, work_ids: Collection[int], _now: datetime) -> None:
        self.lost.update(work_ids)

    async def report_loss(self, _now: datetime) -> None:
        """A recovery begins."""

    async def lacking(self, *, now: datetime) -> Mapping[str, int]:
        return {}


async def test_one_question_serves_all_pushes_that_wait_for_a_store_in_doubt() -> None:
    store, clock = _Store(), ManualClock()
    recorder = cast("Recorder", store)
    watch = StoreWatch(Lease(recorder, clock, 30.0), held=dict, lacking=None)
    assert await watch.sure()
    assert store.renewals == 0
    for there, asked in ((False, 1), (True, 2)):
        store.identity.changes, store.there = 1, there
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
    watch = StoreWatch(Lease(recorder, clock, 30.0), held=dict, lacking=None)
    clock.jump(3600)
    waiting = [asyncio.create_task(watch.sure()) for _ in range(5)]
    await settle()
    clock.jump(-3600)
    store.answering.set()
    assert await asyncio.gather(*waiting) == [True] * 5
    assert not watch.in_doubt()


@pytest.mark.parametrize("claimed_again", [False, True])
async def test_a_row_that_is_given_back_while_the_store_is_read_was_not_lost(*, claimed_again: bool) -> None:
    store, clock = _Store(), ManualClock()
    store.there = True
    store.answering.set()
    recorder = cast("Recorder", store)
    held = {number: work(number) for number in (1, 2)}
    watch = StoreWatch(Lease(recorder, clock, 30.0), held=lambda: dict(held), lacking=None)
    store.identity.changes = 1
    store.reading = lambda: held.update({2: work(2)}) if claimed_again else held.pop(2)
    assert not await watch.sure()
    assert (store.lost, watch.lacks) == ({1}, {"claims": 1})

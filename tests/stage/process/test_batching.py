"""Group commit: what is handed in while a batch is under way goes down together, and everybody learns of their own part."""

import asyncio
from collections.abc import Sequence

import pytest

from forwarder.observability.logging import bind_log_context, merge_log_context
from forwarder.process.loops import Batcher, Where


class _Recorder:
    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        await self.gate.wait()
        if 13 in items:
            raise ValueError("thirteen")
        return [item * 10 for item in items]


async def test_a_lone_item_goes_at_once() -> None:
    recorder = _Recorder()
    assert await Batcher(recorder, where=Where.OUTBOX, max_items=10).submit(1) == 10
    assert recorder.batches == [[1]]


async def test_items_that_come_while_a_batch_is_under_way_go_together_in_order() -> None:
    recorder = _Recorder()
    recorder.gate.clear()
    batcher: Batcher[int, int] = Batcher(recorder, where=Where.OUTBOX, max_items=3)
    first = asyncio.create_task(batcher.submit(1))
    while not recorder.batches:
        await asyncio.sleep(0)
    rest = [asyncio.create_task(batcher.submit(item)) for item in (2, 3, 4, 5)]
    await asyncio.sleep(0)
    recorder.gate.set()
    assert await asyncio.gather(first, *rest) == [10, 20, 30, 40, 50]
    assert recorder.batches == [[1], [2, 3, 4], [5]]


async def test_an_item_that_raises_fails_alone() -> None:
    recorder = _Recorder()
    batcher: Batcher[int, int] = Batcher(recorder, where=Where.OUTBOX, max_items=2)
    results = await asyncio.gather(*(batcher.submit(item) for item in (1, 13, 2)), return_exceptions=True)
    assert [type(result) for result in results] == [int, ValueError, int]


async def test_drain_waits_for_what_nobody_else_waits_for() -> None:
    recorder = _Recorder()
    batcher: Batcher[int, int] = Batcher(recorder, where=Where.OUTBOX, max_items=10)
    batcher.post(1)
    batcher.post(13)
    await batcher.drain()
    assert recorder.batches == [[1, 13], [1], [13]]


async def test_giving_up_waiting_does_not_take_the_item_back() -> None:
    recorder = _Recorder()
    recorder.gate.clear()
    batcher: Batcher[int, int] = Batcher(recorder, where=Where.OUTBOX, max_items=10)
    waiting = asyncio.create_task(batcher.submit(1))
    while not recorder.batches:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    recorder.gate.set()
    assert await batcher.submit(2) == 20


async def test_after_a_crowd_the_next_batch_gathers_for_a_while() -> None:
    recorder = _Recorder()
    batcher: Batcher[int, int] = Batcher(recorder, where=Where.OUTBOX, max_items=10, pause_seconds=0.05)
    await asyncio.gather(*(batcher.submit(item) for item in (1, 2, 3)))
    batcher.post(4)
    for _ in range(10):
        await asyncio.sleep(0)
    await batcher.submit(5)
    assert recorder.batches == [[1, 2, 3], [4, 5]]


async def test_after_a_few_it_does_not() -> None:
    recorder = _Recorder()
    batcher: Batcher[int, int] = Batcher(recorder, where=Where.OUTBOX, max_items=10, pause_seconds=3600.0)
    for item in range(5):
        await batcher.submit(item)
    assert len(recorder.batches) == 5


async def test_what_serves_many_has_nothing_of_who_began_it() -> None:
    """Else the lines that it logs would name the request of one of them, and its transactions write what that one enlisted."""
    seen = []

    async def look(items: Sequence[int]) -> Sequence[int]:
        seen.append(merge_log_context(None, "info", {}))
        return items

    async def request(number: int) -> None:
        bind_log_context(http_request_id=str(number))
        await batcher.submit(number)

    batcher: Batcher[int, int] = Batcher(look, where=Where.OUTBOX, max_items=1)
    await asyncio.gather(*(asyncio.create_task(request(number)) for number in range(2)))
    assert seen == [{}, {}]

"""What pages share: read once for everybody, and nobody waits longer than they say."""

import asyncio

import pytest

from forwarder.console.service import Recent
from forwarder.topics.port import LogUnavailable
from tests.support.memory.clock import ManualClock, settle


class Source:
    """Counts how often it is read; answers once it is let."""

    def __init__(self) -> None:
        self.reads = 0
        self.let = asyncio.Event()
        self.fault: Exception | None = None

    async def read(self) -> int:
        self.reads += 1
        await self.let.wait()
        if self.fault is not None:
            raise self.fault
        return self.reads


async def test_who_does_not_wait_so_long_gets_nothing_and_it_is_read_on() -> None:
    source, clock = Source(), ManualClock()
    recent = Recent(source.read, clock)
    assert await recent.within(0.001) is None
    assert await recent.within(0.001) is None
    source.let.set()
    assert await recent.get() == 1
    await clock.advance(2.0)
    assert await recent.within(60.0) == 1
    assert (source.reads, recent.age_seconds) == (1, 2.0)


async def test_what_was_read_for_somebody_who_left_is_not_shown_long_after() -> None:
    source, clock = Source(), ManualClock()
    recent = Recent(source.read, clock)
    assert await recent.within(0.001) is None
    source.let.set()
    assert await recent.get() == 1
    await clock.advance(3_600.0)
    assert await recent.within(60.0) == 2


async def test_what_was_read_before_a_change_is_not_shown_after_it() -> None:
    source, clock = Source(), ManualClock()
    recent = Recent(source.read, clock)
    source.let.set()
    assert await recent.get() == 1
    await clock.advance(5.0)
    source.let.clear()
    assert await recent.get() == 1
    await settle()  # it is being read anew
    await clock.advance(1.0)
    recent.forget()
    source.let.set()
    await settle()
    assert (source.reads, await recent.get()) == (2, 3)


async def test_a_failure_is_raised_to_whoever_waits_for_it_and_tried_again() -> None:
    source = Source()
    recent = Recent(source.read, ManualClock())
    source.fault = LogUnavailable("no broker")
    source.let.set()
    for _ in range(2):
        with pytest.raises(LogUnavailable):
            await recent.within(60.0)
    source.fault = None
    assert await recent.within(60.0) == 3


async def test_a_failure_after_everybody_left_hides_nothing() -> None:
    source = Source()
    recent = Recent(source.read, ManualClock())
    assert await recent.within(0.001) is None
    source.fault = LogUnavailable("no broker")
    source.let.set()
    with pytest.raises(LogUnavailable):
        await recent.within(60.0)
    source.fault = None
    assert await recent.within(60.0) == 2

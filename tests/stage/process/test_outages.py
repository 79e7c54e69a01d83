"""What is tried again and again says when it failed, while it fails, and when it works again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from forwarder.process.loops import Outage, Where, cancel_all, forever
from tests.support.memory.clock import ManualClock, settle


class Away(Exception):
    """An outage."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def told_by(clock: ManualClock, step: Callable[[], Awaitable[None]], outage: Outage | None = None) -> list[Any]:
    """What is told within four minutes."""
    with capture_logs() as told:
        running = asyncio.create_task(forever(step, name=Where.INTAKE, clock=clock, outages=(Away,), outage=outage))
        for _ in range(240):
            await settle()
            await clock.advance(1.0)
        await cancel_all([running])
    return [(each["event"], round(each["seconds"], -1)) for each in told]


async def test_an_outage_that_lasts_is_told_of_every_minute(clock: ManualClock) -> None:
    async def step() -> None:
        if clock.monotonic() < 150.0:
            raise Away
        await clock.sleep(1000.0)

    began, *still = [("intake.interrupted", 0.0), ("intake.interrupted", 60.0), ("intake.interrupted", 120.0)]
    assert await told_by(clock, step) == [began, *still]


async def test_each_outage_of_what_works_for_long_is_told_of(clock: ManualClock) -> None:
    """Such a step, which reads a topic until it fails, does not return in between."""
    outage = Outage(Where.INTAKE, clock)

    async def step() -> None:
        if clock.monotonic() % 100.0 < 10.0:
            raise Away
        outage.over()
        await clock.sleep(100.0 - clock.monotonic() % 100.0)
        raise Away

    assert await told_by(clock, step, outage) == [("intake.interrupted", 0.0), ("intake.resumed", 10.0)] * 3

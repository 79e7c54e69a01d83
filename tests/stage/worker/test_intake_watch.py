"""A worker whose intake does not go on says so, whatever it waits for, and is not ready."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from forwarder.observability.metrics import registry
from forwarder.process.clock import Clock
from forwarder.topics.port import ConsumedMessage, Consumer
from forwarder.worker.intake import STALLED_SECONDS, IntakeWatch
from tests.support.memory.clock import ManualClock
from tests.support.worker.worker_bench import PATIENCE_SECONDS, Bench, fresh, open_bench


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(data_dir) as opened:
        yield opened


class _Hanging:
    """A log whose consumer hangs in `commit` until it is told to go on."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.hangs, self.go_on = asyncio.Event(), asyncio.Event()

    def consumer(self, *arguments: Any, **named: Any) -> AbstractAsyncContextManager[Consumer]:
        return self._opened(self._log.consumer(*arguments, **named))

    @asynccontextmanager
    async def _opened(self, opening: AbstractAsyncContextManager[Consumer]) -> AsyncIterator[Any]:
        async with opening as consumer:
            commit = consumer.commit

            async def hang(messages: Sequence[ConsumedMessage]) -> None:
                self.hangs.set()
                await self.go_on.wait()
                await commit(messages)

            consumer.commit = hang  # type: ignore[method-assign]
            yield consumer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


async def test_a_worker_whose_intake_hangs_is_not_ready(bench: Bench) -> None:
    log = bench.log = _Hanging(bench.log)  # type: ignore[assignment]
    bench.settings = replace(bench.settings, lease_seconds=10 * STALLED_SECONDS)
    async with bench.worker() as worker, asyncio.timeout(PATIENCE_SECONDS):
        await _when(worker.consuming)
        await bench.submit(fresh(1))
        await log.hangs.wait()
        assert worker.consuming()
        bench.clock.skip(STALLED_SECONDS)
        assert not worker.consuming()
        log.go_on.set()
        await _when(worker.consuming)


async def test_how_long_it_lasts_is_a_metric_and_its_beginning_and_end_are_told() -> None:
    clock = ManualClock()
    watch = IntakeWatch(clock)
    with capture_logs() as told:
        assert await _look(watch, clock) == 0
        watch.doing = "commit"
        await clock.advance(10.0)
        assert await _look(watch, clock) == 0
        await clock.advance(19.75)
        assert (await _look(watch, clock), told) == (29.75, [])
        await clock.advance(0.25)
        assert await _look(watch, clock) == 30.0
        assert await _look(watch, clock) == 30.0
        watch.went_on()
        assert await _look(watch, clock) == 0
        await clock.advance(31.25)
        assert await _look(watch, clock) == 31.25
    assert [(each["event"], each.get("seconds"), each.get("at")) for each in told] == [
        ("intake.stalled", 30.0, "commit"),
        ("intake.went_on", None, None),
        ("intake.stalled", 31.2, "commit"),
    ]


async def _look(watch: IntakeWatch, clock: Clock) -> float:
    """What the metric says after a look."""
    assert isinstance(clock, ManualClock)
    looking = asyncio.create_task(watch.look())
    await clock.advance(0)
    seconds = registry().get_sample_value("forwarder_intake_stalled_seconds")
    looking.cancel()
    assert seconds is not None
    return seconds


async def _when(come_about: Any) -> None:
    while not come_about():
        await asyncio.sleep(0.01)

"""Rate limits across processes, on every backend: what they learn of each other, and how much they let through together.

Each `RateLimits` stands for a process. Time is the test's own, in the database too.
"""

import asyncio
import random
from collections.abc import Sequence

import pytest
from sqlalchemy import ColumnElement, Double, literal_column, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.engine import open_engine
from forwarder.tenancy.access import EXCHANGE_SECONDS, MIN_PAUSE_SECONDS, Consumption, RateLimits
from forwarder.tenancy.port import RateLimit, TenancyUnavailable
from forwarder.tenancy.sql.database import key_usage
from forwarder.tenancy.sql.directory import SqlUsage
from tests.support.memory.clock import ManualClock
from tests.support.store.stored import NOBODY_LISTENS

LIMIT = RateLimit(40, 20)
RATE = LIMIT.requests / LIMIT.seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def usage(engine: AsyncEngine, clock: ManualClock) -> SqlUsage:
    """By the test's clock."""

    return SqlUsage(engine, lambda: at(clock.monotonic()))


def at(seconds: float) -> ColumnElement[float]:
    """As the database would say it."""
    return literal_column(f"CAST({seconds!r} AS DOUBLE PRECISION)", Double())


class Processes:
    """Four that serve one key, and what they let through: when, and which of them."""

    def __init__(self, clock: ManualClock, usage: SqlUsage) -> None:
        self.clock = clock
        self.each = [RateLimits(clock, LIMIT) for _ in range(4)]
        self.let_through: list[tuple[float, int]] = []
        self.refused = 0
        self._usage = usage
        self._exchanged = [0.0] * 4
        self._untold = [0] * 4
        self.most_untold = 0

    def call(self, process: int) -> None:
        allowance = self.each[process].take("key", None)
        assert allowance is not None
        if not allowance.admitted:
            self.refused += 1
            return
        self.let_through.append((self.clock.monotonic(), process))
        self._untold[process] += 1
        self.most_untold = max(self.most_untold, self._untold[process])

    async def exchange(self, process: int) -> None:
        await self.each[process].exchange(self._usage)
        self._exchanged[process] = self.clock.monotonic()
        self._untold[process] = 0

    async def pass_time(self, seconds: float) -> None:
        """And let each exchange for which it is time."""
        await self.clock.advance(seconds)
        for process, limits in enumerate(self.each):
            pause = MIN_PAUSE_SECONDS if limits.report_due.is_set() else EXCHANGE_SECONDS
            if self.clock.monotonic() - self._exchanged[process] >= pause:
                await self.exchange(process)

    def most_within(self, seconds: float) -> int:
        """Of any period so long: the most that were let through."""
        moments = [moment for moment, _ in self.let_through]
        return max(sum(start <= moment < start + seconds for moment in moments) for start in moments)


@pytest.mark.parametrize("calls_a_second", [10, pytest.param(400, marks=pytest.mark.slow)])
async def test_four_processes_keep_to_the_limit_within_what_is_promised(
    calls_a_second: int, clock: ManualClock, usage: SqlUsage
) -> None:
    """Flooded with much more than is allowed, the caller moving from process to process."""
    processes, chance = Processes(clock, usage), random.Random(7)
    step, duration = 0.05, 2 * LIMIT.seconds
    for number in range(int(duration / step)):
        favourite = number // 100 % 4
        for _ in range(int(calls_a_second * step) or number % 2):
            processes.call(chance.choice([favourite, favourite, chance.randrange(4)]))
        await processes.pass_time(step)
    late = EXCHANGE_SECONDS + step
    for seconds in (1, LIMIT.seconds, duration):
        promised = LIMIT.requests * (1 + (seconds + late) / LIMIT.seconds) + 3 * processes.most_untold
        assert processes.most_within(seconds) <= promised
    assert len(processes.let_through) >= RATE * duration
    assert processes.most_untold <= LIMIT.requests / 10 + calls_a_second * (MIN_PAUSE_SECONDS + step)
    assert processes.refused


async def test_a_burst_upon_all_at_once_is_the_most_that_is_too_much_and_is_paid_back(
    clock: ManualClock, usage: SqlUsage
) -> None:
    processes = Processes(clock, usage)
    for process in range(4):
        for _ in range(2 * LIMIT.requests):
            processes.call(process)
    assert len(processes.let_through) == 4 * LIMIT.requests  # (N - 1) · b too many, b being all of the quota
    for process in range(4):
        await processes.exchange(process)
    for _ in range(4):  # the first of them learn by what they let through next
        await clock.advance(LIMIT.seconds)
        for _ in range(2):
            for which in range(4):
                processes.call(which)
                await processes.exchange(which)
    assert processes.most_within(4 * LIMIT.seconds) <= 4 * LIMIT.requests + 2 * 4


async def test_who_keeps_to_the_limit_is_never_refused_whichever_process_it_asks(
    clock: ManualClock, usage: SqlUsage
) -> None:
    processes, chance = Processes(clock, usage), random.Random(11)
    credit = float(LIMIT.requests)
    for _ in range(200):
        burst = chance.randint(0, int(credit)) if chance.random() < 0.1 else min(int(credit), 1)
        for _ in range(burst):
            processes.call(chance.randrange(4))
        if chance.random() < 0.6:
            await processes.exchange(chance.randrange(4))
        pause = chance.uniform(0, 1)
        await clock.advance(pause)
        credit = min(credit - burst + pause * RATE, LIMIT.requests)
    assert processes.refused == 0
    assert len(processes.let_through) > 2 * LIMIT.requests


async def test_a_process_that_begins_learns_at_its_first_exchange(clock: ManualClock, usage: SqlUsage) -> None:
    first, second = RateLimits(clock, LIMIT), RateLimits(clock, LIMIT)
    first.take("key", None, 30)
    await first.exchange(usage)
    second.take("key", None)
    await second.exchange(usage)
    left = second.take("key", None)
    assert left is not None
    assert left.remaining == LIMIT.requests - 32


async def test_what_was_used_drains_by_the_databases_clock_and_not_beyond_empty(
    clock: ManualClock, usage: SqlUsage
) -> None:
    half = Consumption("key", 0.5, 0.0, 20)
    assert await usage.add([half]) == {"key": 0.5}
    await clock.advance(5)
    assert await usage.add([half]) == {"key": pytest.approx(0.75)}
    await clock.advance(1000)
    assert await usage.add([half]) == {"key": pytest.approx(0.5)}


async def test_what_comes_late_was_used_when_it_was(clock: ManualClock, usage: SqlUsage) -> None:
    await clock.advance(100)
    late = Consumption("key", 0.5, 4.0, 20)
    assert await usage.add([late]) == {"key": pytest.approx(0.3)}
    assert await usage.add([late._replace(age=0.0)]) == {"key": pytest.approx(0.8)}
    await clock.advance(100)
    assert await usage.add([late]) == {"key": pytest.approx(0.3)}


async def test_a_clock_that_was_put_back_locks_nobody_out(engine: AsyncEngine) -> None:
    moments = iter([10_000.0, 100.0, 110.0])
    usage = SqlUsage(engine, lambda: at(next(moments)))
    half = Consumption("key", 0.5, 0.0, 20)
    assert [await usage.add([half]) for _ in range(3)] == [{"key": 0.5}, {"key": 1.0}, {"key": pytest.approx(1.0)}]


async def test_the_share_that_was_used_stays_where_the_limit_changes(clock: ManualClock, usage: SqlUsage) -> None:
    await usage.add([Consumption("key", 1.0, 0.0, 20)])
    assert await usage.add([Consumption("key", 0.5, 0.0, 3600)]) == {"key": pytest.approx(1.5)}
    await clock.advance(360)
    assert await usage.add([Consumption("key", 0.0, 0.0, 3600)]) == {"key": pytest.approx(1.4)}


async def test_many_at_once_count_all_and_by_the_databases_own_clock(engine: AsyncEngine) -> None:
    usage = SqlUsage(engine)
    keys = [f"key-{number}" for number in range(50)]

    async def add(order: Sequence[str]) -> None:
        await usage.add([Consumption(key, 0.25, 0.0, 99_999) for key in order])

    await asyncio.gather(*(add(random.Random(seed).sample(keys, len(keys))) for seed in range(8)))
    used = await usage.add([Consumption(key, 0.0, 0.0, 99_999) for key in keys])
    assert used == {key: pytest.approx(2.0, abs=0.01) for key in keys}
    async with engine.connect() as connection:
        assert len((await connection.execute(select(key_usage))).all()) == len(keys)


async def test_a_database_that_is_away_is_an_outage() -> None:
    away = open_engine(NOBODY_LISTENS)
    with pytest.raises(TenancyUnavailable):
        await SqlUsage(away).add([Consumption("key", 0.5, 0.0, 60)])
    await away.dispose()

"""LookupCache from memory: how long they are good, and what happens to them while they cannot be looked up."""

import asyncio
from dataclasses import dataclass, field

import pytest

from forwarder.tenancy.port import TenancyUnavailable
from forwarder.tenancy.sql.directory import CacheTimes, LookupCache
from tests.support.memory.clock import ManualClock, settle


@dataclass
class Source:
    """Something to look things up in: `frozen` is awaited by each look-up, `away` makes it fail."""

    content: dict[str, str] = field(default_factory=dict)
    away: bool = False
    asked: list[str] = field(default_factory=list)
    frozen: asyncio.Event | None = None

    async def look_up(self, key: str) -> str | None:
        self.asked.append(key)
        if self.frozen is not None:
            await self.frozen.wait()
        if self.away:
            raise TenancyUnavailable("away")
        return self.content.get(key)


@pytest.fixture
def source() -> Source:
    return Source({"a": "first"})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def answers(source: Source, clock: ManualClock) -> LookupCache[str]:
    return LookupCache(source.look_up, clock, CacheTimes(known=5, absent=1, patience=0.5, away=1, max_entries=3))


async def test_an_answer_is_looked_up_once_while_it_is_good(
    answers: LookupCache[str], source: Source, clock: ManualClock
) -> None:
    assert await answers.get("a") == "first"
    await clock.advance(4.9)
    assert await answers.get("a") == "first"
    assert source.asked == ["a"]


async def test_a_change_is_seen_after_that(answers: LookupCache[str], source: Source, clock: ManualClock) -> None:
    await answers.get("a")
    source.content["a"] = "second"
    await clock.advance(5)
    assert await answers.get("a") == "second"
    del source.content["a"]
    await clock.advance(5)
    assert await answers.get("a") is None


async def test_what_is_absent_is_asked_for_again_sooner(
    answers: LookupCache[str], source: Source, clock: ManualClock
) -> None:
    assert await answers.get("new") is None
    assert await answers.get("new") is None
    assert source.asked == ["new"]
    source.content["new"] = "there"
    await clock.advance(1)
    assert await answers.get("new") == "there"


async def test_many_at_once_ask_once(answers: LookupCache[str], source: Source) -> None:
    source.frozen = asyncio.Event()
    waiting = [asyncio.create_task(answers.get("a")) for _ in range(5)]
    await settle()
    waiting[0].cancel()
    source.frozen.set()
    assert (await asyncio.gather(*waiting[1:])) == ["first"] * 4
    assert source.asked == ["a"]


async def test_known_answers_stay_good_through_an_outage(
    answers: LookupCache[str], source: Source, clock: ManualClock
) -> None:
    await answers.get("a")
    source.away = True
    for _ in range(10):
        await clock.advance(3600)
        assert await answers.get("a") == "first"
    source.away = False
    source.content["a"] = "second"
    await clock.advance(1)
    assert await answers.get("a") == "second"


async def test_what_is_not_known_cannot_be_answered_in_an_outage(answers: LookupCache[str], source: Source) -> None:
    source.away = True
    with pytest.raises(TenancyUnavailable):
        await answers.get("a")


async def test_during_an_outage_it_is_not_asked_again_at_once(
    answers: LookupCache[str], source: Source, clock: ManualClock
) -> None:
    await answers.get("a")
    await clock.advance(5)
    source.away = True
    assert await answers.get("a") == "first"
    assert await answers.get("a") == "first"
    with pytest.raises(TenancyUnavailable):
        await answers.get("other")
    assert source.asked == ["a", "a"]
    await clock.advance(1)
    with pytest.raises(TenancyUnavailable):
        await answers.get("other")
    assert source.asked == ["a", "a", "other"]


async def test_nobody_with_a_known_answer_waits_long_for_a_database_that_hangs(
    answers: LookupCache[str], source: Source, clock: ManualClock
) -> None:
    await answers.get("a")
    await clock.advance(5)
    source.frozen = asyncio.Event()
    source.content["a"] = "second"
    asking = asyncio.create_task(answers.get("a"))
    await settle()
    assert not asking.done()
    await clock.advance(0.5)
    assert await asking == "first"
    assert await answers.get("a") == "first"
    source.frozen.set()
    await settle()
    assert await answers.get("a") == "second"
    assert source.asked == ["a", "a"]


async def test_a_flood_of_wrong_keys_does_not_push_out_right_ones(answers: LookupCache[str], source: Source) -> None:
    await answers.get("a")
    for number in range(100):
        await answers.get(f"wrong-{number}")
    assert len(answers._absent) == 3  # noqa: SLF001
    source.asked.clear()
    await answers.get("a")
    assert source.asked == []


async def test_it_remembers_only_so_many(answers: LookupCache[str], source: Source) -> None:
    for number in range(10):
        source.content[str(number)] = "x"
        await answers.get(str(number))
    assert len(answers._known) == 3  # noqa: SLF001

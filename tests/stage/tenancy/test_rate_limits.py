"""The rate limit of a key: what a bucket lets through, what it says is left, and what processes learn of each other."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from forwarder.tenancy.access import (
    EXCHANGE_SECONDS,
    MIN_PAUSE_SECONDS,
    Allowance,
    Consumption,
    RateLimits,
    exchange_usage,
    rate_limited,
    read_limit,
)
from forwarder.tenancy.port import RateLimit, TenancyUnavailable
from forwarder.tenancy.sql.directory import SqlUsage
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock, settle

TEN_A_MINUTE = RateLimit(10, 60)


def taken(limits: RateLimits, count: int = 1, limit: RateLimit = TEN_A_MINUTE) -> Allowance:
    allowance = limits.take("key", limit, count)
    assert allowance is not None
    return allowance


def let_through(limits: RateLimits, calls: int, limit: RateLimit = TEN_A_MINUTE) -> int:
    return sum(taken(limits, limit=limit).admitted for _ in range(calls))


class ToldUsage(SqlUsage):
    """Notes what it is told, and answers what it was made with."""

    def __init__(self, used: float = 0.0) -> None:
        self.used = used
        self.away = False
        self.told: list[Sequence[Consumption]] = []

    async def add(self, consumed: Sequence[Consumption]) -> Mapping[str, float]:
        self.told.append(consumed)
        if self.away:
            raise TenancyUnavailable("away")
        return {one.key: self.used for one in consumed}


# --- the limit of a workspace ----------------------------------------------------------------------------------------------


async def test_keys_of_a_workspace_share_its_limit_however_many_there_are() -> None:
    clock = ManualClock()
    limits = RateLimits(clock)

    def take(key: str, workspace: str = "acme", count: int = 1) -> Allowance:
        allowance = limits.take(key, RateLimit(6, 60), count, (workspace, TEN_A_MINUTE))
        assert allowance is not None
        return allowance

    admitted = [sum(take(key).admitted for _ in range(20)) for key in ("a", "b", "c")]
    assert admitted == [6, 4, 0]
    refused = take("b")
    assert (refused.shared, refused.limit, refused.retry_in) == (True, TEN_A_MINUTE, 6)
    assert "All API keys of this workspace together" in (rate_limited(refused).detail or "")
    # What the workspace refused cost the key nothing, and the other way round.
    assert (take("c", "other").remaining, take("c", "other", 0).shared) == (5, False)
    assert not take("a").shared
    await clock.advance(12)
    assert [take("c", count=3).admitted, take("c", count=2).admitted] == [False, True]
    assert take("d", "other", 0).remaining == 6


async def test_a_workspaces_limit_holds_for_keys_without_one() -> None:
    limits = RateLimits(ManualClock())
    shared = ("acme", TEN_A_MINUTE)
    taken_by = [limits.take(f"key-{number}", None, 1, shared) for number in range(12)]
    assert [each is not None and each.admitted for each in taken_by] == [True] * 10 + [False] * 2
    usage = ToldUsage()
    await limits.exchange(usage)
    assert [(one.key, one.share) for one in usage.told[0]] == [("workspace:acme", 1.0)]


# --- one bucket -----------------------------------------------------------------------------------------------------------


async def test_a_full_bucket_lets_the_whole_quota_through_at_once_and_then_one_as_each_comes_back() -> None:
    clock = ManualClock()
    limits = RateLimits(clock)
    assert let_through(limits, 20) == 10
    await clock.advance(5.9)
    assert let_through(limits, 5) == 0
    await clock.advance(0.1)
    assert let_through(limits, 5) == 1
    await clock.advance(3600)
    assert let_through(limits, 20) == 10


async def test_it_says_how_many_are_left_and_when_there_is_more() -> None:
    clock = ManualClock()
    limits = RateLimits(clock)
    assert taken(limits) == Allowance(TEN_A_MINUTE, admitted=True, remaining=9, more_in=6)
    await clock.advance(2.5)
    assert taken(limits, 9) == Allowance(TEN_A_MINUTE, admitted=True, remaining=0, more_in=4)
    assert taken(limits) == Allowance(TEN_A_MINUTE, admitted=False, remaining=0, more_in=4, retry_in=4)
    assert taken(limits, 3) == Allowance(TEN_A_MINUTE, admitted=False, remaining=0, more_in=4, retry_in=16)


@pytest.mark.parametrize("limit", [RateLimit(1, 1), RateLimit(3, 7), RateLimit(1000, 1), RateLimit(1, 86_400)])
async def test_who_comes_again_when_told_to_is_let_through_and_a_moment_earlier_is_not(limit: RateLimit) -> None:
    clock = ManualClock()
    limits = RateLimits(clock)
    assert let_through(limits, limit.requests + 1, limit) == limit.requests
    for _ in range(20):
        refused = taken(limits, limit=limit)
        assert not refused.admitted
        assert refused.retry_in == refused.more_in == -(-limit.seconds // limit.requests)
        await clock.advance(limit.seconds / limit.requests * 0.99)
        assert not taken(limits, limit=limit).admitted
        await clock.advance(limit.seconds / limit.requests * 0.01)
        assert taken(limits, limit=limit).admitted


async def test_a_steady_caller_at_its_rate_is_never_refused() -> None:
    clock = ManualClock()
    limits = RateLimits(clock)
    for _ in range(1000):
        assert taken(limits, limit=RateLimit(3, 7)).admitted
        await clock.advance(7 / 3)


async def test_several_are_let_through_together_or_not_at_all() -> None:
    limits = RateLimits(ManualClock())
    assert taken(limits, 6).admitted
    assert not taken(limits, 5).admitted
    assert taken(limits, 4).admitted


async def test_more_than_the_quota_wait_for_a_full_bucket_and_are_paid_off() -> None:
    clock = ManualClock()
    limits = RateLimits(clock)
    assert taken(limits).admitted
    refused = taken(limits, 25)
    assert (refused.admitted, refused.retry_in) == (False, 6)
    await clock.advance(6)
    assert taken(limits, 25) == Allowance(TEN_A_MINUTE, admitted=True, remaining=0, more_in=96)
    await clock.advance(95)
    assert not taken(limits).admitted
    await clock.advance(1)
    assert taken(limits).admitted


async def test_to_look_takes_nothing_and_tells_nobody() -> None:
    limits, usage = RateLimits(ManualClock()), ToldUsage()
    assert [taken(limits, count).remaining for count in (0, 4, 0, 0)] == [10, 6, 6, 6]
    await limits.exchange(usage)
    taken(limits, 0)
    await limits.exchange(usage)
    assert [told[0].share for told in usage.told] == [0.4]


async def test_a_key_without_a_limit_has_the_default_and_where_there_is_none_no_bucket() -> None:
    clock = ManualClock()
    assert RateLimits(clock).take("key", None) is None
    limits = RateLimits(clock, RateLimit(1, 1))
    assert [limits.take("key", None), limits.take("other", TEN_A_MINUTE)] == [
        Allowance(RateLimit(1, 1), admitted=True, remaining=0, more_in=1),
        Allowance(TEN_A_MINUTE, admitted=True, remaining=9, more_in=6),
    ]


async def test_a_changed_limit_holds_at_once() -> None:
    limits = RateLimits(ManualClock())
    assert let_through(limits, 20) == 10
    assert let_through(limits, 20, RateLimit(3, 60)) == 3


async def test_only_the_keys_that_were_used_last_are_remembered() -> None:
    limits = RateLimits(ManualClock(), RateLimit(1, 60), max_keys=2)
    for key in ("a", "b", "a", "c"):
        limits.take(key, None)
    assert list(limits._buckets) == ["a", "c"]  # noqa: SLF001


@pytest.mark.parametrize("text", ["100/60s", "1/1s", "999999999/99999s"])
def test_a_limit_is_read_as_it_is_written(text: str) -> None:
    assert str(read_limit(text)) == text


@for_each(
    "text", ["", "100", "100/60", "100/60m", "0/60s", "1/0s", "-1/60s", "1.5/60s", "1/60s ", "1/60s\n", "\u0661/60s"]
)
def test_what_is_no_limit_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="100/60s"):
        read_limit(text)


# --- several processes ----------------------------------------------------------------------------------------------------


async def test_what_was_let_through_is_told_once_and_nothing_where_nothing_was() -> None:
    clock, usage = ManualClock(), ToldUsage()
    limits = RateLimits(clock)
    await limits.exchange(usage)
    assert usage.told == []
    taken(limits, 4)
    await clock.advance(0.3)
    assert not taken(limits, 7).admitted
    taken(limits)
    await clock.advance(0.2)
    await limits.exchange(usage)
    assert usage.told == [[Consumption("key", 0.5, 0.5, 60)]]
    assert not taken(limits, 10).admitted
    await limits.exchange(usage)
    assert len(usage.told) == 1


async def test_what_others_let_through_is_missing_here() -> None:
    clock, usage = ManualClock(), ToldUsage(used=0.7)
    limits = RateLimits(clock)
    taken(limits)
    await limits.exchange(usage)
    assert taken(limits).remaining == 2


async def test_a_bucket_is_never_fuller_for_what_is_learnt() -> None:
    limits = RateLimits(ManualClock())
    taken(limits, 8)
    await limits.exchange(ToldUsage(used=0.1))
    assert taken(limits).remaining == 1


async def test_what_is_let_through_during_an_exchange_is_told_in_the_next() -> None:
    clock, usage = ManualClock(), ToldUsage(used=0.5)
    limits = RateLimits(clock)

    class Slow(ToldUsage):
        async def add(self, consumed: Sequence[Consumption]) -> Mapping[str, float]:
            taken(limits, 2)
            return await usage.add(consumed)

    taken(limits)
    await limits.exchange(Slow())
    assert taken(limits).remaining == 2  # 0.5 of ten are used, two during the exchange, and this one
    await limits.exchange(usage)
    assert [told[0].share for told in usage.told] == [0.1, 0.3]


async def test_a_tenth_of_a_quota_is_told_soon_and_less_than_that_later() -> None:
    clock, usage = ManualClock(), ToldUsage()
    limits = RateLimits(clock)
    hundred = RateLimit(100, 60)
    exchanging = asyncio.create_task(exchange_usage(limits, usage, clock))
    await settle()
    taken(limits, 10, hundred)
    await clock.advance(MIN_PAUSE_SECONDS)
    assert [told[0].share for told in usage.told] == [0.1]
    taken(limits, 9, hundred)
    await clock.advance(EXCHANGE_SECONDS - 0.01)
    assert len(usage.told) == 1
    taken(limits, 1, hundred)
    await settle()
    assert [told[0].share for told in usage.told] == [0.1, 0.1]
    taken(limits, 1, hundred)
    await clock.advance(EXCHANGE_SECONDS)
    assert [told[0].share for told in usage.told] == [0.1, 0.1, 0.01]
    exchanging.cancel()
    await asyncio.gather(exchanging, return_exceptions=True)


async def test_an_outage_is_outlived_and_each_goes_by_what_it_knows() -> None:
    clock, usage = ManualClock(), ToldUsage()
    limits = RateLimits(clock)
    usage.away = True
    exchanging = asyncio.create_task(exchange_usage(limits, usage, clock))
    await settle()
    taken(limits, 4)
    await clock.advance(EXCHANGE_SECONDS)
    assert len(usage.told) == 1
    assert taken(limits).remaining == 5
    usage.away = False
    await clock.advance(5 + EXCHANGE_SECONDS)
    assert [told[0].share for told in usage.told] == [0.4, 0.1]
    exchanging.cancel()
    await asyncio.gather(exchanging, return_exceptions=True)

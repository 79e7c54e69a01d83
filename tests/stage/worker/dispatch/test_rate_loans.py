"""Limits that several workers share: together they keep to a limit as one would, use nearly all of it, and survive one another."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwarder.pms.port import Limit, Limits
from forwarder.process.clock import Clock
from forwarder.process.loops import Where, cancel_all, forever
from forwarder.process.shares import LAPSE_SECONDS, Loan, LoanRequest, SharedBucket, decide
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.dispatch.rate_loans import Loans
from forwarder.worker.dispatch.throttle import Throttles
from forwarder.worker.push.run import HealthSignal, PmsHealth, PushContext
from tests.support.memory.clock import ManualClock, settle
from tests.support.worker.works import account, work

ROUND_TRIP = 0.002


class _Ledger:
    """Implements `Lender` in memory."""

    def __init__(self, clock: Clock) -> None:
        self.away = False
        self.asked = 0
        self._clock = clock
        self._full_at: dict[str, float] = {}

    async def lend(self, requests: Sequence[LoanRequest]) -> Sequence[Loan]:
        self.asked += 1
        await self._clock.sleep(ROUND_TRIP)
        if self.away:
            raise StoreUnavailable("away")
        loans = []
        for request in requests:
            loan, after = decide(request, self._full_at, self._clock.monotonic())
            self._full_at |= after
            loans.append(loan)
        return loans


class _Worker:
    """A worker whose PMS takes `seconds` for each push; `extra` requests of a push were not paid for when it started."""

    def __init__(self, site: "_Site", published: Limits, seconds: float, extra: int) -> None:
        self._site = site
        self._seconds = seconds
        self._requests = published.requests_per_push + extra
        loans = Loans(site.ledger, site.clock)
        self.throttles = Throttles(site.clock, lambda *_: published, loans)
        self.dispatcher = Dispatcher(site.clock, self._push, max_held=10_000, throttles=self.throttles)
        loans.on_lent = self.dispatcher.proceed
        self.loop = asyncio.create_task(
            forever(loans.exchange, name=Where.RATE_LOANS, clock=site.clock, outages=(StoreUnavailable,))
        )

    async def _push(self, pushes: Sequence[PushContext]) -> HealthSignal:
        for _ in range(self._requests):
            self.throttles.of(pushes[0].account).requested()
            self._site.sent.setdefault(pushes[0].account.id, []).append(self._site.clock.monotonic())
        await self._site.clock.sleep(self._seconds)
        for push in pushes:
            push.release()
        return HealthSignal(PmsHealth.WELL)


class _Site:
    """Workers with more work than any limit lets through."""

    def __init__(self, workers: int, published: Limits, *, seconds: float = 0.02, extra: int = 0) -> None:
        self.clock = ManualClock()
        self.ledger = _Ledger(self.clock)
        self.sent: dict[str, list[float]] = {}
        self.workers = [_Worker(self, published, seconds, extra) for _ in range(workers)]
        self._number = 0

    async def offer(self, count: int, *, to: Sequence[int] = (), **about: Any) -> None:
        """So many rows of an account, at each of these workers; at all if none is named."""
        for at, worker in enumerate(self.workers):
            if not to or at in to:
                rows = [work(self._number + each) for each in range(1, count + 1)]
                self._number += count
                worker.dispatcher.offer(account(**about), rows)
        await settle()


@asynccontextmanager
async def _site(workers: int, published: Limits, **about: Any) -> AsyncIterator[_Site]:
    site = _Site(workers, published, **about)
    yield site
    await cancel_all([worker.loop for worker in site.workers])
    for worker in site.workers:
        worker.dispatcher.withdraw(lambda _: True)
    await site.clock.advance(60.0)
    for worker in site.workers:
        await worker.dispatcher.stop(0.0)


def _most_within(seconds: float, sent: Sequence[float]) -> int:
    return max(bisect_left(sent, first + seconds) - index for index, first in enumerate(sent))


LIMITS: Mapping[str, Limits] = {
    "Uplisting": Limits((Limit(5, 1.0), Limit(100, 60.0))),
    "Guesty": Limits((Limit(15, 1.0), Limit(120, 60.0))),
    "BookingSync": Limits((Limit(1000, 3600.0),), requests_per_push=2),
    "Hostaway": Limits((Limit(20, 10.0), Limit(15, 10.0, "address"))),
}


SOME_WORKERS = pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)


@SOME_WORKERS
@pytest.mark.parametrize("published", LIMITS.values(), ids=LIMITS)
async def test_workers_together_keep_to_a_published_limit_and_use_most_of_it(published: Limits, workers: int) -> None:
    async with _site(workers, published) as site:
        await site.offer(400)
        await site.clock.advance(180.0)
        (sent,) = site.sent.values()
        for limit in published.each:
            assert _most_within(limit.seconds, sent) <= limit.requests
        tightest = min(published.each, key=lambda limit: limit.requests / limit.seconds)
        assert len(sent) >= 0.8 * tightest.requests * 180.0 / max(tightest.seconds, 180.0 * tightest.requests / 100)


@SOME_WORKERS
@pytest.mark.parametrize("rate", [0.5, 20.0, 400.0])
async def test_an_accounts_own_rate_is_that_of_all_workers_together(rate: float, workers: int) -> None:
    async with _site(workers, Limits()) as site:
        await site.offer(3000, rate_per_second=rate, concurrency=20)
        await site.clock.advance(5.0)
        before = sum(map(len, site.sent.values()))
        seconds = 2000.0 / rate / 4
        await site.clock.advance(seconds)
        after = sum(map(len, site.sent.values()))
    assert (after - before) / seconds == pytest.approx(rate, rel=0.05)


async def test_two_workers_get_about_as_much_of_a_rate() -> None:
    async with _site(2, Limits()) as site:
        await site.offer(1000, rate_per_second=20.0)
        await site.clock.advance(60.0)
        starts = [1000 - worker.dispatcher.held for worker in site.workers]
    assert min(starts) >= 0.25 * sum(starts)


async def test_accounts_at_one_address_share_its_limit_and_others_do_not() -> None:
    published = Limits((Limit(15, 10.0, "address"),))
    async with _site(2, published) as site:
        for number in range(4):
            host = "one" if number < 3 else "other"
            await site.offer(100, account_id=f"a{number}", base_url=f"https://{host}.test/v1")
        await site.clock.advance(60.0)
        here = sorted(moment for name in ("a0", "a1", "a2") for moment in site.sent[name])
        assert _most_within(10.0, here) <= 15
        assert len(here) >= 0.8 * 90
        assert len(site.sent["a3"]) >= 0.8 * 90


async def test_a_killed_workers_loan_is_soon_made_good() -> None:
    async with _site(2, Limits()) as site:
        await site.offer(1000, rate_per_second=20.0)
        await site.clock.advance(2.0)
        await cancel_all([site.workers[0].loop])
        site.workers[0].dispatcher.withdraw(lambda _: True)
        before = sum(map(len, site.sent.values()))
        await site.clock.advance(20.0)
        assert sum(map(len, site.sent.values())) - before == pytest.approx(400, rel=0.05)


async def test_what_was_not_used_is_given_back() -> None:
    async with _site(2, Limits((Limit(100, 1000.0),))) as site:
        await site.offer(10, to=[0])
        site.workers[0].dispatcher.withdraw(lambda _: True)
        await site.clock.advance(1.0)
        used = sum(map(len, site.sent.values()))
        await site.offer(100, to=[1])
        await site.clock.advance(1.0)
        assert sum(map(len, site.sent.values())) == 10
        assert used < 10


async def test_requests_beyond_those_paid_for_count_for_all_workers() -> None:
    async with _site(2, Limits((Limit(40, 10.0),)), extra=1) as site:
        await site.offer(200)
        await site.clock.advance(100.0)
        (sent,) = site.sent.values()
        assert len(sent) == pytest.approx(400, rel=0.15)


async def test_while_the_store_is_away_nothing_is_pushed_and_afterwards_everything() -> None:
    async with _site(2, Limits()) as site:
        site.ledger.away = True
        await site.offer(5, rate_per_second=50.0)
        await site.clock.advance(30.0)
        assert not site.sent
        site.ledger.away = False
        await site.clock.advance(10.0)
        assert sum(map(len, site.sent.values())) == 10


async def test_nobody_asks_while_nothing_waits() -> None:
    async with _site(2, Limits()) as site:
        await site.offer(50, rate_per_second=50.0)
        await site.clock.advance(5.0)
        asked = site.ledger.asked
        await site.clock.advance(600.0)
        assert site.ledger.asked == asked
        assert asked <= 2 * 5.0 / (LAPSE_SECONDS / 2)


_BUCKETS = st.lists(
    st.builds(SharedBucket, st.sampled_from("abc"), st.floats(0.01, 1000.0), st.floats(1.0, 500.0)),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each.name,
).map(tuple)


@settings(deadline=None)
@given(
    buckets=_BUCKETS,
    asks=st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(0, 50), st.integers(1, 2)), max_size=60),
)
def test_no_more_is_lent_than_a_bucket_holds_and_refills(
    buckets: tuple[SharedBucket, ...], asks: Sequence[tuple[float, int, int]]
) -> None:
    full_at: dict[str, float] = {}
    began = now = 1_800_000_000.0
    lent = 0
    for pause, wanted, least in asks:
        now += pause
        loan, after = decide(LoanRequest(buckets, 0.0, wanted, least), full_at, now)
        full_at |= after
        lent += loan.tokens
        assert loan.tokens <= wanted
        for each in buckets:
            assert lent <= each.burst + each.rate * (now - began) + 0.01


def test_a_clock_that_was_set_back_stops_an_account_for_no_longer_than_two_bursts_take() -> None:
    bucket = SharedBucket("a", rate=10.0, burst=20.0)
    loan, after = decide(LoanRequest((bucket,), 0.0, 1, 1), {"a": 5_000.0}, 1_000.0)
    assert (loan.tokens, after["a"]) == (0, 1_004.0)
    assert loan.retry_in == pytest.approx(2.1)


async def test_a_steady_flow_below_its_rate_is_pushed_as_it_arrives() -> None:
    async with _site(1, Limits()) as site:
        arrived = []
        for _ in range(400):
            arrived.append(site.clock.monotonic())
            await site.offer(1, rate_per_second=1000.0, concurrency=50)
            await site.clock.advance(0.005)
        await site.clock.advance(1.0)
        (sent,) = site.sent.values()
    waits = sorted(start - arrival for arrival, start in zip(arrived, sent, strict=True))
    assert waits[len(waits) * 9 // 10] < 0.01

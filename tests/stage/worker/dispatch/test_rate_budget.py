"""Rate budgets: no window sees more than its limit allows, and nearly all of that can be used."""

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwarder.pms.directory import open_directory
from forwarder.pms.port import Limit, Limits
from forwarder.process.shares import TokenBucket
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.dispatch.throttle import RateBudget, Throttles
from forwarder.worker.push.run import NOT_ATTEMPTED
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock, settle
from tests.support.worker.pushes import Pushes
from tests.support.worker.works import account, work

PUBLISHED = {
    "BookingSync": Limits((Limit(1000, 3600.0),), requests_per_push=2),
    "Hostaway": Limits((Limit(15, 10.0),)),
    "Guesty": Limits((Limit(15, 1.0), Limit(120, 60.0), Limit(5000, 3600.0))),
    "Lodgify": Limits((Limit(600, 60.0),)),
    "Smoobu": Limits((Limit(1000, 60.0),)),
    "OwnerRez": Limits((Limit(300, 300.0),)),
    "Hostfully": Limits((Limit(10_000, 3600.0),)),
    "Uplisting": Limits((Limit(4, 1.0), Limit(100, 60.0))),
    "Beds24": Limits((Limit(100, 300.0),)),
    "one a minute": Limits((Limit(1, 60.0),)),
}


class _Time(ManualClock):
    """A clock that may be put forward with nobody asleep."""

    def wait(self, seconds: float) -> None:
        self._elapsed += seconds


def _sending(limits: Limits, rests: Sequence[float] = ()) -> Iterator[float]:
    """When requests go out of somebody who pushes whenever the budget lets him, but for a rest before every seventh push."""
    clock = _Time()
    budget = Throttles(clock, lambda *_: limits).budget(account())
    for number in itertools.count():
        clock.wait(rests[number % len(rests)] if rests and number % 7 == 0 else 0.0)
        while (delay := budget.delay()) > 1e-6:
            clock.wait(delay)
        budget.start()
        for _ in range(limits.requests_per_push):
            budget.requested()
            yield clock.monotonic()
        budget.end(attempted=True)


def _most_within(seconds: float, sent: Sequence[float]) -> int:
    """The most requests in any window, one end of which does not belong to it."""
    return max(bisect_left(sent, first + seconds) - index for index, first in enumerate(sent))


@for_each("limits", PUBLISHED.values(), ids=PUBLISHED)
def test_no_window_sees_more_than_a_published_limit(limits: Limits) -> None:
    sent = list(itertools.islice(_sending(limits, (0.0, 700.0, 0.3, 5.0)), 6000))
    for limit in limits.each:
        assert _most_within(limit.seconds, sent) <= limit.requests


_LIMIT = st.builds(Limit, st.integers(2, 2000), st.floats(0.1, 4000.0))
_LIMITS = st.builds(Limits, st.lists(_LIMIT, min_size=1, max_size=3).map(tuple), st.integers(1, 2))


@settings(deadline=None)
@given(limits=_LIMITS, rests=st.lists(st.floats(0.0, 5000.0), max_size=5), requests=st.integers(1, 500))
def test_nor_more_than_any_other(limits: Limits, rests: Sequence[float], requests: int) -> None:
    sent = list(itertools.islice(_sending(limits, rests), requests))
    for limit in limits.each:
        assert _most_within(limit.seconds, sent) <= limit.requests


@for_each("limits", PUBLISHED.values(), ids=PUBLISHED)
def test_most_of_a_limit_can_be_used(limits: Limits) -> None:
    tightest = min(limits.each, key=lambda limit: limit.requests / limit.seconds)
    five_windows = 5 * tightest.seconds
    sent = sum(1 for _ in itertools.takewhile(lambda moment: moment < five_windows, _sending(limits)))
    assert sent >= (0.85 if tightest.requests > 1 else 0.5) * 5 * tightest.requests


def _bucket(*, rate: float = 1.0, burst: float = 3.0) -> TokenBucket:
    return TokenBucket(rate, burst)


async def test_an_overdrawn_budget_makes_later_pushes_wait_the_longer() -> None:
    clock = ManualClock()
    budget = RateBudget(clock, [_bucket()])
    budget.start()
    for _ in range(5):
        budget.requested()
    assert budget.delay() == 3.0
    await clock.advance(3.0)
    assert budget.delay() == 0.0


async def test_a_push_pays_in_advance_for_what_it_usually_sends() -> None:
    clock = ManualClock()
    budget = RateBudget(clock, [_bucket()], per_push=2)
    budget.start()
    assert budget.delay() == 1.0
    budget.requested()
    budget.requested()
    assert budget.delay() == 1.0
    budget.requested()
    assert budget.delay() == 2.0


async def test_what_a_pms_was_not_asked_is_given_back() -> None:
    clock = ManualClock()
    budget = RateBudget(clock, [_bucket()])
    for _ in range(100):
        budget.start()
        budget.end(attempted=False)
    assert budget.delay() == 0.0
    for _ in range(3):
        budget.start()
        budget.requested()
        budget.end(attempted=False)
    assert budget.delay() == 1.0


async def test_what_was_paid_and_not_sent_is_nobody_elses() -> None:
    clock = ManualClock()
    budget = RateBudget(clock, [_bucket()], per_push=2)
    budget.start()
    budget.requested()
    budget.end(attempted=True)
    await clock.advance(2.0)
    budget.start()
    for _ in range(3):
        budget.requested()
    assert budget.delay() == 2.0


async def test_the_longest_wait_of_several_limits_counts() -> None:
    clock = ManualClock()
    budget = RateBudget(clock, [_bucket(burst=1.0), _bucket(rate=0.1, burst=2.0)])
    budget.start()
    assert budget.delay() == 1.0
    await clock.advance(1.0)
    budget.start()
    assert budget.delay() == pytest.approx(9.0)


def test_without_a_limit_nothing_waits() -> None:
    budget = Throttles(ManualClock()).budget(account())
    for _ in range(1000):
        budget.start()
    assert budget.delay() == 0.0


def test_an_accounts_own_rate_stands_in_for_what_its_kind_publishes() -> None:
    published = Limits((Limit(2, 3600.0),), requests_per_push=2)
    own = Throttles(ManualClock(), lambda *_: published).budget(account(rate_per_second=100.0))
    for _ in range(50):
        assert own.delay() == 0.0
        own.start()
    assert own.delay() == pytest.approx(0.02)


async def test_what_each_kind_publishes() -> None:
    async with open_directory(ManualClock()) as directory:
        assert directory.limits("booking-sync", {}) == Limits((Limit(1000, 3600.0),), requests_per_push=2)
        assert [directory.limits(kind, {}) for kind in ("generic", "website-builder", "fax")] == [Limits()] * 3
        limited = "limits: [{requests: 300, seconds: 60}]\ncreate: {path: /b, body: {ref: reference}}"
        assert directory.limits("generic", {"mapping": limited}) == Limits((Limit(300, 60.0),))
        assert directory.limits("generic", {"mapping": "no mapping"}) == Limits()


async def test_queues_keep_to_what_is_published_unless_the_account_says_otherwise() -> None:
    clock, pms = ManualClock(), Pushes()
    published = {"slow": Limits((Limit(20, 60.0),), requests_per_push=2), "fast": Limits()}
    throttles = Throttles(clock, lambda kind, _: published[kind])
    dispatcher = Dispatcher(clock, pms.run, max_held=100, throttles=throttles)
    slow, own, fast = (
        account("slow", kind="slow"),
        account("own", kind="slow", rate_per_second=20.0),
        account(kind="fast"),
    )
    for each, first in ((slow, 1), (own, 11), (fast, 21)):
        dispatcher.offer(each, [work(number) for number in range(first, first + 10)])
    await settle()
    assert pms.started == [1, *range(11, 21), *range(21, 31)]
    await clock.advance(60.0)
    assert set(pms.started) == {*range(1, 11), *range(11, 31)}
    await dispatcher.stop(0.0)


async def test_further_requests_of_a_push_hold_back_later_ones() -> None:
    clock, pms = ManualClock(), Pushes()
    throttles = Throttles(clock, lambda *_: Limits((Limit(11, 10.0),)))
    dispatcher = Dispatcher(clock, pms.run, max_held=100, throttles=throttles)
    dispatcher.offer(account(), [work(1), work(2)])
    await settle()
    for _ in range(6):
        throttles.of(account()).requested()
    await clock.advance(5.0)
    assert pms.started == [1]
    await clock.advance(1.0)
    assert pms.started == [1, 2]
    await dispatcher.stop(0.0)


async def test_a_refused_reservation_that_the_pms_never_saw_costs_nothing() -> None:
    clock, pms = ManualClock(), Pushes()
    dispatcher = Dispatcher(
        clock, pms.run, max_held=100, throttles=Throttles(clock, lambda *_: Limits((Limit(10, 3600.0),)))
    )
    dispatcher.offer(account(), [work(number) for number in range(1, 51)])
    await settle()
    for number in range(1, 51):
        await pms.answer(number, signal=NOT_ATTEMPTED)
    assert len(pms.started) == 50
    await dispatcher.stop(0.0)

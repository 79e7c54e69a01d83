"""When a circuit breaker opens, for how long, and what closes it."""

import math

import pytest

from forwarder.pms.port import OVERLOADED
from forwarder.reservation.submission import shadow_id
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.throttle import Breaker, BreakerState, Throttles
from forwarder.worker.push.run import HealthSignal, PmsHealth
from tests.support.memory.clock import ManualClock


def _breaker(clock: ManualClock | None = None, jitter: float = 1.0) -> Breaker:
    return Breaker(clock or ManualClock(), 3, lambda: jitter)


def _fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        breaker.end(breaker.start(), PmsHealth.FAILING)


def _standing(breaker: Breaker) -> tuple[BreakerState, float]:
    return breaker.state, breaker.delay()


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = _breaker()
    _fail(breaker, 2)
    breaker.end(breaker.start(), PmsHealth.WELL)
    _fail(breaker, 2)
    assert _standing(breaker) == (BreakerState.CLOSED, 0.0)
    _fail(breaker)
    assert _standing(breaker) == (BreakerState.OPEN, 1.0)


@pytest.mark.parametrize("health", [PmsHealth.UNKNOWN, PmsHealth.NOT_ATTEMPTED])
def test_what_says_nothing_of_the_pms_neither_counts_nor_resets(health: PmsHealth) -> None:
    breaker = _breaker()
    for _ in range(10):
        breaker.end(breaker.start(), health)
    _fail(breaker, 2)
    breaker.end(breaker.start(), health)
    assert _standing(breaker) == (BreakerState.CLOSED, 0.0)
    _fail(breaker)
    assert _standing(breaker) == (BreakerState.OPEN, 1.0)


async def test_one_probe_closes_it_or_opens_it_for_twice_as_long_up_to_a_bound() -> None:
    clock = ManualClock()
    breaker = _breaker(clock)
    _fail(breaker, 3)
    pauses = []
    for _ in range(8):
        pauses.append(breaker.delay())
        await clock.advance(breaker.delay())
        probe = breaker.start()
        assert _standing(breaker) == (BreakerState.HALF_OPEN, math.inf)
        breaker.end(probe, PmsHealth.FAILING)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    await clock.advance(60.0)
    breaker.end(breaker.start(), PmsHealth.WELL)
    assert _standing(breaker) == (BreakerState.CLOSED, 0.0)
    _fail(breaker, 3)
    assert breaker.delay() == 1.0


async def test_a_probe_that_told_nothing_makes_way_for_another_at_once() -> None:
    clock = ManualClock()
    breaker = _breaker(clock)
    _fail(breaker, 3)
    await clock.advance(1.0)
    breaker.end(breaker.start(), PmsHealth.UNKNOWN)
    assert _standing(breaker) == (BreakerState.OPEN, 0.0)
    breaker.start()
    assert breaker.state is BreakerState.HALF_OPEN


async def test_failures_of_pushes_that_started_before_it_opened_change_nothing() -> None:
    clock = ManualClock()
    breaker = _breaker(clock)
    in_flight = [breaker.start() for _ in range(64)]
    for each in in_flight[:32]:
        breaker.end(each, PmsHealth.FAILING)
    assert breaker.delay() == 1.0
    await clock.advance(1.0)
    probe = breaker.start()
    for each in in_flight[32:48]:
        breaker.end(each, PmsHealth.FAILING)
    assert _standing(breaker) == (BreakerState.HALF_OPEN, math.inf)
    breaker.end(probe, PmsHealth.WELL)
    for each in in_flight[48:]:
        breaker.end(each, PmsHealth.FAILING)
    assert _standing(breaker) == (BreakerState.CLOSED, 0.0)


def test_a_success_of_a_push_that_started_before_it_opened_closes_it() -> None:
    breaker = _breaker()
    slow, *rest = [breaker.start() for _ in range(64)]
    for each in rest:
        breaker.end(each, PmsHealth.FAILING)
    assert _standing(breaker) == (BreakerState.OPEN, 1.0)
    breaker.end(slow, PmsHealth.WELL)
    assert _standing(breaker) == (BreakerState.CLOSED, 0.0)


def test_half_of_a_pause_is_random() -> None:
    pauses = []
    for jitter in (0.0, 0.5, 1.0):
        breaker = _breaker(jitter=jitter)
        _fail(breaker, 3)
        pauses.append(breaker.delay())
    assert pauses == [0.5, 0.75, 1.0]


@pytest.mark.parametrize(("account_id", "held_up"), [("sea-1", True), (shadow_id("sea-1"), False)])
def test_what_is_down_for_some_test_bookings_holds_up_no_other(account_id: str, held_up: bool) -> None:
    """A bulk of `Test-Down` is no outage: its PMS is simulated, and down for these alone."""
    throttle = Throttles(ManualClock()).of(Account(account_id, "sea", "generic", "https://pms.test"))
    before = throttle.limit
    for _ in range(1_000):
        throttle.end(throttle.start(), HealthSignal(PmsHealth.FAILING, min(OVERLOADED)))
    assert (throttle.delay() > 0.0) is held_up
    assert (throttle.limit < before) is held_up

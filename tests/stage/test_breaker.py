"""A PMS that is down is left alone, but for one probe at a time; nothing is lost or used up meanwhile."""

import asyncio
import itertools
import math
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from forwarder.tenancy.port import Account
from forwarder.worker.breaker import Breaker, Health, State, Tolerance
from forwarder.worker.diagnosis import UNTOUCHED, Finding
from forwarder.worker.gate import Gate, Gates
from forwarder.worker.lanes import Lanes
from tests.support.manual_clock import ManualClock, settle
from tests.support.pushes import DOWN, WELL, Pushes
from tests.support.works import account, work

THREE = Tolerance(failures=3, first_pause=1.0, longest_pause=8.0)
TEN = Tolerance().failures


def _breaker(clock: ManualClock | None = None, luck: float = 1.0) -> Breaker:
    return Breaker(clock or ManualClock(), THREE, lambda: luck)


def _fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        breaker.end(breaker.start(), Health.FAILING)


def _standing(breaker: Breaker) -> tuple[State, float]:
    return breaker.state, breaker.delay()


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = _breaker()
    _fail(breaker, 2)
    breaker.end(breaker.start(), Health.WELL)
    _fail(breaker, 2)
    assert _standing(breaker) == (State.CLOSED, 0.0)
    _fail(breaker)
    assert _standing(breaker) == (State.OPEN, 1.0)


@pytest.mark.parametrize("health", [Health.UNKNOWN, Health.UNTOUCHED])
def test_what_says_nothing_of_the_pms_neither_counts_nor_resets(health: Health) -> None:
    breaker = _breaker()
    for _ in range(10):
        breaker.end(breaker.start(), health)
    _fail(breaker, 2)
    breaker.end(breaker.start(), health)
    assert _standing(breaker) == (State.CLOSED, 0.0)
    _fail(breaker)
    assert _standing(breaker) == (State.OPEN, 1.0)


async def test_one_probe_closes_it_or_opens_it_for_twice_as_long_up_to_a_bound() -> None:
    clock = ManualClock()
    breaker = _breaker(clock)
    _fail(breaker, 3)
    pauses = []
    for _ in range(6):
        pauses.append(breaker.delay())
        await clock.advance(breaker.delay())
        probe = breaker.start()
        assert _standing(breaker) == (State.HALF_OPEN, math.inf)
        breaker.end(probe, Health.FAILING)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    await clock.advance(8.0)
    breaker.end(breaker.start(), Health.WELL)
    assert _standing(breaker) == (State.CLOSED, 0.0)
    _fail(breaker, 3)
    assert breaker.delay() == 1.0


async def test_a_probe_that_told_nothing_makes_way_for_another_at_once() -> None:
    clock = ManualClock()
    breaker = _breaker(clock)
    _fail(breaker, 3)
    await clock.advance(1.0)
    breaker.end(breaker.start(), Health.UNKNOWN)
    assert _standing(breaker) == (State.OPEN, 0.0)
    breaker.start()
    assert breaker.state is State.HALF_OPEN


async def test_failures_of_pushes_that_started_before_it_opened_change_nothing() -> None:
    clock = ManualClock()
    breaker = _breaker(clock)
    in_flight = [breaker.start() for _ in range(64)]
    for each in in_flight[:32]:
        breaker.end(each, Health.FAILING)
    assert breaker.delay() == 1.0
    await clock.advance(1.0)
    probe = breaker.start()
    for each in in_flight[32:48]:
        breaker.end(each, Health.FAILING)
    assert _standing(breaker) == (State.HALF_OPEN, math.inf)
    breaker.end(probe, Health.WELL)
    for each in in_flight[48:]:
        breaker.end(each, Health.FAILING)
    assert _standing(breaker) == (State.CLOSED, 0.0)


def test_a_success_of_a_push_that_started_before_it_opened_closes_it() -> None:
    breaker = _breaker()
    slow, *rest = [breaker.start() for _ in range(64)]
    for each in rest:
        breaker.end(each, Health.FAILING)
    assert _standing(breaker) == (State.OPEN, 1.0)
    breaker.end(slow, Health.WELL)
    assert _standing(breaker) == (State.CLOSED, 0.0)


def test_half_of_a_pause_is_random() -> None:
    pauses = []
    for luck in (0.0, 0.5, 1.0):
        breaker = _breaker(luck=luck)
        _fail(breaker, 3)
        pauses.append(breaker.delay())
    assert pauses == [0.5, 0.75, 1.0]


_opened: list[Lanes] = []


@pytest.fixture(autouse=True)
async def _close_lanes() -> AsyncIterator[None]:
    yield
    while _opened:
        await _opened.pop().stop(0.0)


class _Site:
    """Lanes, and a PMS behind them that fails until it is told otherwise."""

    def __init__(self, *, held_at_most: int = 200, **settings: Any) -> None:
        self.clock = ManualClock()
        self.pushes = Pushes()
        self.account: Account = account(**settings)
        self.gates = Gates(self.clock)
        self.lanes = Lanes(self.clock, self.pushes.deliver, held_at_most=held_at_most, gates=self.gates)
        self._numbers = itertools.count(1)
        _opened.append(self.lanes)

    async def offer(self, count: int) -> None:
        self.lanes.offer(self.account, [work(next(self._numbers)) for _ in range(count)])
        await settle()

    async def open_breaker(self) -> None:
        """Fail as often as it takes, and no more."""
        await self.offer(TEN)
        await self.pushes.answer(finding=DOWN)
        assert not self.pushes.under_way


async def test_nothing_starts_while_it_is_open_and_then_one_probe_at_a_time() -> None:
    site = _Site()
    await site.open_breaker()
    await site.offer(5)
    await site.clock.advance(0.49)
    assert len(site.pushes.started) == TEN
    await site.clock.advance(0.51)
    assert len(site.pushes.started) == TEN + 1
    await site.offer(5)
    await site.clock.advance(3600.0)
    assert len(site.pushes.started) == TEN + 1
    await site.pushes.answer(finding=DOWN)
    assert len(site.pushes.started) == TEN + 1
    await site.clock.advance(2.0)
    assert len(site.pushes.started) == TEN + 2


async def test_a_probe_that_goes_well_lets_all_go() -> None:
    site = _Site()
    await site.open_breaker()
    await site.offer(20)
    await site.clock.advance(1.0)
    await site.pushes.answer()
    assert len(site.pushes.started) == TEN + 20


async def test_what_waits_keeps_its_order_and_goes_once() -> None:
    site = _Site(concurrency=TEN)
    await site.open_breaker()
    await site.offer(20)
    while len(site.pushes.started) < TEN + 5:
        await site.clock.advance(60.0)
        await site.pushes.answer(finding=DOWN)
    while len(site.pushes.started) < TEN + 20:
        await site.clock.advance(60.0)
        await site.pushes.answer()
    assert site.pushes.started == list(range(1, TEN + 21))


async def test_the_rest_of_those_in_flight_neither_lengthen_the_pause_nor_open_it_again() -> None:
    site = _Site()
    await site.offer(64)
    await site.pushes.answer(*range(1, 31), finding=DOWN)
    await site.offer(2)
    await site.clock.advance(1.0)
    assert len(site.pushes.started) == 65
    await site.pushes.answer(*range(31, 51), finding=DOWN)
    await site.pushes.answer(65)
    assert len(site.pushes.started) == 66
    await site.pushes.answer(*range(51, 65), finding=DOWN)
    await site.offer(3)
    assert len(site.pushes.started) == 69


async def test_a_success_of_an_earlier_push_ends_the_pause_at_once() -> None:
    site = _Site()
    await site.offer(TEN + 1)
    await site.pushes.answer(*range(1, TEN + 1), finding=DOWN)
    await site.offer(3)
    assert len(site.pushes.started) == TEN + 1
    await site.pushes.answer(TEN + 1)
    assert len(site.pushes.started) == TEN + 4


@pytest.mark.parametrize("finding", [UNTOUCHED, Finding(Health.UNKNOWN)])
async def test_rows_that_say_nothing_are_gone_through_one_by_one_until_one_tells(finding: Finding) -> None:
    site = _Site()
    await site.open_breaker()
    await site.offer(4)
    await site.clock.advance(1.0)
    for number in range(1, 4):
        assert len(site.pushes.started) == TEN + number
        await site.pushes.answer(finding=finding)
    assert len(site.pushes.under_way) == 1


async def test_a_probe_whose_delivery_breaks_makes_way_for_another() -> None:
    site = _Site()
    await site.open_breaker()
    await site.offer(2)
    await site.clock.advance(1.0)
    (probe,) = site.pushes.under_way.values()
    probe.cancel()
    await settle()
    assert len(site.pushes.started) == TEN + 2


async def test_another_account_goes_on() -> None:
    site = _Site()
    await site.open_breaker()
    await site.offer(3)
    site.lanes.offer(account("well"), [work(100), work(101)])
    await settle()
    assert site.pushes.started[TEN:] == [100, 101]


async def test_it_stays_open_when_the_lane_closes() -> None:
    site = _Site()
    await site.open_breaker()
    site.lanes.close_if_idle(site.account.id)
    assert not site.lanes.accounts()
    await site.offer(2)
    assert len(site.pushes.started) == TEN
    await site.clock.advance(1.0)
    assert len(site.pushes.started) == TEN + 1


async def test_while_open_no_more_is_held_than_could_be_in_flight() -> None:
    site = _Site(concurrency=TEN)
    assert site.lanes.room_for(site.account) == 200
    await site.open_breaker()
    assert site.lanes.room_for(site.account) == TEN
    await site.offer(TEN - 1)
    assert site.lanes.room_for(site.account) == 1
    await site.offer(5)
    assert site.lanes.room_for(site.account) == 0
    site.lanes.withdraw(lambda _: True)
    site.lanes.close_if_idle(site.account.id)
    assert site.lanes.room_for(site.account) == TEN
    assert site.lanes.room_for(account("well")) == 200


async def test_a_lane_asks_for_more_once_its_pms_is_well_again() -> None:
    site = _Site(concurrency=TEN)
    await site.open_breaker()
    await site.offer(TEN)
    site.lanes.note_more(site.account)
    site.lanes.hungry.clear()
    await site.clock.advance(1.0)
    await site.pushes.answer()
    assert site.lanes.hungry.is_set()
    assert site.lanes.running_low() == [site.account.id]
    assert site.lanes.room_for(site.account) > TEN


async def test_a_row_given_up_while_it_is_open_is_not_pushed() -> None:
    site = _Site()
    await site.open_breaker()
    await site.offer(3)
    assert site.lanes.withdraw(lambda held: held.id == TEN + 1) == [TEN + 1]
    await site.clock.advance(60.0)
    await site.pushes.answer()
    assert site.pushes.started[TEN:] == [TEN + 2, TEN + 3]


async def test_pausing_the_account_while_it_is_open_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    site = _Site()
    await site.open_breaker()
    await site.offer(3)
    assert asyncio.all_tasks() != before
    paused = account(paused=True)
    assert len(site.lanes.configure(paused)) == 3
    await settle()
    assert asyncio.all_tasks() == before
    assert site.lanes.held == 0


async def test_stopping_while_it_is_open_gives_rows_back_and_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    site = _Site()
    await site.open_breaker()
    await site.offer(3)
    unstarted, _ = await site.lanes.stop(60.0)
    assert len(unstarted) == 3
    await settle()
    assert asyncio.all_tasks() == before
    await site.clock.advance(3600.0)
    assert len(site.pushes.started) == TEN


async def test_stopping_waits_for_the_probe() -> None:
    site = _Site()
    await site.open_breaker()
    await site.offer(3)
    await site.clock.advance(1.0)
    stopping = asyncio.create_task(site.lanes.stop(60.0))
    await settle()
    assert not stopping.done()
    await site.pushes.answer()
    unstarted, broken_off = await stopping
    assert (len(unstarted), broken_off) == (2, 0)
    assert len(site.pushes.started) == TEN + 1


@pytest.mark.parametrize(
    "repaired", [{"kind": "website-builder"}, {"base_url": "http://new.test"}, {"credential": "n"}]
)
async def test_a_repaired_account_is_tried_at_once(repaired: dict[str, Any]) -> None:
    site = _Site()
    await site.open_breaker()
    await site.offer(2)
    site.lanes.configure(replace(site.account, concurrency=7))
    await settle()
    assert len(site.pushes.started) == TEN
    site.lanes.configure(replace(site.account, **repaired))
    await settle()
    assert len(site.pushes.started) == TEN + 1


async def test_operators_see_it_open_and_close() -> None:
    site = _Site(kind="a-kind-of-this-test")
    with capture_logs() as lines:
        await site.open_breaker()
        assert (_breakers("open"), _breakers("half_open")) == (1.0, 0.0)
        await site.offer(1)
        await site.clock.advance(1.0)
        assert (_breakers("open"), _breakers("half_open")) == (0.0, 1.0)
        await site.pushes.answer(finding=DOWN)
        await site.offer(1)
        await site.clock.advance(2.0)
        await site.pushes.answer()
    assert (_breakers("open"), _breakers("half_open")) == (0.0, 0.0)
    assert [line["event"] for line in lines] == ["breaker.opened", "breaker.opened", "breaker.closed"]
    assert all((line["account_id"], line["kind"]) == ("acc", "a-kind-of-this-test") for line in lines)
    assert lines[0]["reason"] == "pms_unavailable"
    assert 0.5 <= lines[0]["pause_seconds"] <= 1.0 <= lines[1]["pause_seconds"] <= 2.0
    openings = REGISTRY.get_sample_value("forwarder_circuit_breaker_openings_total", {"kind": "a-kind-of-this-test"})
    assert openings == 2.0


def _breakers(state: str) -> float:
    labels = {"kind": "a-kind-of-this-test", "state": state}
    return REGISTRY.get_sample_value("forwarder_circuit_breakers", labels) or 0.0


async def test_at_random_there_is_never_more_than_one_probe_and_no_row_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random answers, in random order, at random times, of a PMS that goes away and comes back."""
    dice = random.Random(7)
    site = _Site(concurrency=16, held_at_most=1000)
    probes = _watch(site.gates.of(site.account), monkeypatch)
    await site.offer(600)
    for _ in range(20_000):
        if not site.lanes.held:
            break
        await site.clock.advance(dice.choice([0.0, 0.1, 1.0, 30.0]))
        away = site.clock.monotonic() % 600 < 300
        for number in dice.sample(list(site.pushes.under_way), k=min(len(site.pushes.under_way), dice.randrange(3))):
            await site.pushes.answer(number, finding=DOWN if away else dice.choice([WELL, WELL, UNTOUCHED]))
    assert len(probes) > 10
    assert sorted(site.pushes.started) == list(range(1, 601))
    assert site.lanes.held == 0


def _watch(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every probe from now on, by the opening that it follows. Fails where one starts while another of its opening is under way."""
    probes: list[int] = []
    under_way: set[int] = set()
    enter, leave, breaker = gate.enter, gate.leave, gate._breaker

    def watched_enter() -> int:
        probe = breaker.state is State.OPEN
        entered = enter()
        if probe:
            assert entered not in under_way
            under_way.add(entered)
            probes.append(entered)
        else:
            assert breaker.state is State.CLOSED
        return entered

    def watched_leave(entered: int, finding: Finding) -> None:
        if breaker.state is State.HALF_OPEN and entered == probes[-1]:
            under_way.discard(entered)
        leave(entered, finding)

    monkeypatch.setattr(gate, "enter", watched_enter)
    monkeypatch.setattr(gate, "leave", watched_leave)
    return probes

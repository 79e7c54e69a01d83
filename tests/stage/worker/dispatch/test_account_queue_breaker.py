"""A PMS that is down is left alone, but for one probe at a time; nothing is lost or used up meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from forwarder.store.submissions.port import NotedCancellation, Work
from forwarder.worker.push.run import NOT_ATTEMPTED, HealthSignal, PmsHealth
from tests.support.memory.clock import settle
from tests.support.worker.pushes import DOWN
from tests.support.worker.queue_site import TEN, QueueSite
from tests.support.worker.works import account, work

_opened: list[QueueSite] = []


@pytest.fixture(autouse=True)
async def _close_dispatcher() -> AsyncIterator[None]:
    yield
    while _opened:
        await _opened.pop().dispatcher.stop(0.0)


def _site(**settings: Any) -> QueueSite:
    _opened.append(QueueSite(**settings))
    return _opened[-1]


async def test_nothing_starts_while_it_is_open_and_then_one_probe_at_a_time() -> None:
    site = _site()
    await site.open_breaker()
    await site.offer(5)
    await site.clock.advance(0.49)
    assert len(site.pushes.started) == TEN
    await site.clock.advance(0.51)
    assert len(site.pushes.started) == TEN + 1
    await site.offer(5)
    await site.clock.advance(3600.0)
    assert len(site.pushes.started) == TEN + 1
    await site.pushes.answer(signal=DOWN)
    assert len(site.pushes.started) == TEN + 1
    await site.clock.advance(2.0)
    assert len(site.pushes.started) == TEN + 2


async def test_a_probe_that_goes_well_lets_all_go() -> None:
    site = _site()
    await site.open_breaker()
    await site.offer(20)
    await site.clock.advance(1.0)
    await site.pushes.answer()
    assert len(site.pushes.started) == TEN + 20


async def test_what_waits_keeps_its_order_and_goes_once() -> None:
    site = _site(concurrency=TEN)
    await site.open_breaker()
    await site.offer(20)
    while len(site.pushes.started) < TEN + 5:
        await site.clock.advance(60.0)
        await site.pushes.answer(signal=DOWN)
    while len(site.pushes.started) < TEN + 20:
        await site.clock.advance(60.0)
        await site.pushes.answer()
    assert site.pushes.started == list(range(1, TEN + 21))


async def test_the_rest_of_those_in_flight_neither_lengthen_the_pause_nor_open_it_again() -> None:
    site = _site()
    await site.offer(64)
    await site.pushes.answer(*range(1, 31), signal=DOWN)
    await site.offer(2)
    await site.clock.advance(1.0)
    assert len(site.pushes.started) == 65
    await site.pushes.answer(*range(31, 51), signal=DOWN)
    await site.pushes.answer(65)
    assert len(site.pushes.started) == 66
    await site.pushes.answer(*range(51, 65), signal=DOWN)
    await site.offer(3)
    assert len(site.pushes.started) == 69


async def test_a_success_of_an_earlier_push_ends_the_pause_at_once() -> None:
    site = _site()
    await site.offer(TEN + 1)
    await site.pushes.answer(*range(1, TEN + 1), signal=DOWN)
    await site.offer(3)
    assert len(site.pushes.started) == TEN + 1
    await site.pushes.answer(TEN + 1)
    assert len(site.pushes.started) == TEN + 4


@pytest.mark.parametrize("signal", [NOT_ATTEMPTED, HealthSignal(PmsHealth.UNKNOWN)])
async def test_rows_that_say_nothing_are_gone_through_one_by_one_until_one_tells(signal: HealthSignal) -> None:
    site = _site()
    await site.open_breaker()
    await site.offer(4)
    await site.clock.advance(1.0)
    for number in range(1, 4):
        assert len(site.pushes.started) == TEN + number
        await site.pushes.answer(signal=signal)
    assert len(site.pushes.under_way) == 1


async def test_a_probe_whose_delivery_breaks_makes_way_for_another() -> None:
    site = _site()
    await site.open_breaker()
    await site.offer(2)
    await site.clock.advance(1.0)
    (probe,) = site.pushes.under_way.values()
    probe.cancel()
    await settle()
    assert len(site.pushes.started) == TEN + 2


async def test_another_account_goes_on() -> None:
    site = _site()
    await site.open_breaker()
    await site.offer(3)
    site.dispatcher.offer(account("well"), [work(100), work(101)])
    await settle()
    assert site.pushes.started[TEN:] == [100, 101]


async def test_it_stays_open_when_the_queue_closes() -> None:
    site = _site()
    await site.open_breaker()
    site.dispatcher.close_if_idle(site.account.id)
    assert not site.dispatcher.queues
    await site.offer(2)
    assert len(site.pushes.started) == TEN
    await site.clock.advance(1.0)
    assert len(site.pushes.started) == TEN + 1


async def test_while_open_no_more_is_held_than_could_be_in_flight() -> None:
    site = _site(concurrency=TEN)
    assert site.dispatcher.room_for(site.account) == 200
    await site.open_breaker()
    assert site.dispatcher.room_for(site.account) == TEN
    await site.offer(TEN - 1)
    assert site.dispatcher.room_for(site.account) == 1
    await site.offer(5)
    assert site.dispatcher.room_for(site.account) == 0
    site.dispatcher.withdraw(lambda _: True)
    site.dispatcher.close_if_idle(site.account.id)
    assert site.dispatcher.room_for(site.account) == TEN
    assert site.dispatcher.room_for(account("well")) == 200


async def test_a_queue_asks_for_more_once_its_pms_is_well_again() -> None:
    site = _site(concurrency=TEN)
    await site.open_breaker()
    await site.offer(TEN)
    site.dispatcher.note_more(site.account)
    site.dispatcher.refill_wanted.clear()
    await site.clock.advance(1.0)
    await site.pushes.answer()
    assert site.dispatcher.refill_wanted.is_set()
    assert site.dispatcher.running_low() == [site.account.id]
    assert site.dispatcher.room_for(site.account) > TEN


async def test_a_row_given_up_while_it_is_open_is_not_pushed() -> None:
    site = _site()
    await site.open_breaker()
    await site.offer(3)
    assert site.dispatcher.withdraw(lambda held: held.id == TEN + 1) == [TEN + 1]
    await site.clock.advance(60.0)
    await site.pushes.answer()
    assert site.pushes.started[TEN:] == [TEN + 2, TEN + 3]


async def test_pausing_the_account_while_it_is_open_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    site = _site()
    await site.open_breaker()
    await site.offer(3)
    assert asyncio.all_tasks() != before
    paused = account(paused=True)
    assert len(site.dispatcher.configure(paused)) == 3
    await settle()
    assert asyncio.all_tasks() == before
    assert site.dispatcher.held == 0


async def test_stopping_while_it_is_open_gives_rows_back_and_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    site = _site()
    await site.open_breaker()
    await site.offer(3)
    unstarted, _ = await site.dispatcher.stop(60.0)
    assert len(unstarted) == 3
    await settle()
    assert asyncio.all_tasks() == before
    await site.clock.advance(3600.0)
    assert len(site.pushes.started) == TEN


async def test_stopping_waits_for_the_probe() -> None:
    site = _site()
    await site.open_breaker()
    await site.offer(3)
    await site.clock.advance(1.0)
    stopping = asyncio.create_task(site.dispatcher.stop(60.0))
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
    site = _site()
    await site.open_breaker()
    await site.offer(2)
    site.dispatcher.configure(replace(site.account, concurrency=7))
    await settle()
    assert len(site.pushes.started) == TEN
    site.dispatcher.configure(replace(site.account, **repaired))
    await settle()
    assert len(site.pushes.started) == TEN + 1


async def test_operators_see_it_open_and_close() -> None:
    site = _site(kind="a-kind-of-this-test")
    with capture_logs() as lines:
        assert site.throttles.failing("acc") is None
        await site.open_breaker()
        assert _breakers(site) == (1.0, 0.0)
        assert site.throttles.failing("acc") == "pms_unavailable"
        await site.clock.advance(30.0)
        assert _breakers(site) == (0.0, 1.0)  # nothing to probe with: it is nobody's trouble
        await site.offer(1)
        await site.clock.advance(30.0)
        assert _breakers(site) == (1.0, 0.0)  # the probe is under way, and hangs
        await site.pushes.answer(signal=DOWN)
        await site.offer(1)
        await site.clock.advance(2.0)
        await site.pushes.answer()
    assert _breakers(site) == (0.0, 0.0)
    assert site.throttles.failing("acc") is None
    assert [line["event"] for line in lines] == ["breaker.opened", "breaker.opened", "breaker.closed"]
    assert all((line["account_id"], line["kind"]) == ("acc", "a-kind-of-this-test") for line in lines)
    assert lines[0]["reason"] == "pms_unavailable"
    assert 0.5 <= lines[0]["pause_seconds"] <= 1.0 <= lines[1]["pause_seconds"] <= 2.0
    openings = REGISTRY.get_sample_value("forwarder_circuit_breaker_openings_total", {"kind": "a-kind-of-this-test"})
    assert openings == 2.0


def _breakers(site: QueueSite) -> tuple[float, float]:
    """How many are open, and idle."""
    site.throttles.show(max_accounts=10)
    shown = {state: {"kind": "a-kind-of-this-test", "state": state} for state in ("open", "idle")}
    is_open, idle = (
        REGISTRY.get_sample_value("forwarder_circuit_breakers", labels) or 0.0 for labels in shown.values()
    )
    named = (
        REGISTRY.get_sample_value("forwarder_circuit_breaker_open", {"account": "acc", "reason": "pms_unavailable"})
        or 0.0
    )
    assert named == is_open
    return is_open, idle


# --- cancellations have a breaker of their own ---


def _cancellations(first: int, count: int) -> list[Work]:
    asked = NotedCancellation("2027-01-01T00:00:00.000Z")
    return [replace(work(number), cancellation=asked) for number in range(first, first + count)]


@pytest.mark.parametrize(
    "signal", [DOWN, HealthSignal(PmsHealth.FAILING, "pms_timed_out"), HealthSignal(PmsHealth.UNKNOWN)]
)
async def test_a_reservation_goes_at_once_after_cancellations_that_failed(signal: HealthSignal) -> None:
    site = _site(concurrency=TEN)
    site.dispatcher.offer(site.account, _cancellations(1, 20))
    await settle()
    while site.pushes.under_way:
        await site.pushes.answer(signal=signal)
    assert site.throttle.delay() == 0.0
    site.dispatcher.offer(site.account, [work(100)])
    await settle()
    assert site.pushes.started[-1] == 100
    assert site.throttle.failing is None


async def test_cancellations_that_fail_are_left_alone_and_probed_while_reservations_go() -> None:
    site = _site(concurrency=TEN)
    site.dispatcher.offer(site.account, _cancellations(1, 40))
    await settle()
    while site.pushes.under_way:
        await site.pushes.answer(signal=DOWN)
    tried = len(site.pushes.started)
    assert tried < 20, "their breaker is open"
    for number in range(100, 110):
        site.dispatcher.offer(site.account, [work(number)])
        await settle()
        assert number in site.pushes.under_way
        await site.pushes.answer(number)
    await site.clock.advance(1.0)
    (probe,) = site.pushes.under_way
    assert probe <= 40, "the probe is a cancellation, and no reservation waits for it"
    site.dispatcher.offer(site.account, [work(200)])
    await settle()
    assert 200 in site.pushes.under_way
    await site.pushes.answer(probe)
    while site.pushes.under_way:
        await site.pushes.answer()
    assert set(site.pushes.started) == {*range(1, 41), *range(100, 110), 200}
    assert site.pushes.started.count(probe) == 1


async def test_cancellations_go_while_reservations_fail_and_are_not_the_probe() -> None:
    site = _site(concurrency=TEN)
    await site.open_breaker()
    await site.offer(3)
    site.dispatcher.offer(site.account, _cancellations(100, 2))
    await settle()
    assert set(site.pushes.under_way) == {100, 101}
    await site.pushes.answer()
    assert site.throttle.failing is not None, "a cancellation that went well says nothing of reservations"
    await site.clock.advance(1.0)
    assert set(site.pushes.under_way) == {TEN + 1}


async def test_cancellations_that_take_long_leave_half_of_what_may_be_in_flight() -> None:
    site = _site(concurrency=4)
    site.dispatcher.offer(site.account, _cancellations(1, 10))
    await settle()
    assert set(site.pushes.under_way) == {1, 2}
    site.dispatcher.offer(site.account, [work(number) for number in range(100, 103)])
    await settle()
    assert set(site.pushes.under_way) == {1, 2, 100, 101}
    await site.pushes.answer(1, 100)
    assert set(site.pushes.under_way) == {2, 3, 101, 102}


async def test_what_is_put_off_can_be_withdrawn() -> None:
    site = _site(concurrency=TEN)
    site.dispatcher.offer(site.account, _cancellations(1, 40))
    await settle()
    while site.pushes.under_way:
        await site.pushes.answer(signal=DOWN)
    await site.dispatcher.stop(0.0)
    assert site.dispatcher.held == 0

"""A queue whose PMS asked for a pause: nothing starts, nothing is lost."""

from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Limit, Limits
from forwarder.reservation.outcome import Deferred
from forwarder.worker.dispatch.throttle import Throttles
from tests.support.memory.clock import ManualClock, settle
from tests.support.pms.httpx_transport import replying
from tests.support.simulator.server import booking
from tests.support.worker.pushes import DOWN, WELL
from tests.support.worker.queue_site import QueueSite
from tests.support.worker.works import account, work


@pytest.fixture
async def site() -> AsyncIterator[QueueSite]:
    site = QueueSite(concurrency=4, kind="a-kind-that-throttles")
    yield site
    await site.dispatcher.stop(0.0)


async def test_a_queue_that_is_held_off_starts_nothing_while_what_is_in_flight_goes_on(site: QueueSite) -> None:
    await site.offer(2)
    site.throttle.hold_off(30.0)
    await site.offer(4)
    await site.pushes.answer()
    assert (site.pushes.started, site.dispatcher.held) == ([1, 2], 4)
    await site.clock.advance(29.0)
    assert site.pushes.started == [1, 2]
    await site.clock.advance(1.0)
    assert site.pushes.started == [1, 2, 3, 4, 5, 6]


async def test_the_longest_of_several_pauses_holds(site: QueueSite) -> None:
    site.throttle.hold_off(5.0)
    await site.offer(1)
    site.throttle.hold_off(30.0)
    site.throttle.hold_off(10.0)
    await site.clock.advance(29.0)
    assert site.pushes.started == []
    await site.clock.advance(1.0)
    assert site.pushes.started == [1]


async def test_the_pause_outlasts_the_queue(site: QueueSite) -> None:
    await site.offer(1)
    pace = site.throttle
    await site.pushes.answer()
    site.dispatcher.close_if_idle(site.account.id)
    pace.hold_off(30.0)
    await site.offer(1)
    assert site.pushes.started == [1]
    await site.clock.advance(30.0)
    assert site.pushes.started == [1, 2]


async def test_while_held_off_no_more_is_held_than_could_be_in_flight(site: QueueSite) -> None:
    assert site.dispatcher.room_for(site.account) == 200
    site.throttle.hold_off(30.0)
    assert site.dispatcher.room_for(site.account) == 4
    await site.clock.advance(30.0)
    assert site.dispatcher.room_for(site.account) == 200


async def test_another_account_is_not_held_off(site: QueueSite) -> None:
    site.throttle.hold_off(30.0)
    await site.offer(1)
    site.dispatcher.offer(account("well"), [work(50)])
    await settle()
    assert site.pushes.started == [50]


async def test_after_the_pause_a_pms_that_refused_everything_is_probed_first(site: QueueSite) -> None:
    for _ in range(10):
        await site.offer(1)
        await site.pushes.answer(signal=DOWN)
    site.throttle.hold_off(30.0)
    await site.offer(4)
    await site.clock.advance(29.9)
    assert len(site.pushes.started) == 10
    await site.clock.advance(0.1)
    assert len(site.pushes.started) == 11
    await site.pushes.answer()
    assert len(site.pushes.started) == 13  # fewer at once than the four that it refused
    await site.pushes.answer()
    assert len(site.pushes.started) == 14


async def test_no_more_start_than_the_window_lets(site: QueueSite) -> None:
    await site.offer(20)
    started = len(site.pushes.under_way)
    for work_id, signal in zip(tuple(site.pushes.under_way), [DOWN, WELL, WELL, WELL], strict=False):
        await site.pushes.answer(work_id, signal=signal)
    assert started == 4
    await site.pushes.answer()
    assert site.throttle.limit == len(site.pushes.under_way) == 2


async def test_operators_see_when_a_pms_asked_for_a_pause(site: QueueSite) -> None:
    before = _hold_offs()
    with capture_logs() as lines:
        for seconds in (30.0, 40.0, 5.0):
            site.throttle.hold_off(seconds)
        await site.clock.advance(40.0)
        site.throttle.hold_off(1.0)
    assert [(line["event"], line["account_id"], line["seconds"]) for line in lines] == [
        ("pms.held_off", "acc", 30.0),
        ("pms.held_off", "acc", 1.0),
    ]
    assert _hold_offs() - before == 2.0


def _hold_offs() -> float:
    return REGISTRY.get_sample_value("forwarder_hold_offs_total", {"kind": "a-kind-that-throttles"}) or 0.0


async def test_the_throttled_answers_of_a_whole_flight_hold_the_queue_from_pms_to_queue(site: QueueSite) -> None:
    """From the answer on the wire to the queue, over one throttle."""
    throttled = httpx.Response(429, headers={"Retry-After": "20"})
    async with open_directory(site.clock, transport=replying(lambda _: throttled)) as directory:
        pms = directory.connect(AccountConnection("acc", "generic", "https://pms.test", "", site.throttle))
        await site.offer(1)
        assert isinstance(await pms.create(booking()), Deferred)
        await site.offer(3)
        assert site.pushes.started == [1]
        await site.clock.advance(20.0)
        assert site.pushes.started == [1, 2, 3, 4]


async def test_a_budget_hears_of_requests_that_the_wire_sends() -> None:
    clock = ManualClock()
    throttle = Throttles(clock, lambda *_: Limits((Limit(20, 10.0),))).of(account())
    empty = httpx.Response(200, json={"data": []})
    async with open_directory(clock, transport=replying(lambda _: empty)) as directory:
        pms = directory.connect(AccountConnection("acc", "generic", "https://pms.test", "", throttle))
        throttle.start()
        for _ in range(3):
            await pms.find(booking())
    assert throttle.delay() > 0.5

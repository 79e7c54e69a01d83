"""A PMS that says how fast it may be asked is heeded by the whole account."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from forwarder.pms.directory import open_directory
from forwarder.pms.pace import LONGEST_SECONDS, hold_off_asked
from forwarder.pms.port import Connection, Limit, Limits, Pms
from forwarder.pms.wire import Patience, Wire, request_to
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, InDoubt
from forwarder.worker.gate import Gates
from forwarder.worker.lanes import Lanes
from tests.support.manual_clock import ManualClock, settle
from tests.support.pace import HeardPace
from tests.support.pushes import DOWN, Pushes
from tests.support.simulator import booking
from tests.support.works import account, work

NOW = datetime(2027, 1, 1, tzinfo=UTC)
UNIX = int(NOW.timestamp())

Headers = dict[str, str] | list[tuple[str, str]]


def _asked(headers: Headers, status: int = 200) -> float:
    return hold_off_asked(httpx.Response(status, headers=headers), NOW)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"RateLimit": '"default";r=0;t=30'}, 30.0),
        ({"RateLimit": '"default"; r=0; t=30'}, 30.0),
        ({"RateLimit": "default;t=30;r=0"}, 30.0),
        ({"ratelimit": '"a";r=5;t=9, "b";r=0;t=40, "c";r=0;t=3'}, 40.0),
        ([("RateLimit", '"a";r=0;t=30'), ("RateLimit", '"b";r=7;t=50')], 30.0),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "12"}, 12.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "90"}, 90.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(UNIX + 90)}, 90.0),
        ({"x-ratelimit-remaining": "-3", "x-ratelimit-reset": "1.5"}, 1.5),
        ({"X-FiveMinCreditLimit-Remaining": "0", "X-FiveMinCreditLimit-ResetsIn": "200"}, 200.0),
        ({"X-FiveMinCreditLimit-Remaining": "0.4", "X-FiveMinCreditLimit-ResetsIn": "200"}, 200.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "90", "RateLimit": '"a";r=0;t=100'}, 100.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(UNIX + 4000)}, LONGEST_SECONDS),
    ],
)
@pytest.mark.parametrize("status", [200, 201, 422, 429, 503])
def test_when_nothing_remains_the_account_waits_for_the_reset(headers: Headers, seconds: float, status: int) -> None:
    assert _asked(headers, status) == seconds


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"RateLimit": '"default";r=1;t=30'},
        {"RateLimit": '"default";r=0'},
        {"RateLimit": '"default";r=00x;t=30'},
        {"RateLimit": '";r=0;t=30";r=5;t=30'},
        {"RateLimit": '"default";q=100;w=60'},
        {"RateLimit": '"default";r=0;t=999999999999999999'},
        {"RateLimit-Policy": '"default";q=0;w=60;r=0;t=30'},
        {"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "90"},
        {"X-RateLimit-Remaining": "0"},
        {"X-RateLimit-Reset": "90"},
        {"X-RateLimit-Remaining": "none", "X-RateLimit-Reset": "90"},
        {"X-RateLimit-Remaining": "nan", "X-RateLimit-Reset": "90"},
        {"X-RateLimit-Remaining": "0, 100", "X-RateLimit-Reset": "90"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "inf"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "-5"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(UNIX - 5)},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(UNIX + 10**8)},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(UNIX * 1000)},
        {"X-FiveMinCreditLimit-Remaining": "1.5", "X-FiveMinCreditLimit-ResetsIn": "200"},
    ],
)
def test_what_does_not_say_so_or_makes_no_sense_is_ignored(headers: Headers) -> None:
    assert _asked(headers) == 0.0
    assert _asked(headers, 429) == 0.0


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("30", 30.0),
        ("Fri, 01 Jan 2027 00:02:00 GMT", 120.0),
        ("7200", LONGEST_SECONDS),
        ("0", 0.0),
        ("-4", 0.0),
        ("later", 0.0),
    ],
)
def test_retry_after_holds_for_the_whole_account(status: int, asked: str, seconds: float) -> None:
    assert _asked({"Retry-After": asked}, status) == seconds


@pytest.mark.parametrize("status", [200, 202, 301, 409, 500])
def test_retry_after_of_another_status_is_about_something_else(status: int) -> None:
    assert _asked({"Retry-After": "30"}, status) == 0.0


async def test_the_wire_tells_of_each_request_before_it_is_sent_and_of_what_the_answer_asks() -> None:
    pace = HeardPace()

    def answer(_: httpx.Request) -> httpx.Response:
        pace.heard.append("sent")
        return httpx.Response(429, headers={"Retry-After": "7"})

    send = Wire(httpx.MockTransport(answer), ManualClock(), Patience()).push(pace)
    await send(request_to("GET", "http://pms.test/", []))
    await send(request_to("GET", "http://pms.test/", []))
    assert pace.heard == ["requested", "sent", 7.0] * 2


async def test_an_answer_that_asks_for_nothing_is_not_told() -> None:
    pace = HeardPace()
    send = Wire(httpx.MockTransport(lambda _: httpx.Response(200)), ManualClock(), Patience()).push(pace)
    await send(request_to("GET", "http://pms.test/", []))
    assert pace.heard == ["requested"]


Answer = Callable[[httpx.Request], httpx.Response]


@asynccontextmanager
async def _reached(answer: Answer, kind: str, pace: HeardPace) -> AsyncIterator[Pms]:
    async with open_directory(ManualClock(NOW), transport=httpx.MockTransport(answer)) as directory:
        yield directory.connect(Connection("acc", kind, "http://pms.test", "key", pace))


async def test_every_request_of_a_push_is_counted() -> None:
    def book(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/clients"):
            return httpx.Response(201, json={"clients": [{"id": 77}]})
        return httpx.Response(201, json={"bookings": [{"id": 5, "status": "Booked"}]})

    pace = HeardPace()
    async with _reached(book, "booking-sync", pace) as pms:
        assert isinstance(await pms.create(booking()), Confirmed)
    assert pace.heard == ["requested"] * 2


@pytest.mark.parametrize("kind", ["generic", "website-builder", "booking-sync"])
async def test_a_throttled_push_and_look_up_hold_the_account_off(kind: str) -> None:
    throttled = httpx.Response(429, headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(UNIX + 60)})
    pace = HeardPace()
    async with _reached(lambda _: throttled, kind, pace) as pms:
        assert isinstance(await pms.create(booking()), Deferred | InDoubt)
        assert isinstance(await pms.find(booking()), Deferred)
    assert pace.heard == ["requested", 60.0] * 2


async def test_without_anybody_who_minds_all_goes_on_as_before() -> None:
    last = httpx.Response(200, json={"data": []}, headers={"RateLimit": '"a";r=0;t=30'})
    async with open_directory(ManualClock(), transport=httpx.MockTransport(lambda _: last)) as directory:
        assert await directory.connect(Connection("acc", "generic", "http://pms.test", "")).find(booking()) == Absent()


class _Site:
    def __init__(self, **settings: Any) -> None:
        self.clock, self.pushes, self.account = ManualClock(), Pushes(), account(**settings)
        self.gates = Gates(self.clock)
        self.lanes = Lanes(self.clock, self.pushes.deliver, held_at_most=100, gates=self.gates)
        self._numbers = itertools.count(1)

    @property
    def pace(self) -> Any:
        return self.gates.of(self.account)

    async def offer(self, count: int) -> None:
        self.lanes.offer(self.account, [work(next(self._numbers)) for _ in range(count)])
        await settle()


@pytest.fixture
async def site() -> AsyncIterator[_Site]:
    site = _Site(concurrency=4, kind="a-kind-that-throttles")
    yield site
    await site.lanes.stop(0.0)


async def test_a_lane_that_is_held_off_starts_nothing_while_what_is_in_flight_goes_on(site: _Site) -> None:
    await site.offer(2)
    site.pace.hold_off(30.0)
    await site.offer(4)
    await site.pushes.answer()
    assert (site.pushes.started, site.lanes.held) == ([1, 2], 4)
    await site.clock.advance(29.0)
    assert site.pushes.started == [1, 2]
    await site.clock.advance(1.0)
    assert site.pushes.started == [1, 2, 3, 4, 5, 6]


async def test_the_longest_of_several_pauses_holds(site: _Site) -> None:
    site.pace.hold_off(5.0)
    await site.offer(1)
    site.pace.hold_off(30.0)
    site.pace.hold_off(10.0)
    await site.clock.advance(29.0)
    assert site.pushes.started == []
    await site.clock.advance(1.0)
    assert site.pushes.started == [1]


async def test_the_pause_outlasts_the_lane(site: _Site) -> None:
    await site.offer(1)
    pace = site.pace
    await site.pushes.answer()
    site.lanes.close_if_idle(site.account.id)
    pace.hold_off(30.0)
    await site.offer(1)
    assert site.pushes.started == [1]
    await site.clock.advance(30.0)
    assert site.pushes.started == [1, 2]


async def test_while_held_off_no_more_is_held_than_could_be_in_flight(site: _Site) -> None:
    assert site.lanes.room_for(site.account) == 100
    site.pace.hold_off(30.0)
    assert site.lanes.room_for(site.account) == 4
    await site.clock.advance(30.0)
    assert site.lanes.room_for(site.account) == 100


async def test_another_account_is_not_held_off(site: _Site) -> None:
    site.pace.hold_off(30.0)
    await site.offer(1)
    site.lanes.offer(account("well"), [work(50)])
    await settle()
    assert site.pushes.started == [50]


async def test_after_the_pause_a_pms_that_refused_everything_is_probed_first(site: _Site) -> None:
    for _ in range(10):
        await site.offer(1)
        await site.pushes.answer(finding=DOWN)
    site.pace.hold_off(30.0)
    await site.offer(4)
    await site.clock.advance(29.9)
    assert len(site.pushes.started) == 10
    await site.clock.advance(0.1)
    assert len(site.pushes.started) == 11
    await site.pushes.answer()
    assert len(site.pushes.started) == 14


async def test_operators_see_when_a_pms_asked_for_a_pause(site: _Site) -> None:
    before = _hold_offs()
    with capture_logs() as lines:
        for seconds in (30.0, 40.0, 5.0):
            site.pace.hold_off(seconds)
        await site.clock.advance(40.0)
        site.pace.hold_off(1.0)
    assert [(line["event"], line["account_id"], line["seconds"]) for line in lines] == [
        ("pms.held_off", "acc", 30.0),
        ("pms.held_off", "acc", 1.0),
    ]
    assert _hold_offs() - before == 2.0


def _hold_offs() -> float:
    return REGISTRY.get_sample_value("forwarder_hold_offs_total", {"kind": "a-kind-that-throttles"}) or 0.0


async def test_the_throttled_answers_of_a_whole_flight_hold_the_lane_from_pms_to_lane(site: _Site) -> None:
    """From the answer on the wire to the lane, over one gate."""
    throttled = httpx.Response(429, headers={"Retry-After": "20"})
    async with open_directory(site.clock, transport=httpx.MockTransport(lambda _: throttled)) as directory:
        pms = directory.connect(Connection("acc", "generic", "http://pms.test", "", site.pace))
        await site.offer(1)
        assert isinstance(await pms.create(booking()), Deferred)
        await site.offer(3)
        assert site.pushes.started == [1]
        await site.clock.advance(20.0)
        assert site.pushes.started == [1, 2, 3, 4]


async def test_a_budget_hears_of_requests_that_the_wire_sends() -> None:
    clock = ManualClock()
    gate = Gates(clock, lambda _: Limits((Limit(20, 10.0),))).of(account())
    empty = httpx.Response(200, json={"data": []})
    async with open_directory(clock, transport=httpx.MockTransport(lambda _: empty)) as directory:
        pms = directory.connect(Connection("acc", "generic", "http://pms.test", "", gate))
        gate.enter()
        for _ in range(3):
            await pms.find(booking())
    assert gate.delay() > 0.5

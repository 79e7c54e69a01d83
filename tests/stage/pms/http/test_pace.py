"""A PMS that says how fast it may be asked is understood, and whoever minds the pace of its account hears of it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import httpx
import pytest

from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import PmsClient, PushPolicy, Request
from forwarder.pms.http.response import MAX_WAIT_SECONDS, Response, hold_off_asked
from forwarder.pms.port import AccountConnection, Pms
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, InDoubt
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.pms.httpx_transport import replying
from tests.support.simulator.pace import HeardPace
from tests.support.simulator.server import booking

NOW = datetime(2027, 1, 1, tzinfo=UTC)
UNIX = int(NOW.timestamp())

Headers = dict[str, str] | list[tuple[str, str]]


def _asked(headers: Headers, status: int = 200) -> float:
    return hold_off_asked(Response(status, httpx.Headers(headers).raw), NOW)


@for_each(
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
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str((UNIX + 90) * 1000)}, 90.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2027-01-01T00:01:30Z"}, 90.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "Fri, 01 Jan 2027 00:01:30 GMT"}, 90.0),
        ({"X-Rate-Limit-Remaining": "0", "X-Rate-Limit-Reset": str(UNIX + 90)}, 90.0),
        ({"x-ratelimit-remaining": "-3", "x-ratelimit-reset": "1.5"}, 1.5),
        ({"X-FiveMinCreditLimit-Remaining": "0", "X-FiveMinCreditLimit-ResetsIn": "200"}, 200.0),
        ({"X-FiveMinCreditLimit-Remaining": "0.4", "X-FiveMinCreditLimit-ResetsIn": "200"}, 200.0),
        ({"x-five-min-limit-remaining": "0.4", "x-five-min-limit-resets-in": "200"}, 200.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "90", "RateLimit": '"a";r=0;t=100'}, 100.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(UNIX + 4000)}, MAX_WAIT_SECONDS),
    ],
)
def test_when_nothing_remains_the_account_waits_for_the_reset(headers: Headers, seconds: float) -> None:
    assert [_asked(headers, status) for status in (200, 201, 422, 429, 503)] == [seconds] * 5


@for_each(
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
        {"X-RateLimit-Remaining": "none", "X-RateLimit-Reset": "90"},
        {"X-RateLimit-Remaining": "nan", "X-RateLimit-Reset": "90"},
        {"X-RateLimit-Remaining": "0, 100", "X-RateLimit-Reset": "90"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "inf"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "-5"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(UNIX - 5)},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(UNIX + 10**8)},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str((UNIX - 5) * 1000)},
        {"X-FiveMinCreditLimit-Remaining": "1.5", "X-FiveMinCreditLimit-ResetsIn": "200"},
    ],
)
def test_what_does_not_say_so_or_makes_no_sense_is_ignored(headers: Headers) -> None:
    assert _asked(headers) == 0.0
    assert _asked(headers, 429) == 0.0


def test_a_429_alone_says_that_nothing_remains() -> None:
    assert _asked({"X-RateLimit-Reset": "90"}, 429) == 90.0
    assert _asked({"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "90"}, 429) == 0.0
    assert _asked({"X-RateLimit-Reset": "90"}) == 0.0


@for_each("status", [429, 503])
@for_each(
    ("asked", "seconds"),
    [
        ("30", 30.0),
        ("Fri, 01 Jan 2027 00:02:00 GMT", 120.0),
        ("7200", MAX_WAIT_SECONDS),
        (str(UNIX + 90), 90.0),
        (str(UNIX - 90), 0.0),
        ("0", 0.0),
        ("-4", 0.0),
        ("later", 0.0),
    ],
)
def test_retry_after_holds_for_the_whole_account(status: int, asked: str, seconds: float) -> None:
    assert _asked({"Retry-After": asked}, status) == seconds


@for_each("status", [200, 202, 301, 409, 500])
def test_retry_after_of_another_status_is_about_something_else(status: int) -> None:
    assert _asked({"Retry-After": "30"}, status) == 0.0


async def test_the_wire_tells_of_each_request_before_it_is_sent_and_of_what_the_answer_asks() -> None:
    pace = HeardPace()

    def answer(_: httpx.Request) -> httpx.Response:
        pace.heard.append("sent")
        return httpx.Response(429, headers={"Retry-After": "7"})

    send = PmsClient(replying(answer), ManualClock(), PushPolicy()).push(pace)
    await send(Request("GET", "https://pms.test/", []))
    await send(Request("GET", "https://pms.test/", []))
    assert pace.heard == ["requested", "sent", 7.0] * 2


async def test_an_answer_that_asks_for_nothing_is_not_told() -> None:
    pace = HeardPace()
    send = PmsClient(replying(lambda _: httpx.Response(200)), ManualClock(), PushPolicy()).push(pace)
    await send(Request("GET", "https://pms.test/", []))
    assert pace.heard == ["requested"]


Answer = Callable[[httpx.Request], httpx.Response]


@asynccontextmanager
async def _reached(answer: Answer, kind: str, pace: HeardPace) -> AsyncIterator[Pms]:
    async with open_directory(ManualClock(NOW), transport=replying(answer)) as directory:
        yield directory.connect(AccountConnection("acc", kind, "https://pms.test", "key", pace))


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
    async with open_directory(ManualClock(), transport=replying(lambda _: last)) as directory:
        assert (
            await directory.connect(AccountConnection("acc", "generic", "https://pms.test", "")).find(booking())
            == Absent()
        )

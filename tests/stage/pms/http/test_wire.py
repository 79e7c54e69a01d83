"""What is known of a failure, and how long and how often a push tries."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import Held, PmsClient, PushPolicy, Request, Reuse, Transport, bearer, path_segment
from forwarder.pms.http.outcomes import outcome_of
from forwarder.pms.http.response import NoResponse, NotSent, Response
from forwarder.pms.port import LEASE_LOST, AccountConnection
from forwarder.reservation.outcome import Absent, Deferred, InDoubt, Outcome
from tests.support.cases import for_each
from tests.support.pms.httpx_transport import failure_of, replying
from tests.support.simulator.pace import HeardPace
from tests.support.simulator.server import QuickClock, booking

NOTHING_SENT = [
    (httpx.ConnectError("refused"), "pms_unreachable"),
    (httpx.ConnectTimeout("late"), "pms_connect_timed_out"),
    (httpx.PoolTimeout("full"), "no_connection_free"),
    (httpx.UnsupportedProtocol("ftp"), "pms_address_invalid"),
]
UNCERTAIN = [
    (httpx.ReadTimeout("late"), "pms_timed_out"),
    (httpx.WriteTimeout("late"), "pms_timed_out"),
    (httpx.TimeoutException("late"), "pms_timed_out"),
    (TimeoutError(), "pms_timed_out"),
    (httpx.ReadError("reset"), "pms_connection_lost"),
    (httpx.WriteError("reset"), "pms_connection_lost"),
    (httpx.CloseError("reset"), "pms_connection_lost"),
    (httpx.NetworkError("reset"), "pms_connection_lost"),
    (httpx.ProxyError("proxy"), "pms_connection_lost"),
    (httpx.RemoteProtocolError("odd"), "pms_broke_protocol"),
    (httpx.LocalProtocolError("odd"), "pms_broke_protocol"),
    (httpx.DecodingError("odd"), "pms_broke_protocol"),
    (httpx.TooManyRedirects("round"), "pms_connection_lost"),
    (httpx.HTTPError("anything"), "pms_connection_lost"),
]


@pytest.mark.parametrize(("error", "reason"), NOTHING_SENT)
def test_what_surely_was_not_sent_is_deferred(error: httpx.HTTPError, reason: str) -> None:
    outcome = outcome_of(failure_of(error))
    assert isinstance(outcome, Deferred)
    assert outcome.reason == reason
    assert outcome.retry_after_seconds is None


@for_each(("error", "reason"), UNCERTAIN)
def test_all_else_is_in_doubt(error: httpx.HTTPError | TimeoutError, reason: str) -> None:
    outcome = outcome_of(failure_of(error))
    assert isinstance(outcome, InDoubt)
    assert outcome.reason == reason


class Scripted:
    """A transport that answers by script, the last line again and again."""

    def __init__(self, *script: int | Exception) -> None:
        self._script = [*script[:-1]]
        self._last = script[-1]
        self.requests: list[bytes] = []
        self.deadlines: list[float] = []
        self.closed = False

    async def exchange(
        self, request: Request, deadline: float, held: Held | None = None, reuse: Reuse | None = None
    ) -> Response:
        if held is not None and not held():
            raise NotSent(LEASE_LOST, "as the transport of production would")
        self.requests.append(request.content)
        self.deadlines.append(deadline)
        line = self._script.pop(0) if self._script else self._last
        if isinstance(line, Exception):
            raise failure_of(line)
        return Response(line, content=b'{"id":1}')

    async def aclose(self) -> None:
        self.closed = True


REFUSED = httpx.ConnectError("refused")


async def push(transport: Transport, clock: QuickClock | None = None, **policy: Any) -> Response:
    wire = PmsClient(transport, clock or QuickClock(), PushPolicy(**policy))
    return await wire.push()(Request("POST", "https://pms.test/reservations", [], b"body"))


async def test_what_was_not_sent_is_tried_again_after_growing_random_pauses() -> None:
    pauses = []
    for _ in range(50):
        transport, clock = Scripted(REFUSED, REFUSED, 201), QuickClock()
        response = await push(transport, clock)
        assert response.status_code == 201
        assert transport.requests == [b"body"] * 3
        pauses.append(clock.slept)
    firsts, seconds = zip(*pauses, strict=True)
    assert min(firsts) >= 0.0
    assert max(firsts) <= 0.5 < max(seconds) <= 1.0
    assert len(set(firsts)) > 1


async def test_and_given_up_after_three_times() -> None:
    transport, clock = Scripted(REFUSED), QuickClock()
    with pytest.raises(NotSent):
        await push(transport, clock)
    assert len(transport.requests) == 3
    assert len(clock.slept) == 2


async def test_each_try_counts_as_a_request() -> None:
    pace = HeardPace()
    send = PmsClient(Scripted(REFUSED), QuickClock(), PushPolicy()).push(pace)
    with pytest.raises(NotSent):
        await send(Request("GET", "https://pms.test/", []))
    assert pace.heard == ["requested"] * 3


async def test_nothing_is_sent_that_is_not_held_nor_tried_again() -> None:
    transport, held = Scripted(REFUSED, 201), iter((True, False))
    send = PmsClient(transport, QuickClock(), PushPolicy()).push(held=lambda: next(held))
    with pytest.raises(NotSent) as caught:
        await send(Request("POST", "https://pms.test/", [], b"body"))
    assert caught.value.reason == LEASE_LOST
    assert transport.requests == [b"body"]
    assert next(held, None) is None


async def test_not_where_the_push_would_take_too_long() -> None:
    transport, clock = Scripted(REFUSED), QuickClock()
    with pytest.raises(NotSent):
        await push(transport, clock, push_seconds=0.000001)
    assert not clock.slept


@for_each("error", [error for error, _ in UNCERTAIN])
async def test_what_may_have_been_sent_is_never_sent_again(error: Exception) -> None:
    transport, clock = Scripted(error), QuickClock()
    with pytest.raises(NoResponse):
        await push(transport, clock)
    assert len(transport.requests) == 1
    assert not clock.slept


async def test_nor_is_it_when_it_came_after_a_safe_failure() -> None:
    transport = Scripted(REFUSED, httpx.ReadError("reset"), 201)
    with pytest.raises(NoResponse):
        await push(transport)
    assert len(transport.requests) == 2


async def test_an_invalid_address_is_not_tried_again() -> None:
    transport = Scripted(httpx.UnsupportedProtocol("ftp"))
    with pytest.raises(NotSent):
        await push(transport)
    assert len(transport.requests) == 1


async def test_a_transport_knows_when_the_time_of_the_push_is_over() -> None:
    transport = Scripted(200)
    before = asyncio.get_running_loop().time()
    send = PmsClient(transport, QuickClock(), PushPolicy(push_seconds=20.0)).push()
    for _ in range(2):
        await send(Request("GET", "https://pms.test/", []))
    assert before + 20.0 <= transport.deadlines[0] == transport.deadlines[1] <= before + 21.0


async def test_one_push_has_one_time_for_all_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    send = PmsClient(Scripted(200), QuickClock(), PushPolicy(push_seconds=60.0)).push()
    await send(Request("GET", "https://pms.test/", []))
    loop = asyncio.get_running_loop()
    over = loop.time() + 60.0
    with monkeypatch.context() as later:
        later.setattr(loop, "time", lambda: over)
        with pytest.raises(NotSent) as caught:
            await send(Request("GET", "https://pms.test/", []))
    assert caught.value.reason == "push_timed_out"


@pytest.mark.parametrize("credential", ["a b", "a\r\nX: y", "ключ", "a\0"])
def test_credentials_that_no_header_can_carry(credential: str) -> None:
    with pytest.raises(NotSent) as caught:
        bearer(credential)
    assert credential not in str(caught.value)


def test_no_credential_is_no_header() -> None:
    assert bearer("") == ()


def test_no_identifier_leads_out_of_its_place_in_a_path() -> None:
    assert path_segment("a/b?c#d") == "a%2Fb%3Fc%23d"
    assert path_segment("Größe 7") == "Gr%C3%B6%C3%9Fe%207"
    assert [path_segment(name) for name in ("", ".", "..")] == [None] * 3


async def test_the_directory_closes_its_transport() -> None:
    transport = Scripted(201)
    async with open_directory(QuickClock(), transport=transport) as directory:
        pms = directory.connect(AccountConnection("acme", "generic", "https://pms.test/", "key"))
        await pms.create(booking())
    assert transport.closed


KINDS_OF_DOUBT: list[tuple[Callable[[], Exception], type]] = [
    (lambda: httpx.ConnectError("refused"), Deferred),
    (lambda: httpx.ReadTimeout("late"), InDoubt),
]


@pytest.mark.parametrize(("error", "kind"), KINDS_OF_DOUBT)
async def test_a_pms_raises_nothing(error: Callable[[], Exception], kind: type[Outcome]) -> None:
    async with open_directory(QuickClock(), transport=Scripted(error())) as directory:
        pms = directory.connect(AccountConnection("acme", "generic", "https://pms.test/", "key"))
        assert isinstance(await pms.create(booking()), kind)
        assert isinstance(await pms.find(booking()), Deferred)


async def test_a_driver_that_quotes_a_card_is_not_repeated() -> None:
    quoting = httpx.ReadError("bad bytes: 4111 1111 1111 1111,\n4111111111111111")
    failure = failure_of(quoting)
    assert "4111" not in repr(failure)
    assert "1111" not in failure.detail
    assert "\n" not in failure.detail


async def test_nothing_found_is_absent() -> None:
    empty = replying(lambda _: httpx.Response(200, content=b'{"data":[]}'))
    async with open_directory(QuickClock(), transport=empty) as directory:
        pms = directory.connect(AccountConnection("acme", "generic", "https://pms.test/", "key"))
        assert await pms.find(booking()) == Absent()

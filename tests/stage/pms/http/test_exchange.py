"""One exchange as the push sees it: in time, with the request as it was built."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from forwarder.pms.http.client import PmsClient, PushPolicy, Request, destination_of, encoded
from forwarder.pms.http.connections import ConnectionPool, PoolLimits
from forwarder.pms.http.response import NoResponse, Response
from forwarder.process.clock import SystemClock
from tests.support.cases import for_each
from tests.support.network.raw_server import Caller, raw_server
from tests.support.network.transports import CREATED, ask


@pytest.fixture
async def transport() -> AsyncIterator[ConnectionPool]:
    async with ConnectionPool(PoolLimits(connect_seconds=10.0)) as opened:
        yield opened


async def once(caller: Caller) -> None:
    """Answers the first request, and never the second."""
    await caller.request()
    await caller.say(CREATED)
    await caller.request()
    await caller.gone()


async def test_a_pms_that_never_answers_is_given_up_when_the_time_of_the_push_is_over(
    transport: ConnectionPool,
) -> None:
    async with raw_server(once) as server:
        request = Request("POST", server.url, [], b"body")
        await ask(transport, server.url)  # the next finds its connection made: its time is all for the response
        send = PmsClient(transport, SystemClock(), PushPolicy(push_seconds=0.3)).push()
        with pytest.raises(NoResponse) as caught:
            await asyncio.wait_for(send(request), 10)
        await asyncio.gather(*server.scripts)
    assert caught.value.reason == "pms_timed_out"
    assert server.connections == 1


def test_headers_are_found_by_name_in_any_case_of_letters() -> None:
    response = Response(200, [(b"X-Name", b"a"), (b"x-name", b"b"), (b"X-Other", b"\xfc")])
    assert response.header_values("X-NAME") == ["a", "b"]
    assert [response.header(name) for name in ("x-name", "x-other", "x-none")] == ["a, b", "ü", None]


@for_each(
    ("url", "query", "target"),
    [
        ("/a", "b=c%20d", b"/a?b=c%20d"),
        ("/a?old=1", "b=c", b"/a?b=c"),
        ("/a?old=1", "", b"/a?old=1"),
        ("", "", b"/"),
        ("/a", "b=c d&e=\r\n#", b"/a?b=c%20d&e=%0D%0A%23"),
    ],
)
def test_a_query_is_sent_as_it_was_encoded(url: str, query: str, target: bytes) -> None:
    request = Request("GET", f"https://pms.test{url}", query=query)
    assert encoded(request, destination_of(request.url)).split(b"\r\n")[0] == b"GET %b HTTP/1.1" % target


@pytest.mark.parametrize("name", [b"X-100%", b"X-%b"])
async def test_a_name_may_hold_whatever_a_token_may(transport: ConnectionPool, name: bytes) -> None:
    seen: list[bytes] = []

    async def script(caller: Caller) -> None:
        seen.append(await caller.request())
        await caller.say(CREATED)

    async with raw_server(script) as server:
        await ask(transport, server.url, method="GET", headers=[(name, b"50%d")])
    assert b"\r\n%s: 50%%d\r\n" % name in seen[0]

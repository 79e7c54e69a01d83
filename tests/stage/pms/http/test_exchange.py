"""One exchange as the push sees it: in time over any transport; and what httpx's objects tell where they are made late."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from forwarder.pms.http.client import PmsClient, PushPolicy, request_to
from forwarder.pms.http.exchange import punctual
from forwarder.pms.http.failure import NoResponse
from forwarder.pms.http.response import WholeResponse
from forwarder.pms.http.transport import HttpTransport, PoolLimits
from forwarder.process.clock import SystemClock
from tests.support.network.raw_server import Caller, raw_server
from tests.support.network.transports import CREATED


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    async with HttpTransport(PoolLimits(connect_seconds=1.0)) as opened:
        yield opened


async def once(caller: Caller) -> None:
    """Answers the first request, and never the second."""
    await caller.request()
    await caller.say(CREATED)
    await caller.request()
    await caller.gone()


async def test_a_pms_that_never_answers_is_given_up_when_the_time_of_the_push_is_over(transport: HttpTransport) -> None:
    async with raw_server(once) as server:
        request = request_to("POST", server.url, [], b"body")
        await transport.handle_async_request(
            request
        )  # the next finds its connection made: its time is all for the answer
        send = PmsClient(transport, SystemClock(), PushPolicy(push_seconds=0.3)).push()
        with pytest.raises(NoResponse) as caught:
            await asyncio.wait_for(send(request), 10)
        await asyncio.gather(*server.scripts)
    assert caught.value.reason == "pms_timed_out"
    assert server.connections == 1


async def test_so_is_a_request_whose_body_does_not_come(transport: HttpTransport) -> None:
    async def body() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    request = httpx.Request("POST", "http://pms.test/", content=body())
    send = PmsClient(transport, SystemClock(), PushPolicy(push_seconds=0.3)).push()
    with pytest.raises(NoResponse) as caught:
        await asyncio.wait_for(send(request), 10)
    assert caught.value.reason == "pms_timed_out"


async def test_the_transport_of_production_is_not_watched_and_any_other_is(transport: HttpTransport) -> None:
    other = httpx.MockTransport(lambda _: httpx.Response(200))
    assert punctual(transport) is transport
    assert (await punctual(other).exchange(httpx.Request("GET", "http://pms.test/"), float("inf"))).content == b""


async def test_what_is_changed_of_a_request_is_what_is_sent(transport: HttpTransport) -> None:
    seen: list[bytes] = []

    async def script(caller: Caller) -> None:
        seen.append(await caller.request())
        await caller.say(CREATED)

    async with raw_server(script) as server:
        request = request_to("POST", "http://pms.test/old", [(b"X-Kept", b"1"), (b"X-Changed", b"1")], b"old")
        request.headers["X-Changed"] = "2"
        request.stream = httpx.ByteStream(b"new body")
        request.url = httpx.URL(f"{server.url}/new")
        assert (await transport.handle_async_request(request)).status_code == 201
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /new HTTP/1.1\r\n")
    assert {b"X-Kept: 1", b"X-Changed: 2", b"Content-Length: 8"} <= set(head.split(b"\r\n"))
    assert body == b"new body"


async def test_a_request_is_to_httpx_as_one_of_its_own() -> None:
    ours = request_to("post", "http://pms.test/a", [(b"X-Name", b"value")], b"body", query="b=c")
    own = httpx.Request(
        "POST", "http://pms.test/a?b=c", headers=[(b"X-Name", b"value")], stream=httpx.ByteStream(b"body")
    )
    assert (ours.method, ours.url, ours.headers, ours.extensions) == (own.method, own.url, own.headers, own.extensions)
    assert (await ours.aread(), ours.content) == (b"body", b"body")
    assert not hasattr(ours, "unheard_of")


def test_a_response_is_to_httpx_as_one_of_its_own() -> None:
    response = WholeResponse(
        404, [(b"Content-Type", b"application/json; charset=utf-8"), (b"X-Name", b"value")], b'{"a":"\xc3\xbc"}'
    )
    response.request = request_to("GET", "http://pms.test/", [])
    assert (response.json(), response.text, response.headers["x-name"]) == ({"a": "ü"}, '{"a":"ü"}', "value")
    with pytest.raises(httpx.HTTPStatusError):
        response.raise_for_status()
    assert response.request.url == "http://pms.test/"
    assert not hasattr(response, "unheard_of")


@pytest.mark.parametrize("name", [b"X-100%", b"X-%b"])
async def test_a_name_may_hold_whatever_a_token_may(transport: HttpTransport, name: bytes) -> None:
    seen: list[bytes] = []

    async def script(caller: Caller) -> None:
        seen.append(await caller.request())
        await caller.say(CREATED)

    async with raw_server(script) as server:
        await transport.handle_async_request(request_to("GET", server.url, [(name, b"50%d")]))
    assert b"\r\n%s: 50%%d\r\n" % name in seen[0]

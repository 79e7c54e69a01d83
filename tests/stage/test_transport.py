"""The transport of production: that nothing was sent is said only where it is certain."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import closing

import httpx
import pytest

from forwarder.pms.transport import Connections, RustTransport
from forwarder.pms.wire import MAX_ANSWER_BYTES, request_to
from tests.support.raw_server import Caller, Script, raw_server

NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
CREATED = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"


@pytest.fixture
async def transport() -> AsyncIterator[RustTransport]:
    async with RustTransport(Connections(connect_seconds=0.3)) as opened:
        yield opened


def a_request(url: str, *, seconds: float = 5.0, content: bytes = b'{"a":1}') -> httpx.Request:
    request = request_to("POST", url, [(b"X-Name", b"value")], content)
    request.extensions["timeout"] = {"read": seconds}
    return request


async def test_a_request_arrives_as_it_was_built(transport: RustTransport) -> None:
    seen = []

    async def script(caller: Caller) -> None:
        seen.append(await caller.request())
        await caller.say(CREATED)

    async with raw_server(script) as server:
        response = await transport.handle_async_request(a_request(f"{server.url}/a%2Fb?c=d%20e"))
    [head, body] = seen[0].split(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"post /a%2fb?c=d%20e http/1.1"
    assert b"x-name: value" in lines
    assert b"content-length: 7" in lines
    assert b"host: " + server.url.removeprefix("http://").encode() in lines
    assert body == b'{"a":1}'
    assert response.status_code == 201
    assert response.content == await response.aread() == response.read() == b"{}"
    assert response.json() == {}
    assert response.headers["content-length"] == "2"


async def test_connections_are_used_again_and_no_cookie_is_kept(transport: RustTransport) -> None:
    seen = []

    async def script(caller: Caller) -> None:
        while True:
            seen.append(await caller.request())
            await caller.say(b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")

    async with raw_server(script) as server:
        for _ in range(3):
            await transport.handle_async_request(a_request(server.url))
        assert server.connections == 1
    assert not [request for request in seen if b"cookie" in request.lower()]


async def reset_after_request(caller: Caller) -> None:
    await caller.request()
    caller.reset()


async def close_after_request(caller: Caller) -> None:
    await caller.request()


async def half_an_answer(caller: Caller) -> None:
    await caller.request()
    await caller.say(b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{")


async def half_an_answer_and_reset(caller: Caller) -> None:
    await half_an_answer(caller)
    caller.reset()


async def half_an_answer_and_silence(caller: Caller) -> None:
    await half_an_answer(caller)
    await caller.gone()


async def silence(caller: Caller) -> None:
    await caller.request()
    await caller.gone()


async def not_http(caller: Caller) -> None:
    await caller.request()
    await caller.say(b"220 mail.example ESMTP\r\n\r\n")


async def endless_head(caller: Caller) -> None:
    await caller.request()
    await caller.say(b"HTTP/1.1 201 Created\r\n" + b"x-more: and more\r\n" * 40_000)


async def broken_chunks(caller: Caller) -> None:
    await caller.request()
    await caller.say(b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n")


async def a_header_that_is_not_text(caller: Caller) -> None:
    await caller.request()
    await caller.say(b"HTTP/1.1 201 Created\r\nx-name: \xff\xfe\r\ncontent-length: 2\r\n\r\n{}")


async def broken_compression(caller: Caller) -> None:
    await caller.request()
    await caller.say(b"HTTP/1.1 201 Created\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}")


async def reset_of_a_used_connection(caller: Caller) -> None:
    await caller.request()
    await caller.say(CREATED)
    await caller.request()
    caller.reset()


@pytest.mark.parametrize(
    "script",
    [
        reset_after_request,
        close_after_request,
        half_an_answer,
        half_an_answer_and_reset,
        half_an_answer_and_silence,
        silence,
        not_http,
        endless_head,
        broken_chunks,
        broken_compression,
    ],
)
async def test_once_a_connection_stood_nothing_is_certain(transport: RustTransport, script: Script) -> None:
    async with raw_server(script) as server:
        with pytest.raises(httpx.TransportError) as caught:
            await transport.handle_async_request(a_request(server.url, seconds=0.3))
    assert not isinstance(caught.value, NOTHING_SENT), caught.value
    assert server.url not in str(caught.value)


async def test_nor_on_a_connection_that_was_used_before(transport: RustTransport) -> None:
    async with raw_server(reset_of_a_used_connection) as server:
        await transport.handle_async_request(a_request(server.url))
        with pytest.raises(httpx.TransportError) as caught:
            await transport.handle_async_request(a_request(server.url))
    assert server.connections == 1
    assert not isinstance(caught.value, NOTHING_SENT), caught.value


async def test_a_header_that_is_not_text_is_no_reason_to_raise_anything_else(transport: RustTransport) -> None:
    async with raw_server(a_header_that_is_not_text) as server:
        answers = await asyncio.gather(transport.handle_async_request(a_request(server.url)), return_exceptions=True)
    assert isinstance(answers[0], httpx.Response | httpx.RemoteProtocolError)


async def test_a_refused_connection_and_an_unknown_host_are_certain(transport: RustTransport) -> None:
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))
        for url in (f"http://127.0.0.1:{nobody.getsockname()[1]}", "http://no-such-host.invalid"):
            with pytest.raises(httpx.ConnectError):
                await transport.handle_async_request(a_request(url))


async def test_an_idle_connection_that_was_closed_is_not_mistaken_for_an_answer(transport: RustTransport) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(CREATED)

    async with raw_server(script) as server:
        await transport.handle_async_request(a_request(server.url))
        await asyncio.gather(*server.scripts)
        response = await transport.handle_async_request(a_request(server.url))
        assert response.status_code == 201
        assert server.connections == 2


async def test_a_handshake_that_does_not_end_is_certain(transport: RustTransport) -> None:
    async def script(caller: Caller) -> None:
        await caller.gone()

    async with raw_server(script) as server:
        with pytest.raises(httpx.ConnectTimeout):
            await transport.handle_async_request(a_request(server.url.replace("http:", "https:")))


async def test_a_wait_for_a_connection_that_does_not_end_is_certain() -> None:
    async with RustTransport(Connections(at_most=1, pool_seconds=0.1)) as transport, raw_server(silence) as server:
        first = asyncio.create_task(transport.handle_async_request(a_request(server.url, seconds=0.5)))
        await server.called.wait()
        with pytest.raises(httpx.PoolTimeout):
            await transport.handle_async_request(a_request(server.url))
        with pytest.raises(httpx.ReadTimeout):
            await first


@pytest.mark.parametrize("url", ["nonsense", "/path", "ftp://pms.example", "mailto:pms@example.com"])
async def test_what_is_no_address_is_certain(transport: RustTransport, url: str) -> None:
    with pytest.raises(httpx.UnsupportedProtocol):
        await transport.handle_async_request(a_request(url))


async def test_a_cancelled_exchange_is_over_when_its_time_is() -> None:
    closed = asyncio.Event()

    async def script(caller: Caller) -> None:
        await caller.request()
        if server.connections == 1:
            await caller.gone()
            closed.set()
        await caller.say(CREATED)

    async with (
        RustTransport(Connections(at_most=1, pool_seconds=10.0)) as transport,
        raw_server(script) as server,
    ):
        exchange = asyncio.create_task(transport.handle_async_request(a_request(server.url, seconds=0.3)))
        await server.called.wait()
        exchange.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange
        response = await transport.handle_async_request(a_request(server.url, seconds=10.0))
        assert response.status_code == 201
        await asyncio.wait_for(closed.wait(), 5)


def chunked(body: bytes, *, size: int = 8192) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


ENDLESS = b"9" * (MAX_ANSWER_BYTES + 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"content-length: %d\r\n\r\n%s" % (len(ENDLESS), ENDLESS),
        b"transfer-encoding: chunked\r\n\r\n" + chunked(ENDLESS),
        b"\r\n" + ENDLESS,
        b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(gzip.compress(b"0" * 200_000_000, 1)),
    ],
    ids=["announced", "chunked", "until it closes", "compressed"],
)
async def test_no_more_than_the_limit_is_read(transport: RustTransport, answer: bytes) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(b"HTTP/1.1 201 Created\r\n" + answer)

    async with raw_server(script) as server:
        with pytest.raises(httpx.ReadError, match="an answer of"):
            await transport.handle_async_request(a_request(server.url))


@pytest.mark.parametrize(
    "answer",
    [
        b"content-length: 9\r\n\r\n" + b'{"id": 5}',
        b"transfer-encoding: chunked\r\n\r\n" + chunked(b'{"id": 5}', size=2),
        b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(gzip.compress(b'{"id": 5}')),
    ],
    ids=["announced", "chunked", "compressed"],
)
async def test_whole_answers(transport: RustTransport, answer: bytes) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(b"HTTP/1.1 201 Created\r\n" + answer)

    async with raw_server(script) as server:
        response = await transport.handle_async_request(a_request(server.url))
    assert response.json() == {"id": 5}

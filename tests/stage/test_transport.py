"""The transport of production: that nothing was sent is said only where it is certain."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import closing

import httpx
import pytest

from forwarder.pms.transport import Connections, RustTransport
from forwarder.pms.wire import request_to
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


async def close_of_a_used_connection(caller: Caller) -> None:
    await caller.request()
    await caller.say(CREATED)
    await caller.request()


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
    assert server.connections == 1


@pytest.mark.parametrize("script", [reset_of_a_used_connection, close_of_a_used_connection])
async def test_nor_on_a_connection_that_was_used_before(transport: RustTransport, script: Script) -> None:
    async with raw_server(script) as server:
        await transport.handle_async_request(a_request(server.url))
        with pytest.raises(httpx.TransportError) as caught:
            await transport.handle_async_request(a_request(server.url))
    assert server.connections == 1  # it was not sent once more by the driver itself
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

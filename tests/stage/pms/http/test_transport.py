"""The transport of production: that nothing was sent is said only where it is certain."""

import asyncio
import socket
from contextlib import closing

import pytest

from forwarder.pms.http.connections import ConnectionPool
from forwarder.pms.http.response import NoResponse, NotSent, Response
from tests.support.network.patience import once_met
from tests.support.network.raw_server import Caller, Script
from tests.support.network.transports import CREATED, Way, ask


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
async def test_once_a_connection_stood_nothing_is_certain(way: Way, transport: ConnectionPool, script: Script) -> None:
    received: list[Caller] = []

    async def scripted(caller: Caller) -> None:
        caller.on_request = lambda: received.append(caller)
        await script(caller)

    async def asked(seconds: float) -> Exception:
        async with way.server(scripted) as server:
            with pytest.raises((NotSent, NoResponse)) as caught:
                await ask(transport, server.url, seconds=seconds)
        assert server.url not in str(caught.value)
        assert server.connections <= 1
        return caught.value

    failure = await once_met(asked, lambda: bool(received))
    assert not isinstance(failure, NotSent), failure


@pytest.mark.parametrize("script", [reset_of_a_used_connection, close_of_a_used_connection])
async def test_nor_on_a_connection_that_was_used_before(way: Way, transport: ConnectionPool, script: Script) -> None:
    async with way.server(script) as server:
        await ask(transport, server.url)
        with pytest.raises((NotSent, NoResponse)) as caught:
            await ask(transport, server.url)
    assert server.connections == 1  # it was not sent once more by the driver itself
    assert not isinstance(caught.value, NotSent), caught.value


async def test_a_header_that_is_not_text_is_no_reason_to_raise_anything_else(
    way: Way, transport: ConnectionPool
) -> None:
    async with way.server(a_header_that_is_not_text) as server:
        answers = await asyncio.gather(ask(transport, server.url), return_exceptions=True)
    assert isinstance(answers[0], Response | NoResponse)


async def test_a_refused_connection_and_an_unknown_host_are_certain(transport: ConnectionPool) -> None:
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        for host in (f"127.0.0.1:{port}", "no-such-host.invalid", f"{'x' * 64}.invalid"):
            with pytest.raises(NotSent, match="pms_unreachable"):
                await ask(transport, f"http://{host}")


async def test_a_wait_for_a_connection_that_does_not_end_is_certain(way: Way) -> None:
    asked = asyncio.Event()

    async def script(caller: Caller) -> None:
        await caller.request()
        asked.set()
        await caller.gone()

    async with way.transport(max_connections=1, pool_seconds=0.1) as transport, way.server(script) as server:
        first = asyncio.create_task(ask(transport, server.url, seconds=60.0))
        await asked.wait()
        with pytest.raises(NotSent, match="no_connection_free"):
            await ask(transport, server.url)
        first.cancel()
        await asyncio.wait([first])


@pytest.mark.parametrize(
    "url", ["nonsense", "/path", "ftp://pms.example", "mailto:pms@example.com", "http://[half", "http://"]
)
async def test_what_is_no_address_is_certain(transport: ConnectionPool, url: str) -> None:
    with pytest.raises(NotSent, match="pms_address_invalid"):
        await ask(transport, url)


@pytest.mark.parametrize("seconds", [0.0, 0.2])
async def test_a_time_that_is_over_before_it_stood_is_certain(way: Way, seconds: float) -> None:
    async with way.transport(max_connections=1) as transport, way.server(silence) as server:
        first = asyncio.create_task(ask(transport, server.url, seconds=60.0))
        await server.called.wait()
        with pytest.raises(NotSent):
            await ask(transport, server.url, seconds=seconds)
        first.cancel()
        await asyncio.wait([first])
    assert server.connections == 1

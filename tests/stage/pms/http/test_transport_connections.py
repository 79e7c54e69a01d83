"""The transport of production: which connections are used again, how many there are, and that none is left open."""

import asyncio

import pytest

from forwarder.pms.http.connections import ConnectionPool
from forwarder.pms.http.response import NoResponse, NotSent
from tests.support.network.raw_server import Caller, Script
from tests.support.network.transports import CREATED, Way, ask


def always(answer: bytes) -> Script:
    async def script(caller: Caller) -> None:
        while True:
            await caller.request()
            await caller.say(answer)

    return script


async def test_connections_are_used_again_and_no_cookie_is_kept(way: Way, transport: ConnectionPool) -> None:
    seen = []

    async def script(caller: Caller) -> None:
        while True:
            seen.append(await caller.request())
            await caller.say(b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")

    async with way.server(script) as server:
        for _ in range(3):
            await ask(transport, server.url)
        assert server.connections == 1
    assert not [request for request in seen if b"cookie" in request.lower()]


@pytest.mark.parametrize(
    "answer",
    [
        CREATED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"),
        CREATED.replace(b"HTTP/1.1", b"HTTP/1.0"),
        CREATED + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother",
        CREATED + b"H",
        CREATED + b"\0",
    ],
    ids=["told", "HTTP/1.0", "another answer", "the beginning of one", "leftover"],
)
async def test_a_connection_is_not_used_after_an_answer_that_forbids_it(
    way: Way, transport: ConnectionPool, answer: bytes
) -> None:
    async with way.server(always(answer)) as server:
        for times in (1, 2, 3):
            response = await ask(transport, server.url)
            assert (response.content, server.connections) == (b"{}", times)


@pytest.mark.parametrize("seen_by_the_loop", [True, False])
@pytest.mark.parametrize("unasked", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother"], ids=["end", "answer"])
async def test_what_comes_while_nothing_was_asked_ends_a_connection(
    way: Way, transport: ConnectionPool, unasked: bytes, seen_by_the_loop: bool
) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(CREATED)
        await go_on.wait()
        await caller.say(unasked) if unasked else caller.writer.close()
        said.set()
        await caller.gone()

    go_on, said = asyncio.Event(), asyncio.Event()
    async with way.server(script) as server:
        await ask(transport, server.url)
        go_on.set()
        await said.wait()
        if seen_by_the_loop:
            await asyncio.gather(*server.scripts)
        said.clear()
        response = await ask(transport, server.url)
        assert (response.content, server.connections) == (b"{}", 2)


async def test_the_one_that_was_used_last_is_used_next(way: Way, transport: ConnectionPool) -> None:
    used: list[int] = []
    both = asyncio.Barrier(2)

    async def script(caller: Caller) -> None:
        while True:
            request = await caller.request()
            used.append(id(caller))
            if b"/wait" in request:
                await both.wait()
            await caller.say(CREATED)

    async with way.server(script) as server:
        waiting = (ask(transport, f"{server.url}/wait") for _ in range(2))
        await asyncio.gather(*waiting)
        del used[:]
        for _ in range(3):
            await ask(transport, server.url)
    assert len(set(used)) == 1


async def test_no_more_are_kept_than_allowed_and_not_for_longer(way: Way) -> None:
    gone, all_here = asyncio.Queue[int](), asyncio.Barrier(4)

    async def script(caller: Caller) -> None:
        number = server.connections
        await caller.request()
        await all_here.wait()
        await caller.say(CREATED)
        await caller.gone()
        gone.put_nowait(number)

    async with way.transport(max_idle_per_pms=2, idle_seconds=0.3) as transport, way.server(script) as server:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(ask(transport, server.url) for _ in range(4)))
        for _ in range(2):
            await gone.get()
        assert gone.empty() or asyncio.get_running_loop().time() - began >= 0.3
        for _ in range(2):
            await gone.get()
        assert asyncio.get_running_loop().time() - began >= 0.3


async def test_turns_are_taken_in_order_and_passed_on(way: Way) -> None:
    order: list[bytes] = []
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def script(caller: Caller) -> None:
        while True:
            order.append((await caller.request()).split(b" ")[1])
            asked.set()
            await go_on.wait()
            await caller.say(CREATED)

    async with way.transport(max_connections=1, pool_seconds=30.0) as transport, way.server(script) as server:
        exchanges = [asyncio.create_task(ask(transport, f"{server.url}/{path}")) for path in "abcd"]
        await asked.wait()
        exchanges[1].cancel()
        go_on.set()
        await asyncio.gather(*exchanges, return_exceptions=True)
        assert exchanges[1].cancelled()
        await ask(transport, f"{server.url}/e")
    assert order == [b"/a", b"/c", b"/d", b"/e"]
    assert server.connections == 1


async def test_a_turn_that_came_as_its_taker_was_cancelled_is_not_lost(way: Way) -> None:
    async with way.transport(max_connections=1, pool_seconds=30.0) as transport, way.server(always(CREATED)) as server:

        async def first() -> None:
            await ask(transport, server.url)
            second.cancel()  # in the step that gave the turn to it

        under_way = asyncio.create_task(first())
        second = asyncio.create_task(ask(transport, server.url))
        await asyncio.wait([under_way, second])
        assert second.cancelled()
        assert (await ask(transport, server.url)).status_code == 201


async def test_a_failed_exchange_gives_its_turn_back(way: Way) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        if server.connections > 3:
            await caller.say(CREATED)

    async with way.transport(max_connections=1) as transport, way.server(script) as server:
        for _ in range(3):
            with pytest.raises(NoResponse, match="pms_connection_lost"):
                await ask(transport, server.url)
        assert (await ask(transport, server.url)).status_code == 201


async def test_being_cancelled_ends_the_connection(way: Way) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(caller: Caller) -> None:
        await caller.request()
        asked.set()
        if server.connections == 1:
            await caller.gone()
            gone.set()
        await caller.say(CREATED)

    async with way.transport(max_connections=1) as transport, way.server(script) as server:
        exchange = asyncio.create_task(ask(transport, server.url))
        await asked.wait()
        exchange.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange
        await asyncio.wait_for(gone.wait(), 5)
        assert (await ask(transport, server.url)).status_code == 201


async def test_being_closed_leaves_neither_task_nor_connection(way: Way) -> None:
    asked, go_on, gone = asyncio.Event(), asyncio.Event(), asyncio.Queue[None]()

    async def script(caller: Caller) -> None:
        if b"/idle" in await caller.request():
            await caller.say(CREATED)
        else:
            asked.set()
        await caller.gone()
        gone.put_nowait(None)

    before = asyncio.all_tasks()
    async with way.server(script) as server:
        transport = way.transport(max_connections=2, pool_seconds=30.0)
        await ask(transport, f"{server.url}/idle")
        under_way = [asyncio.create_task(ask(transport, server.url)) for _ in range(3)]
        await asked.wait()
        await transport.aclose()
        outcomes = await asyncio.gather(*under_way, return_exceptions=True)
        for _ in range(server.connections):
            await asyncio.wait_for(gone.get(), 5)
        with pytest.raises(NotSent, match="pms_unreachable"):
            await ask(transport, server.url)
        go_on.set()
    assert all(isinstance(outcome, (NotSent, NoResponse)) for outcome in outcomes)
    assert any(isinstance(outcome, NotSent) for outcome in outcomes)  # the one that waited for its turn
    assert asyncio.all_tasks() <= before | {asyncio.current_task()}

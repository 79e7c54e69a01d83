"""Requests that are sent ahead on one connection: few are parsed, all are answered in order, and other clients do not notice."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from forwarder.http.connection_limits import MAX_QUEUED
from forwarder.http.messages import Response, client_left
from tests.support.cases import for_each
from tests.support.network.raw_client import exchange, served

GET = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
HELD = b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n"


class App:
    """Says its path and the length of the body; `/held` is answered once `go_on` is set, `/waits` once its client left."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = asyncio.Event()
        self.left: list[bool] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.append(True)
                return
            length, more = length + len(message.get("body", b"")), message.get("more_body", False)
        if scope["path"] == "/held":
            await self.go_on.wait()
        if scope["path"] == "/waits":
            self.left.append(await client_left(scope, receive))
        await Response(200, b"%b %d" % (scope["path"].encode(), length))(scope, receive, send)


def _bodies(count: int) -> list[bytes]:
    return [b"/%d 0" % number for number in range(count)] + [b"/last 0"]


@pytest.mark.parametrize("size", [1, 7, 1000, 1_000_000])
async def test_all_are_answered_in_their_order_however_they_are_cut(size: int) -> None:
    count = 40 if size == 1 else 2000
    sent = b"".join(GET % number for number in range(count)) + LAST
    async with served(App()) as port:
        said = await exchange(port, [sent[at : at + size] for at in range(0, len(sent), size)])
    assert [each.body for each in said] == _bodies(count)


async def test_no_more_than_sixteen_are_parsed_while_the_first_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    class Counted(asyncio.Event):
        """uvicorn makes one for each request that it has parsed."""

        def __init__(self) -> None:
            nonlocal made
            made += 1
            super().__init__()

    app = App()
    async with served(app) as port:
        monkeypatch.setattr("uvicorn.protocols.http.httptools_impl.asyncio.Event", Counted)
        sent = HELD + b"".join(GET % number for number in range(5000)) + LAST
        asked = asyncio.create_task(exchange(port, [sent]))
        await app.begun.wait()
        for _ in range(5):  # others are served meanwhile
            assert len(await exchange(port, [LAST])) == 1
        assert made <= 2 * (MAX_QUEUED + 1) + 5 * 2
        app.go_on.set()
        said = await asked
    assert [each.body for each in said] == [b"/held 0", *_bodies(5000)]


async def test_large_bodies_that_wait_are_read_when_it_is_their_turn() -> None:
    app, body = App(), b"\r\n\r\n" * 100_000
    post = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    async with served(app) as port:
        asked = asyncio.create_task(exchange(port, [HELD + post * 5 + LAST]))
        await app.begun.wait()
        assert len(await exchange(port, [LAST])) == 1
        app.go_on.set()
        assert [each.body for each in await asked] == [b"/held 0", *[b"/p 400000"] * 5, b"/last 0"]


async def test_what_is_malformed_behind_a_request_is_refused_after_its_response() -> None:
    """Else the client would take the refusal for the answer to what it sent before, which took effect."""
    app = App()
    async with served(app) as port:
        asked = asyncio.create_task(exchange(port, [HELD + GET % 1 + b"nonsense\r\n\r\n" + GET % 2]))
        await app.begun.wait()
        app.go_on.set()
        assert [each.status for each in await asked] == [200, 200, 400]


@for_each("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@for_each(
    ("sent", "answered"),
    [
        ([GET % 1], [b"/1 0"]),
        ([GET % 1 + GET % 2, GET % 3], [b"/1 0", b"/2 0", b"/3 0"]),
        ([b"".join(GET % number for number in range(100))], [b"/%d 0" % number for number in range(100)]),
        ([b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"], [b"/p 3"]),
        ([b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n"], [b"/waits 0"]),
        ([GET % 1 + b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n"], [b"/1 0", b"/waits 0"]),
        ([GET % 1 + b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na"], [b"/1 0"]),
        ([GET % 1 + b"GET /half HTTP/1.1\r\nHo"], [b"/1 0"]),
        ([b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na"], []),
    ],
)
def test_a_client_that_has_closed_its_sending_side_is_answered(
    sent: list[bytes], answered: list[bytes], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def asked() -> list[bytes]:
        async with served(App()) as port:
            return [each.body for each in await exchange(port, sent, half_close=True)]

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(asked()) == answered


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_request_whose_client_left_learns_of_it_also_with_others_behind_it(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def asked() -> list[bool]:
        app = App()
        async with served(app) as port:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n" + GET % 1 + GET % 2)
                await app.begun.wait()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            while not app.left:
                assert len(await exchange(port, [LAST])) == 1
        return app.left

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(asked()) == [True]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_clients_that_reset_their_connections_take_nobody_s_response(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """All that are held are answered in one turn of the loop, in which every other client has just gone."""

    async def asked() -> None:
        app = App()
        async with served(app) as port:
            there = [asyncio.create_task(exchange(port, [HELD + LAST])) for _ in range(20)]
            gone = []
            for _ in range(20):
                client = socket.create_connection(("127.0.0.1", port))
                client.sendall(HELD + LAST)
                gone.append(client)
                await asyncio.sleep(0)
            assert len(await exchange(port, [LAST])) == 1
            for client in gone:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            app.go_on.set()
            assert [len(said) for said in await asyncio.gather(*there)] == [2] * 20

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asked())


async def test_every_response_has_a_date() -> None:
    async with served(App()) as port:
        ok, refused = (await exchange(port, [GET % 1 + b"nonsense\r\n\r\n"]))[:2]
    assert {"date"} <= ok.headers.keys() & refused.headers.keys()

"""A body that came with its head, and an answer in one piece: the same on the wire as message by message, and never less."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from forwarder.http.bodies import read_body_up_to
from forwarder.http.exchange import body_at_hand, written
from forwarder.http.responses import Response
from forwarder.http.server import serve
from forwarder.process.supervision import Stop, bind


class _App:
    """Answers with the body that it got, and notes whether that was at hand."""

    def __init__(self) -> None:
        self.at_hand: list[bytes | None] = []
        self.written: list[bool] = []
        self.left = asyncio.Event()
        self.headers: tuple[tuple[bytes, bytes], ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.at_hand.append(body_at_hand(receive))
        if scope["path"] == "/wait":
            assert await receive() == {"type": "http.disconnect"}
            self.left.set()
            return
        try:
            body = self.at_hand[-1]
            body = await read_body_up_to(1_000_000, {}, receive) if body is None else body
        except ClientDisconnect:
            return
        headers = [(b"content-length", b"%d" % len(body or b"")), *self.headers]
        self.written.append(written(send, 200, headers, body or b""))
        if not self.written[-1]:
            await Response(200, body or b"", self.headers)(scope, receive, send)


class _Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> bytes:
        return await self._reader.readuntil(b"\r\n\r\n")

    async def rest(self, size: int = -1) -> bytes:
        return await (self._reader.readexactly(size) if size >= 0 else self._reader.read())


@asynccontextmanager
async def served(app: _App) -> AsyncIterator[_Client]:
    listening, stop = bind("127.0.0.1", 0), Stop()
    serving = asyncio.create_task(serve(app, listening, stop, grace_seconds=1))
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            try:
                yield _Client(reader, writer)
            finally:
                writer.close()
    finally:
        stop.set()
        await serving


def _post(body: bytes, *lines: bytes, version: bytes = b"1.1") -> bytes:
    heads = [b"POST / HTTP/" + version, b"Host: x", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join([*heads, b"", body])


async def test_one_after_the_other_on_a_connection() -> None:
    app = _App()
    async with served(app) as client:
        for body in (b"first", b"", b"third"):
            await client.send(_post(body))
            assert await client.head() == b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
            assert await client.rest(len(body)) == body
    assert (app.at_hand, app.written) == ([b"first", b"", b"third"], [True] * 3)


async def test_a_body_that_comes_in_pieces_is_received() -> None:
    app = _App()
    async with served(app) as client:
        request = _post(b"one two")
        await client.send(request[:-3])
        while not app.at_hand:
            await asyncio.sleep(0)  # until its head was read
        await client.send(request[-3:])
        await client.head()
        assert await client.rest(7) == b"one two"
    assert app.at_hand == [None]


async def test_one_that_waits_to_be_asked_for_its_body_is_asked() -> None:
    app = _App()
    async with served(app) as client:
        await client.send(_post(b"", b"Expect: 100-continue").replace(b"Length: 0", b"Length: 4"))
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"body")
        await client.head()
        assert await client.rest(4) == b"body"


@pytest.mark.parametrize(("version", "line"), [(b"1.0", b"X: y"), (b"1.1", b"Connection: close")])
async def test_a_connection_that_is_not_to_be_kept_ends(version: bytes, line: bytes) -> None:
    async with served(_App()) as client:
        await client.send(_post(b"last", line, version=version))
        assert b"connection: close\r\n" in await client.head()
        assert await client.rest() == b"last"


async def test_an_answer_may_end_the_connection() -> None:
    app = _App()
    app.headers = ((b"connection", b"close"),)
    async with served(app) as client:
        await client.send(_post(b"last"))
        assert (await client.head()).count(b"connection: close") == 1
        assert await client.rest() == b"last"


async def test_head_is_answered_without_a_body() -> None:
    app = _App()
    async with served(app) as client:
        await client.send(_post(b"seen").replace(b"POST", b"HEAD"))
        assert b"content-length: 4\r\n" in await client.head()
        await client.send(_post(b"next"))
        assert (await client.head()).startswith(b"HTTP/1.1 200")
    assert app.written == [False, True]


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb"])
async def test_no_header_smuggles_another_in(value: bytes) -> None:
    app = _App()
    app.headers = ((b"x", value),)
    async with served(app) as client:
        await client.send(_post(b"body"))
        assert await client.rest() == b""
    assert app.written == [False]


async def test_that_the_caller_left_is_told_after_its_body_was_taken() -> None:
    app = _App()
    async with served(app) as client:
        await client.send(_post(b"body").replace(b"POST /", b"POST /wait"))
        while not app.at_hand:
            await asyncio.sleep(0)
        assert not app.left.is_set()
        client.writer.close()
        await app.left.wait()
    assert app.at_hand == [b"body"]


async def test_what_stands_between_sees_messages() -> None:
    async def receive() -> object:
        raise AssertionError("it is only looked at")

    async def send(_message: object) -> None:
        raise AssertionError("it is only looked at")

    assert body_at_hand(receive) is None
    assert not written(send, 200, [], b"")

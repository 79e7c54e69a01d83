"""The transport of production: what it sends is what was built, and what it returns is whole and of bounded size."""

import gzip
from collections.abc import AsyncIterator

import httpx
import pytest

from forwarder.pms.transport import Connections, RustTransport
from forwarder.pms.wire import MAX_ANSWER_BYTES, request_to
from tests.support.raw_server import Caller, raw_server

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

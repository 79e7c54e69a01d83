"""What comes over a real socket: one request after another, what is no request, and what is wrong with one. Never a stack trace."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.requests import Request
from starlette.routing import Route

from forwarder.http.connection_limits import MAX_HEAD_BYTES
from forwarder.http.messages import Response, client_address
from forwarder.http.server import HttpApp, serve
from forwarder.process.supervision import Stop, bind
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.stages.bodies import GENERAL
from tests.support.stages.http_stages import GENERAL_PATH, HEADERS, Stages, stages

LINES = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "forwarder.test", **HEADERS}.items()).encode()
TWICE = json.dumps(GENERAL)[:-1].encode() + b', "propertyId": "1"}'


@dataclass(frozen=True, slots=True)
class Said:
    """One answer on the wire."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def problem(self) -> Any:
        assert self.headers["content-type"] == "application/problem+json"
        assert b"Traceback" not in self.body
        told = json.loads(self.body)
        assert told["status"] == self.status
        return told


@asynccontextmanager
async def served(trusted_proxies: str = "") -> AsyncIterator[socket.socket]:
    """The stages on a port."""
    house: Stages
    async with stages() as house:
        listening, stop = bind("127.0.0.1", 0), Stop()
        app = HttpApp(house.routes, ManualClock())
        serving = asyncio.create_task(serve(app, listening, stop, grace_seconds=1, trusted_proxies=trusted_proxies))
        try:
            yield listening
        finally:
            stop.set()
            await serving


class Connection:
    """One to the service, whose bytes are the test's own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.writer.write(chunk)
            await self.writer.drain()
            await asyncio.sleep(0)  # the service reads in this very loop

    async def answer(self) -> Said:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
        body = await self._reader.readexactly(int(headers["content-length"]))
        return Said(int(head[0].split()[1]), headers, body)

    async def head(self) -> str:
        """The first line of a response that has no body."""
        return (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[0]

    async def ended(self) -> bool:
        return await self._reader.read() == b""


@asynccontextmanager
async def connected(trusted_proxies: str = "") -> AsyncIterator[Connection]:
    async with served(trusted_proxies) as listening, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()


@for_each(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS, to a port that speaks plain HTTP
        b"hello\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"BREW / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused_and_the_connection_ends(sent: bytes) -> None:
    """In the server's own words: it never was a request."""
    async with connected() as connection:
        await connection.send(sent)
        said = await connection.answer()
        assert (said.status, said.headers["connection"]) == (400, "close")
        assert b"Traceback" not in said.body
        assert await connection.ended()


async def test_a_broken_chunk_of_a_body_ends_the_connection_without_a_stack_trace() -> None:
    async with connected() as connection:
        head = f"POST {GENERAL_PATH} HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        await connection.send(head.encode() + LINES + b"\r\n", b"xyz\r\n")
        assert (await connection.answer()).status == 400
        assert await connection.ended()


@pytest.mark.parametrize("header", ["x-one", "x"])
async def test_a_head_that_is_too_long_is_a_problem_and_one_that_is_not_is_read(header: str) -> None:
    """In one header, and in very many."""
    size = 1000 if header == "x" else MAX_HEAD_BYTES - 500
    many = b"".join(f"{header}{number}: {'y' * size}\r\n".encode() for number in range(31 if header == "x" else 1))
    async with connected() as connection:
        await connection.send(b"GET /problems HTTP/1.1\r\nHost: x\r\n", many, b"\r\n")
        assert (await connection.answer()).status == 200
        await connection.send(b"GET /problems HTTP/1.1\r\nHost: x\r\n" + many + b"z: " + b"y" * 2000 + b"\r\n\r\n")
        said = await connection.answer()
        assert (said.status, said.problem()["code"], said.headers["connection"]) == (431, "headers_too_large", "close")


@pytest.mark.parametrize("begun", [b"GET /", b"GET / HTTP/1.1\r\nx: "])
async def test_a_head_that_does_not_end_is_not_read_for_ever(begun: bytes) -> None:
    """In its target, and in one header: what a parser holds of either has no bound of its own."""
    async with connected() as connection:
        await connection.send(begun)
        with pytest.raises(ConnectionError):
            await connection.send(*[b"y" * 1000] * 20_000)


async def test_requests_that_wait_on_a_connection_are_no_long_head() -> None:
    """Each chunk ends one request and begins the next."""
    request = b"GET /problems HTTP/1.1\r\nHost: x\r\nz: " + b"y" * (MAX_HEAD_BYTES // 2) + b"\r\n\r\n"
    cut = 20
    async with connected() as connection:
        await connection.send(request[:cut])
        for _ in range(8):
            await connection.send(request[cut:] + request[:cut])
            assert (await connection.answer()).status == 200


async def test_a_target_that_is_too_long_is_a_problem() -> None:
    async with connected() as connection:
        await connection.send(b"GET /" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await connection.answer()).problem()["code"] == "headers_too_large"


async def test_a_body_in_the_same_chunk_is_no_part_of_the_head() -> None:
    body = b" " * 60_000 + b"{}"
    head = f"POST {GENERAL_PATH} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    async with connected() as connection:
        for _ in range(2):
            await connection.send(head.encode() + LINES + b"\r\n" + body)
            assert (await connection.answer()).problem()["code"] == "validation_failed"


async def test_what_waits_behind_a_request_on_its_connection_is_answered_after_it() -> None:
    one = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
    async with connected() as connection:
        await connection.send(one + one + b"GET /problems HTTP/1.1\r\nHost: x\r\n\r\n")
        assert [(await connection.answer()).status for _ in range(3)] == [404, 404, 200]


@pytest.mark.parametrize("trusted", ["", "203.0.113.0/24", "127.0.0.0/8"])
async def test_only_a_trusted_proxy_says_by_which_scheme_a_caller_came(trusted: str) -> None:
    body = json.dumps(GENERAL).encode()
    head = f"POST {GENERAL_PATH} HTTP/1.1\r\nContent-Type: application/json\r\nPrefer: respond-async\r\n".encode()
    said_https = "https" if trusted == "127.0.0.0/8" else "http"
    async with connected(trusted) as connection:
        for line, scheme in ((b"", "http"), (b"X-Forwarded-Proto: https\r\n", said_https), (b"", "http")):
            await connection.send(head + line + b"Content-Length: %d\r\n" % len(body) + LINES + b"\r\n" + body)
            said = await connection.answer()
            assert said.status == 202
            assert json.loads(said.body)["data"]["statusUrl"].startswith(f"{scheme}://forwarder.test/")


@for_each(
    ("trusted", "forwarded", "seen"),
    [
        ("", b"198.51.100.7", "127.0.0.1"),
        ("203.0.113.0/24", b"198.51.100.7", "127.0.0.1"),
        ("127.0.0.1", b"198.51.100.7", "198.51.100.7"),
        # What stands left of the address that our proxy saw was written by its client.
        ("127.0.0.1", b"10.1.1.1, 198.51.100.7", "198.51.100.7"),
        ("127.0.0.1,10.0.0.0/8", b"192.0.2.1, 198.51.100.7, 10.0.0.4", "198.51.100.7"),
    ],
)
async def test_a_caller_has_the_address_that_a_trusted_proxy_saw(trusted: str, forwarded: bytes, seen: str) -> None:
    async def respond(request: Request) -> Response:
        return Response(200, client_address(request.scope).encode())

    listening, stop = bind("127.0.0.1", 0), Stop()
    app = HttpApp([Route("/", respond)], ManualClock())
    serving = asyncio.create_task(serve(app, listening, stop, grace_seconds=1, trusted_proxies=trusted))
    try:
        reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        connection = Connection(reader, writer)
        await connection.send(b"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: " + forwarded + b"\r\n\r\n")
        assert (await connection.answer()).body.decode() == seen
        writer.close()
    finally:
        stop.set()
        await serving


async def test_a_body_that_comes_in_pieces_or_has_to_be_asked_for_is_read() -> None:
    body = json.dumps(GENERAL).encode()
    head = (
        f"POST {GENERAL_PATH} HTTP/1.1\r\nContent-Type: application/json\r\nPrefer: respond-async\r\n".encode() + LINES
    )
    async with connected() as connection:
        await connection.send(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:10], body[10:20], body[20:])
        assert (await connection.answer()).status == 202
        await connection.send(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert await connection.head() == "HTTP/1.1 100 Continue"
        await connection.send(body)
        assert (await connection.answer()).status == 202


@pytest.mark.parametrize("line", ["GET /problems HTTP/1.0", "GET /problems HTTP/1.1\r\nConnection: close"])
async def test_a_connection_that_is_not_to_be_kept_ends(line: str) -> None:
    async with connected() as connection:
        await connection.send(f"{line}\r\nHost: x\r\n\r\n".encode())
        assert (await connection.answer()).headers["connection"] == "close"
        assert await connection.ended()


async def test_head_is_answered_without_a_body() -> None:
    async with connected() as connection:
        await connection.send(b"HEAD /problems/not_found HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await connection.head() == "HTTP/1.1 200 OK"
        await connection.send(b"GET /problems HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await connection.answer()).status == 200


@for_each(
    ("method", "path", "body", "code"),
    [
        ("GET", "/nowhere", b"", "not_found"),
        ("GET", "/%ff%00/../etc/passwd", b"", "not_found"),
        ("GET", "//problems", b"", "not_found"),
        ("PATCH", GENERAL_PATH, b"", "method_not_allowed"),
        ("TRACE", GENERAL_PATH, b"", "method_not_allowed"),
        ("OPTIONS", "*", b"", "not_found"),
        ("GET", "http://elsewhere.test/nowhere", b"", "not_found"),
        ("POST", GENERAL_PATH, b" " * 70_000, "body_too_large"),
        ("POST", GENERAL_PATH, b'{"propertyId":"\xff"}', "malformed_json"),
        ("POST", GENERAL_PATH, TWICE, "malformed_json"),
        ("POST", GENERAL_PATH, b"[" * 60_000, "malformed_json"),
        ("POST", GENERAL_PATH, b'{"totalPrice":' + b"9" * 60_000 + b"}", "malformed_json"),
        ("POST", GENERAL_PATH, b'{"totalPrice":NaN}', "malformed_json"),
        ("POST", GENERAL_PATH, b'{"totalPrice":-Infinity}', "malformed_json"),
    ],
)
async def test_what_is_wrong_with_a_request_is_a_problem_over_a_socket_too(
    method: str, path: str, body: bytes, code: str
) -> None:
    head = f"{method} {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    async with connected() as connection:
        await connection.send(head.encode() + LINES + b"\r\n" + body)
        assert (await connection.answer()).problem()["code"] == code

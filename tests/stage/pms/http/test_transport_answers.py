"""The transport of production: an answer is whole, of bounded size, and read as HTTP means it."""

import asyncio
import gzip
import zlib
from collections.abc import Callable, Mapping

import pytest
from pydantic_core import from_json

from forwarder.pms.http.client import PmsClient, PushPolicy, Request
from forwarder.pms.http.connections import ConnectionPool
from forwarder.pms.http.outcomes import outcome_of
from forwarder.pms.http.response import MAX_RESPONSE_BYTES, NoResponse
from forwarder.process.clock import SystemClock
from forwarder.reservation.outcome import InDoubt
from tests.support.network.raw_server import Caller, Script, raw_server
from tests.support.network.transports import Way, ask


def saying(*parts: bytes) -> Script:
    """Each as soon as the one before it was sent."""

    async def script(caller: Caller) -> None:
        await caller.request()
        for part in parts:
            await caller.say(part)

    return script


def chunked(body: bytes, *, size: int = 8192) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


ENDLESS = b"9" * (MAX_RESPONSE_BYTES + 1)
TOO_LONG: Mapping[str, Callable[[], bytes]] = {
    "announced": lambda: b"content-length: %d\r\n\r\n%s" % (len(ENDLESS), ENDLESS),
    "chunked": lambda: b"transfer-encoding: chunked\r\n\r\n" + chunked(ENDLESS),
    "until it closes": lambda: b"\r\n" + ENDLESS,
    "compressed": lambda: (
        b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"
        + chunked(gzip.compress(bytes(8 * MAX_RESPONSE_BYTES), 1))
    ),
}


@pytest.mark.parametrize("answer", TOO_LONG)
async def test_no_more_than_the_limit_is_read(way: Way, transport: ConnectionPool, answer: str) -> None:
    too_long = TOO_LONG[answer]()

    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(b"HTTP/1.1 201 Created\r\n" + too_long)

    async with way.server(script) as server:
        with pytest.raises(NoResponse, match="a response of"):
            await ask(transport, server.url)


@pytest.mark.parametrize(
    "answer",
    [
        b"content-length: 9\r\n\r\n" + b'{"id": 5}',
        b"transfer-encoding: chunked\r\n\r\n" + chunked(b'{"id": 5}', size=2),
        b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(gzip.compress(b'{"id": 5}')),
        b'\r\n{"id": 5}',
    ],
    ids=["announced", "chunked", "compressed", "until it closes"],
)
async def test_whole_answers(way: Way, transport: ConnectionPool, answer: bytes) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(b"HTTP/1.1 201 Created\r\n" + answer)

    async with way.server(script) as server:
        response = await ask(transport, server.url)
    assert from_json(response.content) == {"id": 5}


async def test_a_head_is_bounded(way: Way, transport: ConnectionPool) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(b"HTTP/1.1 201 Created\r\nx-long: ")
        while True:
            await caller.say(b"x" * 65536)

    async with way.server(script) as server:
        with pytest.raises(NoResponse, match="a response of"):
            await ask(transport, server.url)


@pytest.mark.parametrize("endless", [b"x-trailer: y\r\n", b"x"], ids=["trailers", "trailer"])
async def test_what_follows_a_body_is_bounded(way: Way, transport: ConnectionPool, endless: bytes) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
        while True:
            await caller.say(endless * (65536 // len(endless)))

    async with way.server(script) as server:
        with pytest.raises(NoResponse, match="on the wire"):
            await ask(transport, server.url, seconds=30)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "GZip"])
async def test_what_is_compressed_all_the_same_is_opened(way: Way, transport: ConnectionPool, coding: str) -> None:
    body = zlib.compress(b'{"id": 5}') if coding == "deflate" else gzip.compress(b'{"id": 5}')
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {len(body)}\r\nx-a: b\r\n\r\n".encode()
    async with way.server(saying(head + body)) as server:
        response = await ask(transport, server.url)
    assert from_json(response.content) == {"id": 5}
    assert response.headers == [(b"x-a", b"b")]


@pytest.mark.parametrize("coding", ["UTF-8", "none", "identity"])
async def test_what_is_said_to_be_in_a_coding_that_is_none_is_taken_as_it_is(
    way: Way, transport: ConnectionPool, coding: str
) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: 9\r\n\r\n".encode()
    async with way.server(saying(head + b'{"id": 5}')) as server:
        assert (await ask(transport, server.url)).content == b'{"id": 5}'


@pytest.mark.parametrize(
    ("coding", "body"),
    [(b"br", b"{}"), (b"gzip, gzip", b"{}"), (b"gzip", b"{}"), (b"gzip", gzip.compress(b"{}")[:-4])],
    ids=["unknown", "twice", "not compressed", "cut short"],
)
async def test_what_cannot_be_opened_is_in_doubt(
    way: Way, transport: ConnectionPool, coding: bytes, body: bytes
) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n%b" % (coding, len(body), body)
    async with way.server(saying(answer)) as server:
        with pytest.raises(NoResponse, match="pms_broke_protocol") as failed:
            await ask(transport, server.url)
    assert failed.value.status == 200


@pytest.mark.parametrize(
    "answer",
    [
        b"content-length: 90\r\n\r\n{",
        b"transfer-encoding: chunked\r\n\r\n5\r\n{",
        b"content-encoding: br\r\ncontent-length: 2\r\n\r\n{}",
        b"content-length: 99999999\r\n\r\n",
    ],
    ids=["cut short", "in the middle of a chunk", "in an unknown coding", "too long"],
)
async def test_a_yes_whose_rest_is_lost_stays_a_yes(way: Way, transport: ConnectionPool, answer: bytes) -> None:
    client = PmsClient(transport, SystemClock(), PushPolicy())
    for method, status, made in (("POST", b"201", True), ("POST", b"502", False), ("GET", b"200", False)):
        async with way.server(saying(b"HTTP/1.1 %b Said\r\n%b" % (status, answer))) as server:
            with pytest.raises(NoResponse) as failed:
                await client.push()(Request(method, server.url))
        doubt = outcome_of(failed.value)
        assert isinstance(doubt, InDoubt)
        assert doubt.made is made


FINAL = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "parts",
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n", FINAL),
        (b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + FINAL,),
        tuple(FINAL[at : at + 1] for at in range(len(FINAL))),
    ],
    ids=["apart", "together", "byte by byte"],
)
async def test_informational_answers_are_passed_over(
    way: Way, transport: ConnectionPool, parts: tuple[bytes, ...]
) -> None:
    async with way.server(saying(*parts)) as server:
        response = await ask(transport, server.url)
    assert (response.status_code, response.content) == (201, b"{}")
    assert response.headers == [(b"content-length", b"2")]


async def test_another_protocol_is_not_changed_to(way: Way, transport: ConnectionPool) -> None:
    answer = b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n" + FINAL
    async with way.server(saying(answer)) as server:
        with pytest.raises(NoResponse, match="pms_broke_protocol"):
            await ask(transport, server.url)


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9999999\r\n\r\n"),
    ],
)
async def test_answers_without_a_body(way: Way, transport: ConnectionPool, method: str, head: bytes) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(head)
        await caller.gone()

    async with way.server(script) as server:
        response = await ask(transport, server.url, method=method, content=b"")
        assert (response.status_code, response.content) == (int(head[9:12]), b"")
        await transport.aclose()  # which the server waits for


async def test_trailers_are_no_headers(way: Way, transport: ConnectionPool) -> None:
    body = b"transfer-encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nx-trailer: y\r\n\r\n"
    async with way.server(saying(b"HTTP/1.1 200 OK\r\n" + body)) as server:
        response = await ask(transport, server.url)
    assert response.headers == [(b"transfer-encoding", b"chunked")]
    assert response.content == b"{}"


async def test_no_redirect_is_followed(way: Way, transport: ConnectionPool) -> None:
    async with raw_server(saying(FINAL)) as other:
        answer = f"HTTP/1.1 302 Found\r\nlocation: {other.url}/\r\ncontent-length: 0\r\n\r\n".encode()
        async with way.server(saying(answer)) as server:
            response = await ask(transport, server.url)
        assert (response.status_code, other.connections) == (302, 0)


async def test_an_early_answer_is_read_while_the_request_is_being_written(way: Way, transport: ConnectionPool) -> None:
    async def script(caller: Caller) -> None:
        await caller.reader.readuntil(b"\r\n\r\n")
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined] # typed as what can be written to
        await caller.say(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
        await asyncio.Event().wait()

    async with way.server(script) as server:
        response = await ask(transport, server.url, content=b"x" * 30_000_000)
        assert response.status_code == 413
        again = await ask(transport, server.url)
        assert (again.status_code, server.connections) == (413, 2)  # the other one still has to carry the rest

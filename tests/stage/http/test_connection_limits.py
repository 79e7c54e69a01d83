"""Clients that connect and do not ask: what they may use of a server, and that they keep nobody out."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from forwarder.http.connection_limits import MAX_HEAD_BYTES
from forwarder.http.connections import ConnectionLimits, Connections
from forwarder.http.messages import Response
from forwarder.http.server import serve
from forwarder.observability.metrics import CONNECTIONS_ENDED
from forwarder.process.supervision import Stop, bind
from tests.support.cases import for_each

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
SHORT = ConnectionLimits(head_seconds=0.3, body_seconds=0.3, unread_seconds=0.3)


class Echo:
    """Answers a GET at once, a POST with the names of its headers once its body came whole, or `held`, a PUT without reading it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.set()
        match scope["path"], scope["method"]:
            case "/held", _:
                await self.go_on.wait()
            case "/large", _:
                return await Response(200, b"x" * 30_000_000)(scope, receive, send)
            case _, "POST":
                while (await receive()).get("more_body"):
                    pass
        return await Response(200, b",".join(name for name, _ in scope["headers"]))(scope, receive, send)


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.writer.write(chunk)
            await self.writer.drain()

    async def status(self) -> int:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        await self.reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        return int(head.split()[1])

    async def problem(self) -> dict[str, Any]:
        """What it is refused with, found by the same id in its head and its body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        body = json.loads(await self.reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0])))
        assert f"\r\nrequest-id: {body['httpRequestId']}\r\n" in head
        assert body["status"] == int(head.split()[1])
        problem: dict[str, Any] = body
        return problem

    async def body(self) -> bytes:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        return await self.reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))

    async def ended(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


@dataclass
class Server:
    app: Echo
    address: tuple[str, int]
    clients: list[Client]

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection(*self.address))
        self.clients.append(client)
        return client


@asynccontextmanager
async def serving(limits: ConnectionLimits) -> AsyncIterator[Server]:
    app, listening, stop = Echo(), bind("127.0.0.1", 0), Stop()
    server = Server(app, listening.getsockname()[:2], [])
    task = asyncio.create_task(serve(app, listening, stop, grace_seconds=1, limits=limits))
    try:
        async with asyncio.timeout(60):
            yield server
    finally:
        app.go_on.set()
        for client in server.clients:
            client.writer.close()
        stop.set()
        await task


@contextmanager
def counted(reason: str, times: int) -> Iterator[None]:
    before = ended(reason)
    yield
    assert ended(reason) == before + times


def ended(reason: str) -> float:
    (metric,) = CONNECTIONS_ENDED.labels(reason).collect()
    return next(sample.value for sample in metric.samples if sample.name.endswith("_total"))


@for_each(
    ("begun", "reason", "answered"),
    [
        (b"", "silent", None),
        (b"\r\n", "silent", None),
        (b"GET / HT", "slow_head", 408),
        (b"GET / HTTP/1.1\r\nHost: x\r\nx-one: ", "slow_head", 408),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12", "slow_body", None),
        (CHUNKED + b"3\r\nabc\r\n", "slow_body", None),
        (CHUNKED + b"0\r\nx-trailer: ", "slow_body", None),
    ],
)
async def test_what_does_not_end_in_time_ends_its_connection(begun: bytes, reason: str, answered: int | None) -> None:
    with counted(reason, 1):
        async with serving(SHORT) as server:
            client = await server.connect()
            await client.send(begun)
            if answered:
                assert (await client.problem())["status"] == answered
            assert await client.ended()


async def test_a_second_request_has_the_same_limits_as_the_first() -> None:
    async with serving(SHORT) as server:
        client = await server.connect()
        await client.send(GET)
        assert await client.status() == 200
        await client.send(GET[:-2])
        assert await client.status() == 408
        assert await client.ended()


async def test_blank_lines_between_requests_keep_no_connection() -> None:
    async with serving(SHORT) as server:
        client = await server.connect()
        await client.send(GET)
        assert await client.status() == 200
        ended = asyncio.create_task(client.ended())
        while not ended.done():
            client.writer.write(b"\r\n")
            await asyncio.wait([ended], timeout=0.05)
        assert ended.result()


async def test_a_response_that_takes_long_is_no_slow_client() -> None:
    """Nor is who sends the next request, or a part of it, meanwhile."""
    async with serving(SHORT) as server:
        client = await server.connect()
        await client.send(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n" + GET + GET[:10])
        await server.app.asked.wait()
        for _ in range(3):  # as long as it takes to end a slow one, and more
            other = await server.connect()
            await other.send(GET[:-2])
            assert await other.status() == 408
        await client.send(GET[10:])
        server.app.go_on.set()
        assert [await client.status() for _ in range(3)] == [200, 200, 200]


async def test_who_does_not_read_a_response_is_not_waited_for() -> None:
    before = ended("unread")
    async with serving(SHORT) as server:
        client = await server.connect()
        await client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        while ended("unread") == before:
            await asyncio.sleep(0.01)


async def test_a_client_that_reads_a_little_now_and_then_is_not_waited_for() -> None:
    """Each sweep finds that it read something: what counts is whether the buffer empties."""
    before = ended("unread")
    async with serving(SHORT) as server:
        client = await server.connect()
        await client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        while ended("unread") == before:
            await client.reader.read(16)
            await asyncio.sleep(0.01)


async def test_who_sends_nothing_keeps_nobody_out() -> None:
    with counted("evicted", 151):
        async with serving(ConnectionLimits(max_connections=50)) as server:
            for _ in range(200):
                await server.connect()
            asking = await server.connect()
            await asking.send(GET)
            assert await asking.status() == 200


async def test_who_asked_once_and_stays_keeps_nobody_out_either() -> None:
    async with serving(ConnectionLimits(max_connections=5)) as server:
        for _ in range(5):
            client = await server.connect()
            await client.send(GET)
            assert await client.status() == 200
        statuses = []
        while 200 not in statuses:
            late = await server.connect()
            await late.send(GET)
            statuses.append(await late.status())
        assert set(statuses) <= {503, 200}


async def test_who_has_a_request_under_way_is_not_ended_for_another() -> None:
    async with serving(ConnectionLimits(max_connections=2)) as server:
        held = [await server.connect() for _ in range(2)]
        for client in held:
            await client.send(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
        await server.app.asked.wait()
        with counted("refused", 1):
            late = await server.connect()
            assert (await late.problem())["code"] == "too_many_connections"
            assert await late.ended()
        server.app.go_on.set()
        assert [await client.status() for client in held] == [200, 200]


async def test_one_address_has_no_more_than_its_share() -> None:
    async with serving(ConnectionLimits(max_connections=50, max_per_address=2)) as server:
        first = [await server.connect() for _ in range(2)]
        assert await (await server.connect()).status() == 503
        first[0].writer.close()
        await first[0].writer.wait_closed()
        late = 503
        while late == 503:  # until the server has seen that it left
            again = await server.connect()
            await again.send(GET)
            late = await again.status()
        assert late == 200


async def test_there_is_room_for_no_more_than_the_process_may_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (160, hard))
    try:
        connections = Connections(ConnectionLimits())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    protocols: list[Any] = [_Silent() for _ in range(200)]
    assert all(connections.add(each, "a", 0.0) for each in protocols)
    assert sum(each.ended for each in protocols) == 200 - 96


@pytest.mark.parametrize(
    ("addresses", "taken"),
    [
        (["2001:db8::1", "2001:db8::2", "2001:db8::ffff:1:2:3"], [True, True, False]),
        (["2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:2::1"], [True, True, True]),
        (["192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1", "::ffff:192.0.2.1"], [True, True, True, False]),
        (["::ffff:192.0.2.1", "::ffff:192.0.2.2", "::ffff:192.0.2.3"], [True, True, True]),
    ],
)
def test_addresses_that_one_client_chooses_from_are_one(addresses: list[str], taken: list[bool]) -> None:
    """Of IPv6 a /64. An IPv4 address is itself, also where it is written within IPv6."""
    connections = Connections(ConnectionLimits(max_per_address=2))
    protocols: list[Any] = [_Silent() for _ in addresses]
    assert [connections.add(each, address, 0.0) for each, address in zip(protocols, addresses, strict=True)] == taken
    for each in protocols:
        connections.remove(each)
    assert connections.add(protocols[0], addresses[0], 0.0)


class _Silent:
    ended = False
    idle_since = float("inf")

    def end(self, _reason: str) -> None:
        self.ended = True


@for_each(
    "endless",
    [
        pytest.param((CHUNKED + b"0\r\nx-trailer: ", b"y" * 1000), id="a trailer"),
        pytest.param((CHUNKED + b"0\r\n", b"x-trailer: y\r\n" * 100), id="trailers"),
        pytest.param((CHUNKED + b"3;x=", b"y" * 1000), id="a chunk's extension"),
        pytest.param((b"GET / HTTP/1.1\r\n", b"x: y\r\n" * 200), id="headers"),
        pytest.param((GET, b"\r\n" * 500), id="blank lines"),
    ],
)
async def test_what_is_no_body_and_does_not_end_is_not_read_for_ever(endless: tuple[bytes, bytes]) -> None:
    begun, more = endless
    with counted("too_large", 1):
        async with serving(ConnectionLimits()) as server:
            client = await server.connect()
            await client.send(begun)
            with pytest.raises(ConnectionError):
                await client.send(*[more] * 50_000)


async def test_trailers_are_not_taken_for_headers() -> None:
    async with serving(ConnectionLimits()) as server:
        client = await server.connect()
        await client.send(CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer stolen\r\nworkspaceId: w\r\n\r\n")
        assert await client.body() == b"host,transfer-encoding"
        await client.send(GET)
        assert await client.body() == b"host"


async def test_a_large_body_in_tiny_chunks_is_read() -> None:
    async with serving(ConnectionLimits()) as server:
        client = await server.connect()
        await client.send(CHUNKED, *[b"1\r\nx\r\n" * 1000] * (10 * MAX_HEAD_BYTES // 6000), b"0\r\n\r\n")
        assert await client.status() == 200

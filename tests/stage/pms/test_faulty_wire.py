"""The conformance kit's wire: carries exchanges on as they are, and breaks those that it is told to, before or after the PMS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from forwarder.pms.conformance.faults import TRAP, Close, Drip, Fault, Noise, Reset, Silence, Strike, say
from forwarder.pms.conformance.wire import FaultyWire, faulty_wire
from forwarder.pms.http.errors import NoResponse
from forwarder.pms.http.pool import ConnectionPool, PoolLimits
from forwarder.pms.http.response import Response
from tests.support.network.raw_server import Caller, raw_server
from tests.support.network.transports import ask

ANSWER = b"HTTP/1.1 201 Created\r\nx-fax: F1\r\ncontent-length: 14\r\n\r\n" + b'{"fax": "F1"}\n'


@asynccontextmanager
async def a_wire(asked: list[bytes]) -> AsyncIterator[tuple[FaultyWire, ConnectionPool]]:
    """A wire in front of a PMS that writes down what it is asked, and a client of the wire."""

    async def pms(caller: Caller) -> None:
        while True:
            asked.append(await caller.request())
            await caller.say(ANSWER)

    async with raw_server(pms) as server, faulty_wire(f"{server.url}/api") as wire, ConnectionPool(PoolLimits()) as out:
        yield wire, out


async def send(wire: FaultyWire, out: ConnectionPool, path: str = "/faxes?ref=a%20b", seconds: float = 5) -> Response:
    headers = [(b"X-Fax-Key", b"k")]
    return await ask(out, wire.url + path, seconds=seconds, headers=headers, content=b'{"price": 1.10}')


async def test_what_is_not_struck_is_carried_on_as_it_is() -> None:
    asked: list[bytes] = []
    async with a_wire(asked) as (wire, out):
        response = await send(wire, out)
    assert (response.status_code, response.header("x-fax"), response.content) == (201, "F1", b'{"fax": "F1"}\n')
    [request] = asked
    assert request.startswith(b"POST /api/faxes?ref=a%20b HTTP/1.1\r\n")
    assert b"x-fax-key: k\r\n" in request.lower()
    assert request.endswith(b'\r\n\r\n{"price": 1.10}')
    [exchange] = wire.exchanges
    assert exchange.answer is not None
    assert (exchange.method, exchange.body, exchange.answer.status) == ("POST", b'{"price": 1.10}', 201)


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Reset(), "pms_connection_lost"),
        (Close(), "pms_connection_lost"),
        (Close(after=0.5), "pms_connection_lost"),
        (Noise(), "pms_connection_lost|pms_broke_protocol"),
        (Silence(), "pms_timed_out"),
        (Silence(after=0.9), "pms_timed_out"),
        (Drip(), "pms_timed_out"),
    ],
    ids=str,
)
async def test_a_struck_exchange_brings_no_answer(fault: Fault, reason: str, delivered: bool) -> None:
    asked: list[bytes] = []
    async with a_wire(asked) as (wire, out):
        wire.begin(Strike("struck", fault, delivered), at=2)
        assert (await send(wire, out)).status_code == 201
        assert not wire.met.is_set()
        with pytest.raises(NoResponse, match=reason):
            await send(wire, out, seconds=0.2)
        assert wire.met.is_set()
        assert (await send(wire, out)).status_code == 201
    assert len(asked) == (3 if delivered else 2)


async def test_another_answer_comes_in_place_of_the_pmss() -> None:
    asked: list[bytes] = []
    async with a_wire(asked) as (wire, out):
        wire.begin(Strike("struck", say(429, b"later", Retry_After="7"), delivered=False))
        for _ in range(2):
            response = await send(wire, out)
            assert (response.status_code, response.header("retry-after"), response.content) == (429, "7", b"later")
        wire.begin()
        assert (await send(wire, out)).status_code == 201
    assert len(asked) == 1


async def test_connections_and_followed_redirects_are_counted() -> None:
    async with a_wire([]) as (wire, out):
        assert wire.open_connections == 0
        for _ in range(3):
            await send(wire, out)
        assert (wire.connections, wire.open_connections, wire.trapped) == (1, 1, 0)
        wire_at_root = wire.url.removesuffix("/api")
        await ask(out, wire_at_root + TRAP, method="GET", content=b"")
        assert wire.trapped == 1
        await out.aclose()
        async with asyncio.timeout(20):  # idle ones end after a while
            while wire.open_connections:
                await asyncio.sleep(0.01)

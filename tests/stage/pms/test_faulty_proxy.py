"""The conformance kit's proxy: carries exchanges on as they are, and breaks those that it is told to, before or after the PMS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from forwarder.pms.http.connections import ConnectionPool, PoolLimits
from forwarder.pms.http.response import NoResponse, Response
from forwarder_pms_kit.conformance.faults import TRAP, Break, Disruption, Fault, say
from forwarder_pms_kit.conformance.proxy import FaultyProxy, faulty_proxy
from tests.support.cases import for_each
from tests.support.network.patience import once_met
from tests.support.network.raw_server import Caller, raw_server
from tests.support.network.transports import ask

ANSWER = b"HTTP/1.1 201 Created\r\nx-fax: F1\r\ncontent-length: 14\r\n\r\n" + b'{"fax": "F1"}\n'


@asynccontextmanager
async def a_proxy(asked: list[bytes]) -> AsyncIterator[tuple[FaultyProxy, ConnectionPool]]:
    """A proxy in front of a PMS that writes down what it is asked, and a client of the proxy."""

    async def pms(caller: Caller) -> None:
        while True:
            asked.append(await caller.request())
            await caller.say(ANSWER)

    async with (
        raw_server(pms) as server,
        faulty_proxy(f"{server.url}/api") as proxy,
        ConnectionPool(PoolLimits()) as out,
    ):
        yield proxy, out


async def send(proxy: FaultyProxy, out: ConnectionPool, path: str = "/faxes?ref=a%20b", seconds: float = 5) -> Response:
    headers = [(b"X-Fax-Key", b"k")]
    return await ask(out, proxy.url + path, seconds=seconds, headers=headers, content=b'{"price": 1.10}')


async def test_what_is_not_struck_is_carried_on_as_it_is() -> None:
    asked: list[bytes] = []
    async with a_proxy(asked) as (proxy, out):
        response = await send(proxy, out)
    assert (response.status_code, response.header("x-fax"), response.content) == (201, "F1", b'{"fax": "F1"}\n')
    [request] = asked
    assert request.startswith(b"POST /api/faxes?ref=a%20b HTTP/1.1\r\n")
    assert b"x-fax-key: k\r\n" in request.lower()
    assert request.endswith(b'\r\n\r\n{"price": 1.10}')
    [exchange] = proxy.exchanges
    assert exchange.response is not None
    assert (exchange.method, exchange.body, exchange.response.status_code) == ("POST", b'{"price": 1.10}', 201)


@for_each("delivered", [True, False])
@for_each(
    ("fault", "reason"),
    [
        (Break("reset"), "pms_connection_lost"),
        (Break("close"), "pms_connection_lost"),
        (Break("close", after=0.5), "pms_connection_lost"),
        (Break("noise"), "pms_connection_lost|pms_broke_protocol"),
        (Break("silence"), "pms_timed_out"),
        (Break("silence", after=0.9), "pms_timed_out"),
        (Break("drip"), "pms_timed_out"),
    ],
    ids=str,
)
async def test_a_struck_exchange_brings_no_answer(fault: Fault, reason: str, delivered: bool) -> None:
    asked: list[bytes] = []
    async with a_proxy(asked) as (proxy, out):

        async def struck(seconds: float) -> None:
            del asked[:]
            proxy.begin(Disruption("struck", fault, delivered), at=2)
            assert (await send(proxy, out)).status_code == 201
            assert not proxy.met.is_set()
            with pytest.raises(NoResponse, match=reason):
                await send(proxy, out, seconds=seconds)

        def met() -> bool:
            return proxy.met.is_set()

        await once_met(struck, met)
        assert (await send(proxy, out)).status_code == 201
    assert len(asked) == (3 if delivered else 2)


async def test_another_answer_comes_in_place_of_the_pmss() -> None:
    asked: list[bytes] = []
    async with a_proxy(asked) as (proxy, out):
        proxy.begin(Disruption("struck", say(429, b"later", Retry_After="7"), delivered=False))
        for _ in range(2):
            response = await send(proxy, out)
            assert (response.status_code, response.header("retry-after"), response.content) == (429, "7", b"later")
        proxy.begin()
        assert (await send(proxy, out)).status_code == 201
    assert len(asked) == 1


async def test_connections_and_followed_redirects_are_counted() -> None:
    async with a_proxy([]) as (proxy, out):
        assert proxy.open_connections == 0
        for _ in range(3):
            await send(proxy, out)
        assert (proxy.connections, proxy.open_connections, proxy.trapped) == (1, 1, 0)
        proxy_at_root = proxy.url.removesuffix("/api")
        await ask(out, proxy_at_root + TRAP, method="GET", content=b"")
        assert proxy.trapped == 1
        await out.aclose()
        async with asyncio.timeout(90):  # idle ones end after a while
            while proxy.open_connections:
                await asyncio.sleep(0.01)

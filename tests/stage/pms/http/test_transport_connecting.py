"""The transport of production: how connections come to stand, over which address, and to whom TLS vouches for."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from forwarder.pms.http.connections import ConnectionPool, PoolLimits, system_trust
from forwarder.pms.http.response import NotSent
from tests.support.network.raw_server import Caller, raw_server
from tests.support.network.transports import CREATED, ask, contexts


async def answering(caller: Caller) -> None:
    await caller.request()
    await caller.say(CREATED)


async def silent(caller: Caller) -> None:
    await caller.gone()


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> list[tuple[socket.AddressFamily, str]]:
    """The addresses that every name leads to. Those in 192.0.2.0/24, which belong to nobody, never answer."""
    addresses: list[tuple[socket.AddressFamily, str]] = []
    plainly = asyncio.SelectorEventLoop.sock_connect

    async def found(_: Any, host: str, port: int, **__: Any) -> list[Any]:
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in addresses]

    async def connected(loop: Any, peer: socket.socket, address: Any) -> None:
        if address[0].startswith("192.0.2."):
            await asyncio.Event().wait()
        await plainly(loop, peer, address)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "getaddrinfo", found)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connected)
    return addresses


V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.mark.parametrize(
    "others",
    [[(V4, "127.0.0.2")], [(V6, "::1")], [(V4, "192.0.2.1")], [(V4, "192.0.2.1"), (V4, "127.0.0.2")]],
    ids=["refuses", "of the other family", "is silent", "both"],
)
async def test_of_several_addresses_one_that_answers_is_taken(
    led: list[tuple[socket.AddressFamily, str]], others: list[tuple[socket.AddressFamily, str]]
) -> None:
    led[:] = [*others, (V4, "127.0.0.1")]
    async with raw_server(answering) as server, ConnectionPool(PoolLimits()) as transport:
        url = server.url.replace("127.0.0.1", "pms.example")
        assert (await ask(transport, url)).status_code == 201
        assert server.connections == 1


async def test_where_none_answers_nothing_was_sent(led: list[tuple[socket.AddressFamily, str]]) -> None:
    led[:] = [(V4, "192.0.2.1"), (V4, "192.0.2.2")]
    before = asyncio.all_tasks()
    async with ConnectionPool(PoolLimits(connect_seconds=0.4)) as transport:
        with pytest.raises(NotSent, match="pms_connect_timed_out"):
            await ask(transport, "http://pms.example")
        led[:] = [(V4, "127.0.0.2"), (V4, "127.0.0.3")]
        with pytest.raises(NotSent, match="pms_unreachable"):
            await ask(transport, "http://pms.example:9")
    assert asyncio.all_tasks() == before


async def test_connecting_can_be_cancelled(led: list[tuple[socket.AddressFamily, str]]) -> None:
    led[:] = [(V4, "192.0.2.1")]
    before = asyncio.all_tasks()
    async with ConnectionPool(PoolLimits(max_connections=1)) as transport, raw_server(answering) as server:
        exchange = asyncio.create_task(ask(transport, "http://pms.example"))
        await asyncio.sleep(0)
        exchange.cancel()
        await asyncio.wait([exchange])
        assert exchange.cancelled()
        led[:] = [(V4, "127.0.0.1")]
        assert (await ask(transport, server.url)).status_code == 201
    assert asyncio.all_tasks() == before


async def test_what_comes_to_stand_after_the_transport_was_closed_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    trying, go_on, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
    plainly = asyncio.SelectorEventLoop.sock_connect

    async def later(loop: Any, peer: socket.socket, address: Any) -> None:
        trying.set()
        await go_on.wait()
        await plainly(loop, peer, address)

    async def script(caller: Caller) -> None:
        assert await caller.reader.read() == b""
        gone.set()

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", later)
    async with raw_server(script) as server:
        transport = ConnectionPool(PoolLimits())
        exchange = asyncio.create_task(ask(transport, server.url))
        await trying.wait()
        await transport.aclose()
        go_on.set()
        with pytest.raises(NotSent, match="pms_unreachable"):
            await exchange
        await asyncio.wait_for(gone.wait(), 5)


# --- TLS --------------------------------------------------------------------------------------------------------------------


async def test_the_name_that_was_asked_for_is_verified_and_told(
    led: list[tuple[socket.AddressFamily, str]], tmp_path: Path
) -> None:
    serving, trusted = contexts(tmp_path, "DNS:pms.example")
    told: list[str | None] = []
    serving.sni_callback = lambda _, name, __: told.append(name)
    led[:] = [(V4, "127.0.0.1")]
    async with raw_server(answering, tls=serving) as server, ConnectionPool(PoolLimits(), trusted) as transport:
        url = server.url.replace("127.0.0.1", "pms.example")
        assert (await ask(transport, url)).status_code == 201
        with pytest.raises(NotSent, match="pms_not_trusted"):
            await ask(transport, url.replace("pms.", "other."))
        with pytest.raises(NotSent, match="pms_not_trusted"):
            await ask(transport, server.url)
    assert told[:2] == ["pms.example", "other.example"]


async def test_who_is_vouched_for_by_nobody_is_sent_nothing(tmp_path: Path) -> None:
    serving, _ = contexts(tmp_path, "IP:127.0.0.1")
    async with raw_server(answering, tls=serving) as server, ConnectionPool(PoolLimits()) as transport:
        with pytest.raises(NotSent, match="pms_not_trusted"):
            await ask(transport, server.url)


@pytest.mark.parametrize("system_has_any", [True, False])
def test_whom_the_system_vouches_for_is_believed_or_else_whom_mozilla_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system_has_any: bool
) -> None:
    contexts(tmp_path, "DNS:pms.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / ("certificate.pem" if system_has_any else "none.pem")))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    trust = system_trust.__wrapped__()
    believed = [str(each["subject"]) for each in trust.get_ca_certs()]
    assert (len(believed) == 1 and "pms.example" in believed[0]) is system_has_any
    assert system_has_any or len(believed) > 50
    assert (trust.check_hostname, trust.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert trust.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("greeting", [b"", b"220 mail.example ESMTP\r\n", b"\x15\x03\x01\x00\x02\x02\x28"])
async def test_a_handshake_that_is_none_is_certain(greeting: bytes) -> None:
    async def script(caller: Caller) -> None:
        if greeting:
            await caller.say(greeting)
        else:
            await caller.gone()

    async with raw_server(script) as server, ConnectionPool(PoolLimits(connect_seconds=0.3)) as transport:
        with pytest.raises(NotSent):
            await ask(transport, server.url.replace("http:", "https:"))


async def test_a_handshake_that_does_not_end_is_certain() -> None:
    async with raw_server(silent) as server, ConnectionPool(PoolLimits(connect_seconds=0.3)) as transport:
        with pytest.raises(NotSent, match="pms_connect_timed_out"):
            await ask(transport, server.url.replace("http:", "https:"))

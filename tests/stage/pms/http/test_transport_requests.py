"""The transport of production: what it sends is what was built, in one piece, and nothing that could be read otherwise."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pydantic_core import from_json

from forwarder.pms.http.connections import ConnectionPool
from forwarder.pms.http.response import NoResponse, NotSent
from tests.support.network.raw_server import Caller, RawServer
from tests.support.network.transports import CREATED, Way, ask


@pytest.fixture
def seen() -> list[bytes]:
    """The requests that `server` has read."""
    return []


@pytest.fixture
async def server(way: Way, seen: list[bytes]) -> AsyncIterator[RawServer]:
    async def script(caller: Caller) -> None:
        while True:
            seen.append(await caller.request())
            await caller.say(CREATED)

    async with way.server(script) as running:
        yield running


def lines(request: bytes) -> list[bytes]:
    return request.split(b"\r\n\r\n")[0].split(b"\r\n")


async def test_ask_arrives_as_it_was_built(transport: ConnectionPool, server: RawServer, seen: list[bytes]) -> None:
    response = await ask(transport, f"{server.url}/a%2Fb?c=d%20e")
    assert lines(seen[0])[0] == b"POST /a%2Fb?c=d%20e HTTP/1.1"
    assert set(lines(seen[0])[1:]) == {
        b"Host: " + server.url.partition("://")[2].encode(),
        b"User-Agent: reservation-forwarder",
        b"Accept-Encoding: identity",
        b"X-Name: value",
        b"Content-Length: 7",
    }
    assert seen[0].endswith(b'\r\n\r\n{"a":1}')
    assert response.status_code == 201
    assert response.content == b"{}"
    assert from_json(response.content) == {}
    assert response.header("Content-Length") == "2"


async def test_what_ask_brings_stands(transport: ConnectionPool, server: RawServer, seen: list[bytes]) -> None:
    own = [
        (b"host", b"pms.example"),
        (b"USER-AGENT", b"own"),
        (b"Accept-Encoding", b"gzip"),
        (b"X-A", b"1"),
        (b"X-A", b"2"),
    ]
    await ask(transport, server.url, headers=own)
    assert set(lines(seen[0])[1:]) == {b"%b: %b" % header for header in own} | {b"Content-Length: 7"}


async def test_the_length_is_what_is_sent(transport: ConnectionPool, server: RawServer, seen: list[bytes]) -> None:
    lying = [(b"Content-Length", b"99"), (b"Transfer-Encoding", b"chunked")]
    await ask(transport, server.url, headers=lying)
    await ask(transport, server.url, headers=lying, content=b"")
    await ask(transport, server.url, headers=lying, content=b"", method="GET")
    framing = [[line for line in lines(each) if line.lower().startswith((b"content-l", b"transfer"))] for each in seen]
    assert framing == [[b"Content-Length: 7"], [b"Content-Length: 0"], []]


@pytest.mark.parametrize("evil", [b"a\r\nX-B: c", b"a\nX-B: c", b"a\rX-B: c", b"a\0b", b"a\r\n\r\nGET / HTTP/1.1"])
async def test_no_value_becomes_a_header_or_ask(transport: ConnectionPool, server: RawServer, evil: bytes) -> None:
    for headers in ([(b"X-A", evil)], [(b"Host", evil)], [(b"User-Agent", evil)], [(evil, b"a")]):
        with pytest.raises(NotSent, match="pms_address_invalid") as caught:
            await ask(transport, server.url, headers=headers)
        assert evil.decode() not in str(caught.value)
    with pytest.raises(NotSent, match="pms_address_invalid"):
        await ask(transport, server.url, method=evil.decode())
    assert server.connections == 0


@pytest.mark.parametrize("name", [b"", b"X A", b"X-A:", b"X-\xe9", b" X-A"])
async def test_a_name_that_is_none_is_refused(transport: ConnectionPool, server: RawServer, name: bytes) -> None:
    with pytest.raises(NotSent, match="pms_address_invalid"):
        await ask(transport, server.url, headers=[(name, b"value")])
    assert server.connections == 0


async def test_who_asks_may_stand_in_the_address_and_is_not_shown(
    transport: ConnectionPool, server: RawServer, seen: list[bytes]
) -> None:
    url = server.url.replace("://", "://booker:s%40cret@")
    await ask(transport, url)
    await ask(transport, url, headers=[(b"Authorization", b"Bearer own")])
    assert b"Authorization: Basic Ym9va2VyOnNAY3JldA==" in lines(seen[0])
    assert [line for line in lines(seen[1]) if line.lower().startswith(b"auth")] == [b"Authorization: Bearer own"]
    for wrong in (url.replace("127.0.0.1", "no-such-host.invalid"), url.replace("http", "ftp", 1)):
        with pytest.raises((NotSent, NoResponse)) as caught:
            await ask(transport, wrong)
        assert "cret" not in str(caught.value)
        assert "booker" not in str(caught.value)


async def test_no_proxy_of_the_environment_is_used(
    transport: ConnectionPool, server: RawServer, seen: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    await ask(transport, f"{server.url}/reservations")
    assert lines(seen[0])[0] == b"POST /reservations HTTP/1.1"


async def test_many_at_once_get_their_own_answers(way: Way, transport: ConnectionPool) -> None:
    async def script(caller: Caller) -> None:
        while True:
            body = (await caller.request()).split(b"\r\n\r\n")[1]
            await caller.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async with way.server(script) as echo:

        async def echoed(number: int) -> bytes:
            return (await ask(transport, echo.url, content=b"%d" % number)).content

        for _ in range(3):
            assert await asyncio.gather(*map(echoed, range(50))) == [b"%d" % number for number in range(50)]
        assert echo.connections == 50

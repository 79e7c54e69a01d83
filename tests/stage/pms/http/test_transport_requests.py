"""The transport of production: what it sends is what was built, in one piece, and nothing that could be read otherwise."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from forwarder.pms.http.transport import HttpTransport
from tests.support.network.raw_server import Caller, RawServer
from tests.support.network.transports import CREATED, Way, a_request


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


async def test_a_request_arrives_as_it_was_built(
    transport: HttpTransport, server: RawServer, seen: list[bytes]
) -> None:
    response = await transport.handle_async_request(a_request(f"{server.url}/a%2Fb?c=d%20e"))
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
    assert response.content == await response.aread() == response.read() == b"{}"
    assert response.json() == {}
    assert response.headers["content-length"] == "2"


async def test_what_a_request_brings_stands(transport: HttpTransport, server: RawServer, seen: list[bytes]) -> None:
    own = [
        (b"host", b"pms.example"),
        (b"USER-AGENT", b"own"),
        (b"Accept-Encoding", b"gzip"),
        (b"X-A", b"1"),
        (b"X-A", b"2"),
    ]
    await transport.handle_async_request(a_request(server.url, headers=own))
    assert set(lines(seen[0])[1:]) == {b"%b: %b" % header for header in own} | {b"Content-Length: 7"}


async def test_the_length_is_what_is_sent(transport: HttpTransport, server: RawServer, seen: list[bytes]) -> None:
    lying = [(b"Content-Length", b"99"), (b"Transfer-Encoding", b"chunked")]
    await transport.handle_async_request(a_request(server.url, headers=lying))
    await transport.handle_async_request(a_request(server.url, headers=lying, content=b""))
    await transport.handle_async_request(a_request(server.url, headers=lying, content=b"", method="GET"))
    framing = [[line for line in lines(each) if line.lower().startswith((b"content-l", b"transfer"))] for each in seen]
    assert framing == [[b"Content-Length: 7"], [b"Content-Length: 0"], []]


async def test_a_body_that_comes_in_pieces_leaves_whole(
    transport: HttpTransport, server: RawServer, seen: list[bytes]
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"a":'
        yield b"1}"

    await transport.handle_async_request(httpx.Request("POST", server.url, content=pieces()))
    assert seen[0].endswith(b'Content-Length: 7\r\n\r\n{"a":1}')


async def test_it_serves_httpx_own_client(transport: HttpTransport, server: RawServer, seen: list[bytes]) -> None:
    client = httpx.AsyncClient(transport=transport)
    assert (await client.post(server.url, json={"a": 1})).json() == {}
    assert len(lines(seen[0])) == len({line.split(b":")[0].lower() for line in lines(seen[0])})


@pytest.mark.parametrize("evil", [b"a\r\nX-B: c", b"a\nX-B: c", b"a\rX-B: c", b"a\0b", b"a\r\n\r\nGET / HTTP/1.1"])
async def test_no_value_becomes_a_header_or_a_request(transport: HttpTransport, server: RawServer, evil: bytes) -> None:
    for headers in ([(b"X-A", evil)], [(b"Host", evil)], [(b"User-Agent", evil)], [(evil, b"a")]):
        with pytest.raises(httpx.UnsupportedProtocol) as caught:
            await transport.handle_async_request(a_request(server.url, headers=headers))
        assert evil.decode() not in str(caught.value)
    with pytest.raises(httpx.UnsupportedProtocol):
        await transport.handle_async_request(a_request(server.url, method=evil.decode()))
    assert server.connections == 0


@pytest.mark.parametrize("name", [b"", b"X A", b"X-A:", b"X-\xe9", b" X-A"])
async def test_a_name_that_is_none_is_refused(transport: HttpTransport, server: RawServer, name: bytes) -> None:
    with pytest.raises(httpx.UnsupportedProtocol):
        await transport.handle_async_request(a_request(server.url, headers=[(name, b"value")]))
    assert server.connections == 0


async def test_who_asks_may_stand_in_the_address_and_is_not_shown(
    transport: HttpTransport, server: RawServer, seen: list[bytes]
) -> None:
    url = server.url.replace("://", "://booker:s%40cret@")
    await transport.handle_async_request(a_request(url))
    await transport.handle_async_request(a_request(url, headers=[(b"Authorization", b"Bearer own")]))
    assert b"Authorization: Basic Ym9va2VyOnNAY3JldA==" in lines(seen[0])
    assert [line for line in lines(seen[1]) if line.lower().startswith(b"auth")] == [b"Authorization: Bearer own"]
    for wrong in (url.replace("127.0.0.1", "no-such-host.invalid"), url.replace("http", "ftp", 1)):
        with pytest.raises(httpx.TransportError) as caught:
            await transport.handle_async_request(a_request(wrong))
        assert "cret" not in str(caught.value)
        assert "booker" not in str(caught.value)


async def test_no_proxy_of_the_environment_is_used(
    transport: HttpTransport, server: RawServer, seen: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    await transport.handle_async_request(a_request(f"{server.url}/reservations"))
    assert lines(seen[0])[0] == b"POST /reservations HTTP/1.1"


async def test_many_at_once_get_their_own_answers(way: Way, transport: HttpTransport) -> None:
    async def script(caller: Caller) -> None:
        while True:
            body = (await caller.request()).split(b"\r\n\r\n")[1]
            await caller.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async with way.server(script) as echo:

        async def ask(number: int) -> bytes:
            return (await transport.handle_async_request(a_request(echo.url, content=b"%d" % number))).content

        for _ in range(3):
            assert await asyncio.gather(*map(ask, range(50))) == [b"%d" % number for number in range(50)]
        assert echo.connections == 50

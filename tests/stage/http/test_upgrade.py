"""An upgrade is ignored (RFC 9110, section 7.8): a connection is served as if no request on it had asked for one."""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Final

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from forwarder.http.messages import Response
from tests.support.cases import for_each
from tests.support.network.raw_client import Said, exchange, served
from tests.support.profile import Profile, lives, some

LIVES: Final[Mapping[Profile, int]] = {"change": 60, "full": 2_000, "long": 50_000}

H2C = ("Upgrade, HTTP2-Settings", ("Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"))
UPGRADES = (
    H2C,
    ("upgrade", ("Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13")),
    ("Upgrade", ("Upgrade: TLS/1.2",)),
    ("UPGRADE", ("upgrade: anything/1, h2c",)),
    ("Upgrade", ("Upgrade: h2c", "Upgrade: websocket")),
    ("Upgrade", ("Upgrade:",)),
    ("Upgrade", ()),
    ("keep-alive", ("Upgrade: h2c",)),
)
INNER = b"GET /smuggled HTTP/1.1\r\nHost: inner\r\n\r\n"


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[str], list[str], bytes, int]:
    """The lines of a head without an upgrade, those that ask for one, what follows the head, and where they are put."""
    body = draw(st.sampled_from([b"", b"{}", INNER, INNER * 3, b"x" * 5000]) | st.binary(max_size=40))
    lines, tail = ["Host: x"], b""
    match draw(st.sampled_from(["none", "length", "chunked"])):
        case "length":
            lines.append(f"Content-Length: {len(body)}")
            tail = body
        case "chunked":
            lines.append("Transfer-Encoding: chunked")
            at = draw(st.integers(0, len(body)))
            chunks = [chunk for chunk in (body[:at], body[at:]) if chunk]
            tail = b"".join(b"%x;a=b\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n"
            tail += draw(st.sampled_from([b"", b"X-Trailer: y\r\n"])) + b"\r\n"
    token, upgrade = draw(st.sampled_from(UPGRADES))
    return lines, [f"Connection: {token}", *upgrade], tail, draw(st.integers(0, len(lines)))


def written(drawn: list[tuple[list[str], list[str], bytes, int]], *, upgrade: bool) -> bytes:
    """The requests, the last of which ends the connection."""
    sent = b""
    for number, (lines, asking, tail, at) in enumerate(drawn):
        close = ["Connection: close"] if number == len(drawn) - 1 else []
        head = [f"POST /{number} HTTP/1.1", *lines[:at], *(asking if upgrade else []), *lines[at:], *close]
        sent += "\r\n".join((*head, "", "")).encode() + tail
    return sent


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """What the application sees of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    of_upgrade = {b"upgrade", b"connection", b"http2-settings", b"sec-websocket-key", b"sec-websocket-version"}
    headers = [[part.decode("latin-1") for part in line] for line in scope["headers"] if line[0] not in of_upgrade]
    seen = [scope["method"], scope["path"], scope["http_version"], headers, body.decode("latin-1")]
    await Response(200, json.dumps(seen).encode())(scope, receive, send)


def seen(said: list[Said]) -> list[tuple[int, bytes]]:
    return [(each.status, each.body) for each in said]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_is_served_as_if_nobody_had_asked_for_an_upgrade(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def both(port: int, drawn: list[tuple[list[str], list[str], bytes, int]], cuts: list[int]) -> None:
        async with asyncio.timeout(30):
            plain = seen(await exchange(port, [written(drawn, upgrade=False)]))
            assert len(plain) == len(drawn)
            sent = written(drawn, upgrade=True)
            places = [0, *sorted(cut % len(sent) for cut in cuts), len(sent)]
            pieces = [sent[start:end] for start, end in itertools.pairwise(places)]
            assert seen(await exchange(port, pieces)) == plain

    with asyncio.Runner(loop_factory=loop) as runner:
        server = served(echo, seconds=None)
        port = runner.run(server.__aenter__())

        @lives(LIVES)
        @given(st.lists(requests(), min_size=1, max_size=5), st.lists(st.integers(0, 100_000), max_size=12))
        def differ(drawn: list[tuple[list[str], list[str], bytes, int]], cuts: list[int]) -> None:
            runner.run(both(port, drawn, cuts))

        try:
            differ()
        finally:
            runner.run(server.__aexit__(None, None, None))


@for_each("ask", UPGRADES, ids=str)
async def test_wherever_the_request_is_split(ask: tuple[str, tuple[str, ...]]) -> None:
    token, lines = ask
    drawn = [(["Host: x", f"Content-Length: {len(INNER)}"], [f"Connection: {token}", *lines], INNER, 1)]
    drawn += [(["Host: x"], [f"Connection: {token}", *lines], b"", 0)]
    sent = written(drawn, upgrade=True)
    async with served(echo) as port:
        plain = seen(await exchange(port, [written(drawn, upgrade=False)]))
        assert len(plain) == 2
        for at in some(range(1, len(sent)), 3):
            assert seen(await exchange(port, [sent[:at], sent[at:]])) == plain
        assert seen(await exchange(port, [sent[at : at + 1] for at in range(len(sent))])) == plain

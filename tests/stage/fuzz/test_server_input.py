"""Whatever bytes a client sends: an answer that is no failure of ours, or the end; and the next client is served."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from forwarder.http.connections import ConnectionLimits
from forwarder.http.messages import Response
from forwarder.http.server import serve
from forwarder.process.supervision import Stop, bind
from tests.support.profile import Profile, lives

LIVES: Final[Mapping[Profile, int]] = {"change": 50, "full": 5_000, "long": 100_000}
GOOD = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
TOKENS = (
    b"GET / HTTP/1.1\r\n",
    b"POST /a?b=c HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET http://[x HTTP/1.0\r\n",
    b"get \xff HTTP/9.9\n",
    b"Host: x\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked, identity\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    b"X: \x00\r\n",
    b"\xc3\xa4: \xe4\r\n",
    b" folded\r\n",
    b"\r\n",
    b"5\r\nhello\r\n",
    b"-1\r\n",
    b"fffffffffffffffff\r\n",
    b"0\r\n\r\n",
    b"0\r\nAuthorization: x\r\n\r\n",
    b"hello",
    b"\x16\x03\x01\x02\x00\x01",
    GOOD,
)
anything = st.lists(st.sampled_from(TOKENS) | st.binary(max_size=12), min_size=1, max_size=12)
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
BEGUN = (CHUNKED, CHUNKED + b"0\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello")
TRAILERS = (b"Authorization: x\r\n\r\n", b"Authorization: x\r\nHost: y\r\n\r\n" + GOOD, b"\r\n" + GOOD)
begun = st.tuples(st.sampled_from(BEGUN), st.sampled_from(TRAILERS), anything).map(
    lambda parts: [*parts[:2], *parts[2]]
)
requests = anything | begun


class App:
    """Reads a body, and answers. `trailers`: how many of them came as headers."""

    def __init__(self) -> None:
        self.trailers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        self.trailers += sum(name == b"authorization" for name, _ in scope["headers"])
        await Response(200, b"{}")(scope, receive, send)


async def _said(port: int, pieces: list[bytes]) -> bytes:
    loop, said = asyncio.get_running_loop(), b""
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        with suppress(OSError):  # it had ended before everything was sent
            for piece in pieces:
                await loop.sock_sendall(client, piece)
            client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while more := await loop.sock_recv(client, 65536):
                said += more
    return said


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_client_is_answered_or_ended_and_the_next_is_served(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    app = App()
    with asyncio.Runner(loop_factory=loop) as runner:
        listening, stop = bind("127.0.0.1", 0), Stop()
        port = listening.getsockname()[1]

        async def begin() -> asyncio.Task[None]:
            limits = ConnectionLimits(head_seconds=2.0, body_seconds=2.0)
            return asyncio.create_task(serve(app, listening, stop, grace_seconds=1, limits=limits))

        async def asked(pieces: list[bytes]) -> None:
            async with asyncio.timeout(90):
                said = await _said(port, pieces)
                assert not said or said.startswith(b"HTTP/1.1 "), said
                assert b"HTTP/1.1 500" not in said
                assert (await _said(port, [GOOD])).startswith(b"HTTP/1.1 200")

        serving = runner.run(begin())

        @lives(LIVES)
        @given(requests)
        def fuzz(pieces: list[bytes]) -> None:
            runner.run(asked(pieces))

        try:
            fuzz()
        finally:
            stop.set()
            runner.run(asyncio.wait_for(serving, 90))
    assert app.trailers == 0

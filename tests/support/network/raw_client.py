"""A server of an application in this loop, and a client whose bytes are the test's own."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp

from forwarder.http.connections import ConnectionLimits
from forwarder.http.server import serve
from forwarder.process.supervision import Stop, bind


@asynccontextmanager
async def served(app: ASGIApp, *, seconds: float | None = 60, **limits: Any) -> AsyncIterator[int]:
    """The port on which `app` is served, for so many seconds at the most."""
    listening, stop = bind("127.0.0.1", 0), Stop()
    task = asyncio.create_task(serve(app, listening, stop, grace_seconds=1, limits=ConnectionLimits(**limits)))
    try:
        async with asyncio.timeout(seconds):
            yield listening.getsockname()[1]
    finally:
        stop.set()
        await task


@dataclass(frozen=True, slots=True)
class Said:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes


async def exchange(port: int, pieces: Iterable[bytes], *, half_close: bool = False) -> list[Said]:
    """What is answered until the server closes the connection. Each piece is read by itself, as far as a socket can be made to."""
    loop, said = asyncio.get_running_loop(), b""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(ConnectionError):  # it had ended before everything was sent
            for piece in pieces:
                await loop.sock_sendall(client, piece)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            if half_close:
                client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while more := await loop.sock_recv(client, 65536):
                said += more
    return responses(said)


def responses(said: bytes) -> list[Said]:
    """All that are whole in `said`, but those of status 100."""
    found: list[Said] = []
    while said:
        head, _, rest = said.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            break
        if not first.startswith("HTTP/1.1 100 "):
            found.append(Said(int(first.split()[1]), headers, rest[:length]))
        said = rest[length:]
    return found

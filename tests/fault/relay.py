"""A way to a server that can be cut, and that is slow to come back: every connection through here may take its time, and may die.

For tests. What is cut is cut on both sides, in the middle of whatever is on the way.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

from tools.servers.server_process import LOCALHOST

_CHUNK = 65_536


class Relay:
    """Passes bytes on to a server. A new connection is there after `delay()` seconds."""

    def __init__(self, host: str, port: int, delay: Callable[[], float]) -> None:
        self._server = host, port
        self._delay = delay
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> int:
        """Every connection, now; how many there were."""
        there = len(self._open) // 2
        for writer in list(self._open):
            writer.transport.abort()
        return there

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        try:
            with suppress(OSError):
                await asyncio.sleep(self._delay())
                await self._pass_on(reader, writer)
        finally:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._server)
        ends = {writer, server_writer}
        self._open |= ends
        try:
            await asyncio.gather(_pump(reader, server_writer), _pump(server_reader, writer))
        finally:
            self._open -= ends
            server_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    raise ConnectionError("one side has ended it: so does the other")


@asynccontextmanager
async def relay_to(url: str, delay: Callable[[], float]) -> AsyncIterator[tuple[Relay, str]]:
    """A relay to the server of `url`, and the URL by which it is reached through it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    relay = Relay(parts.hostname, parts.port, delay)
    listening = await asyncio.start_server(relay.pass_on, LOCALHOST, 0)
    port = listening.sockets[0].getsockname()[1]
    user = f"{parts.username}@" if parts.username else ""
    try:
        yield relay, urlunsplit(parts._replace(netloc=f"{user}{LOCALHOST}:{port}"))
    finally:
        listening.close()
        relay.cut()
        await asyncio.sleep(0)  # what is cut is gone with the next turn of the loop, which may be the last

"""A server that says what it is told to, byte for byte: for what no honest HTTP server would answer."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Script = Callable[["Caller"], Awaitable[None]]


@dataclass(slots=True)
class Caller:
    """One connection, as the script sees it. `on_request` is called with each that came whole."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    on_request: Callable[[], None] = lambda: None

    async def request(self) -> bytes:
        """One whole request, head and body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = await self.reader.readexactly(int(lengths[0]) if lengths else 0)
        self.on_request()
        return head + body

    async def say(self, answer: bytes) -> None:
        self.writer.write(answer)
        await self.writer.drain()

    async def gone(self) -> None:
        """Return when the other side has closed."""
        await self.reader.read()

    def reset(self) -> None:
        peer = self.writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass(slots=True)
class RawServer:
    """Where it is, how many connections there were (`called` once there was one), and the scripts that are not over."""

    url: str = ""
    connections: int = 0
    called: asyncio.Event = field(default_factory=asyncio.Event)
    scripts: set[asyncio.Task[None]] = field(default_factory=set)


@asynccontextmanager
async def raw_server(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """A server that runs `script` for each connection, over TLS where `tls` is given, and closes it afterwards."""
    running = RawServer()
    writers: list[asyncio.StreamWriter] = []

    async def serve(caller: Caller) -> None:
        try:
            await script(caller)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            caller.writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.connections += 1
        writers.append(writer)
        running.called.set()
        task = asyncio.create_task(serve(Caller(reader, writer)))
        running.scripts.add(task)
        task.add_done_callback(running.scripts.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    running.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield running
    finally:
        server.close()
        for task in list(running.scripts):
            task.cancel()
        await asyncio.gather(*running.scripts, return_exceptions=True)
        for writer in writers:  # of a script that was cancelled before it began, or that wrote more than anybody read
            with suppress(AttributeError):  # of Python 3.11.2, where a TLS connection is gone already
                writer.transport.abort()
        await asyncio.sleep(0)  # they are gone with the next turn of the loop, which may be the test's last

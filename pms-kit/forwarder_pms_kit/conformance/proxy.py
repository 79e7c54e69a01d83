"""A proxy on loopback in front of any PMS, which forwards requests and breaks exchanges on demand.

It knows nothing of the contents. Adapters reach it as they reach a PMS, by HTTP over a connection, so that what they do with
connections is seen as well: how many there are, and which stay open.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from forwarder.pms.http.client import Request, Reuse, Transport
from forwarder.pms.http.connections import ConnectionPool, PoolLimits
from forwarder.pms.http.response import Headers, NoResponse, NotSent, Response
from forwarder_pms_kit.conformance.faults import TRAP, Again, Break, Disruption, Instead

_HOP_BY_HOP: Final = frozenset(b"connection content-length host keep-alive transfer-encoding accept-encoding".split())
_PMS_SECONDS: Final = 30.0
_DRIP_SECONDS: Final = 0.02


@dataclass(slots=True)
class Exchange:
    """A request that came, and what the PMS answered, where it was carried on."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    response: Response | None = None


class FaultyProxy:
    """`url`: where the PMS seems to be. `exchanges` since `begin`, and how many there were in all; `connections` that were taken;
    `trapped`: redirects followed; `met`: set once the disruption that was asked for has happened."""

    def __init__(self, base_url: str, pms: Transport, trust: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(base_url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._path = parts.path
        self._pms = pms
        self._trust = trust
        self._disruption: Disruption | None = None
        self._at: int | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.exchanges: list[Exchange] = []
        self.exchanges_in_all = 0
        self.connections = 0
        self.trapped = 0
        self.address = ""
        self.met = asyncio.Event()

    @property
    def url(self) -> str:
        return self.address + self._path

    @property
    def open_connections(self) -> int:
        return len(self._writers)

    def begin(self, disruption: Disruption | None = None, at: int | None = None) -> None:
        """Forget the exchanges there were, and disrupt those from now on, or none. `at`: which of them, from 1; None is each."""
        self.exchanges, self._disruption, self._at, self.met = [], disruption, at, asyncio.Event()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._writers.add(writer)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                while await self._exchange(await _request(reader), reader, writer):
                    pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _exchange(self, asked: Exchange, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One exchange; False where the connection is not to be used again."""
        if asked.target.startswith(TRAP):
            self.trapped += 1
            await _write(writer, Response(200, (), b"{}"))
            return True
        self.exchanges.append(asked)
        self.exchanges_in_all += 1
        disruption, met = self._disruption, self.met
        if disruption is None or self._at not in (None, len(self.exchanges)):
            asked.response = await self._carried(asked)
            await _write(writer, asked.response)
            return True
        if disruption.delivered:
            asked.response = await self._carried(asked)
        met.set()
        response = asked.response or Response(200)
        match disruption.fault:
            case Instead(made):
                await _write(writer, made(response))
            case Again(seconds):

                async def again() -> None:
                    await asyncio.sleep(seconds)
                    with suppress(ConnectionError):
                        await _write(writer, response)

                self.tasks.add(repeated := asyncio.create_task(again()))
                repeated.add_done_callback(self.tasks.discard)
                await _write(writer, response)
            case Break() as fault:
                await _break(fault, response, reader, writer)
                return False
        return True

    async def _carried(self, asked: Exchange) -> Response:
        url, _, query = (self._origin + asked.target).partition("?")
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in asked.headers]
        deadline = asyncio.get_running_loop().time() + _PMS_SECONDS
        reuse = None if self._trust is None else Reuse("conformance", self._trust)
        try:
            request = Request(asked.method, url, _end_to_end(headers), asked.body, query)
            response = await self._pms.exchange(request, deadline, reuse=reuse)
        except (NotSent, NoResponse) as error:
            raise ConnectionAbortedError("the PMS behind the proxy") from error
        finally:
            if reuse is not None:
                reuse.end(keep=True)
        return replace(response, headers=_end_to_end(response.headers))


def _end_to_end(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]


@asynccontextmanager
async def faulty_proxy(base_url: str, trust: ssl.SSLContext | None = None) -> AsyncIterator[FaultyProxy]:
    """A proxy to the PMS of that base URL, on a free port of loopback. `trust`: what connections to the PMS are secured with."""
    async with ConnectionPool(PoolLimits()) as pms:
        proxy = FaultyProxy(base_url, pms, trust)
        server = await asyncio.start_server(proxy.connected, "127.0.0.1", 0)
        proxy.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            server.close()
            await proxy.close()


async def _request(reader: asyncio.StreamReader) -> Exchange:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    lengths = [int(value) for name, value in headers if name.lower() == "content-length"]
    return Exchange(method, target, headers, await reader.readexactly(lengths[0] if lengths else 0))


async def _break(fault: Break, response: Response, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    match fault.how:
        case "silence":
            await _write(writer, response, fault.after)
            await reader.read()
        case "close":
            await _write(writer, response, fault.after)
        case "drip":
            await _write(writer, response, 0.0, head_only=True)
            while True:
                await _raw(writer, b" ")
                await asyncio.sleep(_DRIP_SECONDS)
        case "noise":
            await _raw(writer, b"\x16\x03\x01\x02\x00 not HTTP at all\r\n\r\n")
        case "reset":
            peer: socket.socket = writer.get_extra_info("socket")
            # Lingering for no time makes the kernel send a reset instead of an orderly end.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


async def _write(
    writer: asyncio.StreamWriter, response: Response, share: float = 1.0, *, head_only: bool = False
) -> None:
    """The response, or the first `share` of its bytes; with a length that it never reaches where only its head is wanted."""
    length = 10**6 if head_only else len(response.content)
    lines = [b"HTTP/1.1 %d -" % response.status_code, *(b"%b: %b" % header for header in response.headers)]
    if response.status_code != HTTPStatus.NO_CONTENT:
        lines.append(b"content-length: %d" % length)
    head = b"\r\n".join([*lines, b"", b""])
    whole = head + response.content
    await _raw(writer, head if head_only else whole[: round(len(whole) * share)])


async def _raw(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(content)
    await writer.drain()

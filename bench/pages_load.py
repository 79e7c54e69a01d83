"""Asks for one address again and again over keep-alive connections; nothing is read of the answers but their status."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import httptools

_OK = 200


class NotAnswered(Exception):
    """An answer was another than 200, or a connection was closed."""


@dataclass(slots=True)
class Asked:
    """`count` requests; `seconds`: how long each took, `bytes`: of all bodies."""

    request: bytes
    count: int
    sent: int = 0
    bytes: int = 0
    seconds: list[float] = field(default_factory=list)


class _Client(asyncio.Protocol):
    def __init__(self, asked: Asked, ended: asyncio.Future[None]) -> None:
        self._asked = asked
        self._ended = ended
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._asked.bytes += len(body)

    def on_message_complete(self) -> None:
        self._asked.seconds.append(time.monotonic() - self._sent_at)
        status = self._parser.get_status_code()
        if status == _OK:
            self._ask()
        else:
            self._ended.set_exception(NotAnswered(f"{status} to {self._asked.request.splitlines()[0].decode()}"))

    def connection_lost(self, _error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(NotAnswered("the connection was closed"))

    def _ask(self) -> None:
        if self._asked.sent < self._asked.count:
            self._asked.sent += 1
            self._sent_at = time.monotonic()
            self._transport.write(self._asked.request)
        else:
            self._ended.set_result(None)
            self._transport.close()


async def ask(url: str, path: str, headers: Sequence[str], *, count: int, connections: int) -> Asked:
    """Ask `count` times in all, each of the connections for the next when the last was answered. Raises `NotAnswered`."""
    address, loop = urlsplit(url), asyncio.get_running_loop()
    asked = Asked("\r\n".join([f"GET {path} HTTP/1.1", f"host: {address.netloc}", *headers, "", ""]).encode(), count)
    ends: list[asyncio.Future[None]] = [loop.create_future() for _ in range(connections)]
    for ended in ends:
        await loop.create_connection(partial(_Client, asked, ended), address.hostname or "", address.port or 80)
    await asyncio.gather(*ends)
    return asked

"""The load generator: a closed loop of keep-alive connections, each sending its next request when the last was answered.

A process of its own that prints one JSON object; the parts that cost (parsing, the event loop) are in C, so that it is not what
is measured: `python -m bench.lean_http` is the server against which its ceiling shows.
"""

import argparse
import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import httptools
import uvloop

from bench.bodies import reservation


@dataclass(slots=True)
class Load:
    """What is sent, and what came of it. `began` is on the monotonic clock that all processes of a machine share."""

    run: str
    count: int
    head: bytes
    began: float = 0.0
    ended: float = 0.0
    sent: int = 0
    answered: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def next_request(self) -> bytes | None:
        """The next request to put on a wire; None when all have been."""
        if self.sent == self.count:
            return None
        body = reservation(self.run, self.sent)
        self.sent += 1
        return b"%s%d\r\n\r\n%s" % (self.head, len(body), body)

    def record(self, status: str, seconds: float) -> None:
        """One request has come to its end."""
        self.answered += 1
        self.statuses[status] += 1
        self.seconds.append(seconds)
        if self.answered == self.count:
            self.ended = time.monotonic()
            self.done.set()

    def summary(self) -> dict[str, object]:
        """All that the caller wants to know, as JSON has it."""
        took = self.ended - self.began
        ranked = sorted(self.seconds)
        return {
            "requests": self.count,
            "statuses": dict(self.statuses),
            "began": self.began,
            "seconds": round(took, 4),
            "rate": round(self.count / took, 1),
            "p50_ms": _percentile_ms(ranked, 0.50),
            "p99_ms": _percentile_ms(ranked, 0.99),
            "max_ms": _percentile_ms(ranked, 1.0),
        }


def _percentile_ms(ranked: list[float], share: float) -> float:
    return round(ranked[max(0, round(share * len(ranked)) - 1)] * 1000, 2)


class Client(asyncio.Protocol):
    """One connection of the closed loop."""

    def __init__(self, load: Load, closed: asyncio.Future[None]) -> None:
        self._load = load
        self._closed = closed
        self._waiting_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._record(str(self._parser.get_status_code()))
        if self._parser.should_keep_alive():
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self._record("lost")
        self._closed.set_result(None)

    def _send(self) -> None:
        request = self._load.next_request()
        if request is None:
            self._transport.close()
            return
        self._waiting_since = time.monotonic()
        self._transport.write(request)

    def _record(self, status: str) -> None:
        if self._waiting_since is not None:
            self._load.record(status, time.monotonic() - self._waiting_since)
            self._waiting_since = None


async def send(url: str, headers: list[str], *, run: str, count: int, connections: int) -> Load:
    """Send `count` reservations over `connections` connections; a connection that the server closed is opened again."""
    address = urlsplit(url)
    lines = [
        f"POST {address.path or '/'} HTTP/1.1",
        f"host: {address.netloc}",
        "content-type: application/json",
        *headers,
    ]
    load = Load(run, count, "\r\n".join([*lines, "content-length: "]).encode())
    load.began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_keep_connected(load, address.hostname or "", address.port or 80))
    await load.done.wait()
    return load


async def _keep_connected(load: Load, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    while load.sent < load.count:
        closed: asyncio.Future[None] = loop.create_future()
        await loop.create_connection(partial(Client, load, closed), host, port)
        await closed


def main() -> None:
    """Send, and print the summary."""
    parser = argparse.ArgumentParser(prog="python -m bench.load")
    parser.add_argument("url")
    parser.add_argument("-n", dest="count", type=int, default=10_000)
    parser.add_argument("-c", dest="connections", type=int, default=64)
    parser.add_argument("-H", dest="headers", action="append", default=[], metavar="'NAME: VALUE'")
    parser.add_argument("--run", default=f"{time.time_ns() // 1_000_000:x}", help="prefix of each transactionId")
    arguments = parser.parse_args()
    load = uvloop.run(
        send(
            arguments.url,
            arguments.headers,
            run=arguments.run,
            count=arguments.count,
            connections=arguments.connections,
        )
    )
    print(json.dumps(load.summary()))


if __name__ == "__main__":
    main()

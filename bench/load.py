"""The load generator: keep-alive connections, each sending its next request when the last was answered, or at a steady rate.

A process of its own that prints one JSON object; the parts that cost (parsing, the event loop) are in C, so that it is not what
is measured: `python -m bench.lean_http` is the server against which its ceiling shows.
"""

import argparse
import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast
from urllib.parse import urlsplit

import httptools
import uvloop

from bench.bodies import reservation
from bench.gate import Gate

_ACCEPTED_OF_A_BULK: Final = re.compile(rb'"accepted":(\d+)')


@dataclass(slots=True)  # frozen would cost more to make
class Order:
    """One request to put on a wire, of so many submissions, not before `due` on the monotonic clock."""

    request: bytes
    submissions: int
    due: float


@dataclass(slots=True)
class Load:
    """What is sent, and what came of it. `began` is on the monotonic clock that all processes of a machine share.

    `rate` submissions a second, as fast as they are answered where that is 0; `bulk` in each request, each alone where that is 0.
    `gate`: no faster than it lets them.
    """

    run: str
    count: int
    head: bytes
    rate: int = 0
    bulk: int = 0
    gate: Gate | None = None
    began: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    sent: int = 0
    answered: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """From now on it is measured."""
        self.began = time.monotonic()
        self.cpu_seconds = -time.process_time()

    def next_order(self) -> Order | None:
        """What is to be sent next; None when all has been."""
        if self.sent == self.count:
            return None
        size = min(self.bulk or 1, self.count - self.sent)
        body = self._bulk(size) if self.bulk else reservation(self.run, self.sent)
        due = self.began + (self.sent / self.rate if self.rate else 0.0)
        self.sent += size
        return Order(b"%s%d\r\n\r\n%s" % (self.head, len(body), body), size, due)

    def _bulk(self, size: int) -> bytes:
        bodies = (reservation(self.run, self.sent + place) for place in range(size))
        return b"[%s]" % b",".join(b'{"operation":"booking-engine","reservation":%s}' % body for body in bodies)

    def record(self, status: str, submissions: int, refused: int, seconds: float) -> None:
        """One request has come to its end, with so many submissions in it, of which the answer says that so many were refused."""
        self.answered += submissions
        self.statuses[status] += submissions - refused
        if refused:
            self.statuses["refused"] += refused
        self.seconds.append(seconds)
        if self.answered == self.count:
            self.ended = time.monotonic()
            self.cpu_seconds += time.process_time()
            self.done.set()

    def summary(self) -> dict[str, object]:
        """All that the caller wants to know, as JSON has it."""
        took = self.ended - self.began
        ranked = sorted(self.seconds)
        return {
            "run": self.run,
            "submissions": self.count,
            "statuses": dict(+self.statuses),
            "began": self.began,
            "seconds": round(took, 4),
            "rate": round(self.count / took, 1),
            "p50_ms": percentile_ms(ranked, 0.50),
            "p99_ms": percentile_ms(ranked, 0.99),
            "max_ms": percentile_ms(ranked, 1.0),
            "cpu_us": round(self.cpu_seconds * 1e6 / self.count, 1),
        }


def percentile_ms(ranked: Sequence[float], share: float) -> float:
    """So many of the `ranked` seconds are no longer, in milliseconds."""
    return round(ranked[max(0, round(share * len(ranked)) - 1)] * 1000, 2)


class Client(asyncio.Protocol):
    """One connection, with one request under way or waiting for its time."""

    def __init__(self, load: Load, closed: asyncio.Future[None]) -> None:
        self._load = load
        self._closed = closed
        self._order: Order | None = None
        self._since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, body: bytes) -> None:
        self._body = self._body or body  # its beginning says enough

    def on_message_complete(self) -> None:
        self._record(str(self._parser.get_status_code()))
        if self._parser.should_keep_alive():
            self._next()
        else:
            self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self._record("lost")
        self._closed.set_result(None)

    def _next(self) -> None:
        if self._transport.is_closing():  # it was closed while it was held back
            return
        if self._load.gate is not None and self._load.gate.holds(self._load.sent, self._next):
            return
        self._order = self._load.next_order()
        if self._order is None:
            self._transport.close()
            return
        self._since = time.monotonic()
        early = self._order.due - self._since
        if early > 0:
            asyncio.get_running_loop().call_later(early, self._send_now, self._order.request)
            return
        if self._load.rate:
            self._since = self._order.due  # that it waited for a connection is what its sender would notice
        self._transport.write(self._order.request)

    def _send_now(self, request: bytes) -> None:
        if not self._transport.is_closing():
            self._since = time.monotonic()
            self._transport.write(request)

    def _record(self, status: str) -> None:
        order, self._order = self._order, None
        if order is None:
            return
        accepted = _ACCEPTED_OF_A_BULK.search(self._body) if self._load.bulk and status == "200" else None
        refused = 0 if accepted is None else order.submissions - int(accepted[1])
        self._load.record(status, order.submissions, refused, time.monotonic() - self._since)


async def send(
    url: str,
    headers: list[str],
    *,
    run: str,
    count: int,
    connections: int,
    rate: int = 0,
    bulk: int = 0,
    gate: Gate | None = None,
) -> Load:
    """Send `count` reservations over `connections` connections; a connection that the server closed is opened again."""
    address = urlsplit(url)
    lines = [
        f"POST {address.path or '/'} HTTP/1.1",
        f"host: {address.netloc}",
        "content-type: application/json",
        *headers,
    ]
    load = Load(run, count, "\r\n".join([*lines, "content-length: "]).encode(), rate, bulk, gate)
    load.begin()
    async with gate or nullcontext(), asyncio.TaskGroup() as group:
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
    parser.add_argument("--rate", type=int, default=0, help="a second; as fast as they are answered where left out")
    parser.add_argument("--bulk", type=int, default=0, help="so many in a request, for the bulk operation")
    parser.add_argument("--count-url", metavar="URL", help="of the PMS, which answers how many are made")
    parser.add_argument(
        "--ahead", type=int, default=4_000, help="of these at the most, where that is given (%(default)s)"
    )
    given = vars(parser.parse_args())
    count_url, ahead = given.pop("count_url"), given.pop("ahead")
    load = uvloop.run(send(**given, gate=Gate(count_url, ahead) if count_url else None))
    print(json.dumps(load.summary()))


if __name__ == "__main__":
    main()

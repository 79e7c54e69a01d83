"""What one exchange with a PMS costs, in CPU time: `python -m bench.cost_of_exchange`.

ours        the transport of production
httpx       httpx's own transport, over httpcore: what the seam would cost without it

Each makes the same requests of about 900 bytes, so many at a time, over connections that are kept, to the lean PMS beside it. What
is counted is the CPU time of this process, user and system; the rounds take turns, and the median of each is told.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx
import uvloop

from bench.bodies import reservation
from bench.processes import Role, local_url, port_of, running
from forwarder.pms.http.client import Held, Request, Reuse, Transport
from forwarder.pms.http.connections import ConnectionPool, PoolLimits
from forwarder.pms.http.response import Response
from forwarder.process.loading import collect_rarely
from tools.servers.reaper import Reaper

_WARM: Final = 5
"""Exchanges of each that goes on at once, before those that count: connections stand after them."""


class _Httpx:
    """httpx's own transport, asked as ours is."""

    def __init__(self, at_once: int) -> None:
        limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
        self._transport = httpx.AsyncHTTPTransport(limits=limits)

    async def exchange(
        self, request: Request, deadline: float, held: Held | None = None, reuse: Reuse | None = None
    ) -> Response:
        theirs = httpx.Request(
            request.method, request.url, headers=[*request.headers], stream=httpx.ByteStream(request.content)
        )
        response = await self._transport.handle_async_request(theirs)
        return Response(response.status_code, response.headers.raw, await response.aread())

    async def aclose(self) -> None:
        await self._transport.aclose()


TRANSPORTS: Final[Mapping[str, Callable[[int], Transport]]] = {
    "ours": lambda at_once: ConnectionPool(PoolLimits(max_idle_per_pms=at_once)),
    "httpx": _Httpx,
}


def _request(url: str, number: int) -> Request:
    body = reservation("exchange", number)
    headers = [
        (b"Host", httpx.URL(url).netloc),  # which httpx's own would not add
        (b"Content-Length", b"%d" % len(body)),
        (b"Authorization", b"Bearer secret"),
        (b"Content-Type", b"application/json"),
        (b"Idempotency-Key", b'"%d"' % number),
    ]
    return Request("POST", f"{url}/reservations", headers, body)


async def _exchanges(transport: Transport, requests: Sequence[Request]) -> None:
    deadline = asyncio.get_running_loop().time() + 300.0
    for request in requests:
        response = await transport.exchange(request, deadline)
        assert response.status_code in (200, 201), response.content


async def _round(transport: Transport, url: str, count: int, at_once: int) -> float:
    """CPU seconds of `count` exchanges. The requests are made before."""
    shares = [[_request(url, number) for number in range(first, count, at_once)] for first in range(at_once)]
    async with aclosing(transport):
        await asyncio.gather(*(_exchanges(transport, share[:_WARM]) for share in shares))
        began = time.process_time()
        await asyncio.gather(*(_exchanges(transport, share) for share in shares))
        return time.process_time() - began


async def _measure(arguments: argparse.Namespace, logs: Path, reaper: Reaper) -> dict[str, object]:
    url = local_url()
    pms = Role("pms", [sys.executable, "-m", "bench.pms", "--port", port_of(url)], {}, f"{url}/healthz")
    costs: dict[str, list[float]] = {name: [] for name in TRANSPORTS}
    async with running(pms, logs, reaper):
        for _ in range(arguments.rounds):
            for name, make in TRANSPORTS.items():
                seconds = await _round(make(arguments.at_once), url, arguments.count, arguments.at_once)
                costs[name].append(seconds / arguments.count * 1_000_000)
    return {name: round(statistics.median(each), 1) for name, each in costs.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Print one JSON object: CPU µs of an exchange."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost_of_exchange")
    parser.add_argument("-n", dest="count", type=int, default=3_000, help="exchanges in each round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of each transport (%(default)s)")
    parser.add_argument("--at-once", type=int, default=64, help="exchanges under way (%(default)s)")
    arguments = parser.parse_args(argv)
    with TemporaryDirectory() as directory, Reaper() as reaper:
        collect_rarely()
        told = uvloop.run(_measure(arguments, Path(directory), reaper))
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()

"""What one accepted reservation costs the ingress: CPU microseconds, layer by layer. `python -m bench.cost_of_accept`.

Each layer holds those above it:

read       the body is checked
draft      it is identified and written out as the message for the log
app        the whole ASGI application, called in this process; the log is a publisher that does nothing
socket     the same behind uvicorn, as `forwarder.http.server.serve` runs it; the load is a process of its own
kafka      the same with the publisher for Kafka, on the broker that `--kafka HOST:PORT` names; its topic is made here

and of `--bulk N` reservations in one call: `app bulk`, `kafka bulk`. What is counted is the CPU time of this process, user and
system, so that other work on the machine shows little; the rounds of the layers take turns, and the median of each is told.
`--shares` tells into which parts of the work the samples of the last layer fell.
"""

import argparse
import asyncio
import io
import json
import secrets
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, redirect_stderr
from tempfile import TemporaryFile

import uvloop
from starlette.types import ASGIApp

from bench.bodies import reservation
from bench.ingress_alone import ACCOUNT, BULK_PATH, HEADERS, POST_PATH, Nowhere, application, call
from bench.processes import output_of
from bench.shares import ACCEPT, Shares
from forwarder.http.server import serve
from forwarder.ingress.message import NewSubmission, SubmissionBuilder, Terms
from forwarder.ingress.responses import Losses
from forwarder.observability.logging import configure_logging
from forwarder.pms.rehearsal import Previews
from forwarder.process.clock import SystemClock
from forwarder.process.loading import collect_rarely
from forwarder.process.supervision import Stop, bind
from forwarder.reservation.checks.fields import plausibility, read_request
from forwarder.reservation.submission import RequestIds
from forwarder.tenancy.access import Caller
from forwarder.tenancy.sealing import CardSealer
from forwarder.topics.kafka.log import KafkaLog

PARTITIONS = 16  # as many as `forwarder topics create` makes

Drive = Callable[[Sequence[bytes]], Awaitable[float]]
"""Takes the reservations through a layer; the seconds of CPU time that this took here."""


async def _read(bodies: Sequence[bytes]) -> float:
    began = time.process_time()
    for body in bodies:
        read_request("booking-engine", body)
    return time.process_time() - began


async def _draft(bodies: Sequence[bytes]) -> float:
    builder = SubmissionBuilder(RequestIds(b"0123456789abcdef"), CardSealer(), Losses(lambda: Previews(SystemClock())))
    caller, terms = Caller("bench", ACCOUNT, "key-bench"), Terms(None, None, None)
    began = time.process_time()
    for body in bodies:
        read = read_request("booking-engine", body)
        assert not isinstance(read, list)
        now = SystemClock().now()
        submission = builder.build(caller, "booking-engine", read, terms, plausibility(now), now)
        assert isinstance(submission, NewSubmission)
        submission.message(submission.accepted_at)
    return time.process_time() - began


def _calls(app: ASGIApp) -> Drive:
    async def drive(bodies: Sequence[bytes]) -> float:
        began = time.process_time()
        for body in bodies:
            await call(app, POST_PATH, body)
        return time.process_time() - began

    return drive


def _bulks(app: ASGIApp, size: int) -> Drive:
    async def drive(bodies: Sequence[bytes]) -> float:
        items = [b'{"operation":"booking-engine","reservation":%s}' % body for body in bodies]
        bulks = [b"[%s]" % b",".join(items[at : at + size]) for at in range(0, len(items), size)]
        began = time.process_time()
        for bulk in bulks:
            await call(app, BULK_PATH, bulk)
        return time.process_time() - began

    return drive


def _served(port: int, connections: int) -> Drive:
    async def drive(bodies: Sequence[bytes]) -> float:
        headers = [part for name in list(HEADERS)[2:] for part in ("-H", f"{name}: {HEADERS[name]}")]
        counts = ["-n", str(len(bodies)), "-c", str(connections)]
        began = time.process_time()
        told = await output_of(
            [sys.executable, "-m", "bench.load", f"http://127.0.0.1:{port}{POST_PATH}", *counts, *headers]
        )
        took = time.process_time() - began
        assert json.loads(told)["statuses"] == {"202": len(bodies)}, told
        return took

    return drive


@asynccontextmanager
async def _serving(app: ASGIApp) -> AsyncIterator[int]:
    """Serve `app` in this process; the port."""
    stop, listening = Stop(), bind("127.0.0.1", 0)
    serving = asyncio.create_task(serve(app, listening, stop, grace_seconds=5))
    try:
        yield listening.getsockname()[1]
    finally:
        stop.set()
        await serving


async def _layers(stack: AsyncExitStack, arguments: argparse.Namespace) -> dict[str, Drive]:
    app, connections = application(Nowhere()), arguments.connections
    layers = {"read": _read, "draft": _draft, "app": _calls(app), "app bulk": _bulks(app, arguments.bulk)}
    layers["socket"] = _served(await stack.enter_async_context(_serving(app)), connections)
    if arguments.kafka:
        log, topic = KafkaLog(arguments.kafka), f"cost-of-accept-{secrets.token_hex(4)}"
        async with log.admin() as admin:
            await admin.create({topic: PARTITIONS})
        real = application(await stack.enter_async_context(log.publisher()), topic)
        layers["kafka"] = _served(await stack.enter_async_context(_serving(real)), connections)
        layers["kafka bulk"] = _bulks(real, arguments.bulk)
    return {name: layers[name] for name in arguments.layers or layers}


async def _measure(arguments: argparse.Namespace, shares: Shares | None) -> dict[str, list[float]]:
    """CPU microseconds a reservation: of each layer, one figure a round. The first round warms up, and is left out. `shares`: takes
    samples of the last layer."""
    micros: dict[str, list[float]] = {}
    collect_rarely()  # as `supervision` has it for a process that serves
    async with AsyncExitStack() as stack:
        layers = await _layers(stack, arguments)
        last = list(layers)[-1]
        for number in range(arguments.rounds + 1):
            bodies = [reservation(f"round{number}", each) for each in range(arguments.count)]
            for name, drive in layers.items():
                with shares.taken() if shares is not None and number and name == last else nullcontext():
                    seconds = await drive(bodies)
                if number:
                    micros.setdefault(name, []).append(seconds / len(bodies) * 1e6)
    return micros


@contextmanager
def _logging_to_a_file() -> Iterator[None]:
    """Lines are rendered and written, as they are in service."""
    with TemporaryFile() as file, io.TextIOWrapper(file, line_buffering=True) as lines, redirect_stderr(lines):
        configure_logging("info", "json")
        yield


def main() -> None:
    """Measure, and print a line for each layer; with `--json`, all figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost_of_accept")
    parser.add_argument("-n", dest="count", type=int, default=4_000, help="reservations a round")
    parser.add_argument("-c", dest="connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bulk", type=int, default=500, help="reservations in one bulk")
    parser.add_argument("--kafka", metavar="HOST:PORT")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--shares", action="store_true", help="of the last layer, by part of the work")
    parser.add_argument("layers", nargs="*", help="only these; all where none is named")
    arguments = parser.parse_args()
    with _logging_to_a_file():
        shares = Shares(ACCEPT) if arguments.shares else None
        micros = uvloop.run(_measure(arguments, shares))
    if arguments.json:
        print(json.dumps(micros))
        return
    for name, figures in micros.items():
        least, most = min(figures), max(figures)
        print(f"{name:12} {statistics.median(figures):8.1f} µs of CPU a reservation  ({least:.1f} to {most:.1f})")
    if shares is not None:
        for part, each in shares.of(statistics.median(list(micros.values())[-1])).items():
            print(f"  {part:40} {each:6.1f}")


if __name__ == "__main__":
    main()

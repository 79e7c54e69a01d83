"""A workspace that is hostile in each way known, and another that submits and reads meanwhile, over one server's port.

The hostile one has an ordinary key. `Victim.run` counts how the other is answered, and how fast. Used by the fairness test, which
looks at counts, and by `python -m bench.fairness`, which prints times.
"""

import asyncio
import json
import random
import string
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

from forwarder.ingress.message import IngressSettings
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import StoredSubmission
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import (
    BOOKING_ENGINE_PATH,
    BULK_PATH,
    GENERAL_PATH,
    HEADERS,
    OTHER_WORKSPACE,
    Stages,
)

SETTINGS: Final = IngressSettings(body_seconds=2.0)
LIST_PATH: Final = "/api/v1/vrs/reservations?limit=200"
_BULK_BYTES: Final = 8 * 1024 * 1024
_LARGE_RECORD: Final = 100_000
_BAD: Final = {**HEADERS, "Authorization": "Bearer fwd_live_nobody"}


def _new_name() -> str:
    """One that no other has, and without digits, which might be taken for a card's."""
    return "".join(random.choices(string.ascii_lowercase, k=20))


def fill(house: Stages) -> None:
    """Twenty large records of the hostile workspace, two pages of them, and twenty small ones of the other."""
    for account, first, size in (("alpha-1", 1, _LARGE_RECORD), ("beta-1", 21, 100)):
        for number in range(first, first + 20):
            record = {**GENERAL, "id": number, "status": "CONFIRMED", "notes": "n" * size}
            moment = "2027-01-01T00:00:00.000Z"
            stored = StoredSubmission(
                number, f"rsv_{number}", Status.CONFIRMED, moment, moment, "", json.dumps(record), (), None, "1"
            )
            house.reader.put(account, stored)


def message(
    method: str, path: str, headers: Mapping[str, str], body: bytes = b"", *, length: int | None = None
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *(f"{name}: {text}" for name, text in headers.items())]
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join((*lines, "", "")).encode() + body


class Connection:
    """One client's, which may read slowly, or not at all."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port, limit=64 * 1024)
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self.writer.transport.abort()

    async def ask(self, request: bytes) -> int:
        """The status of the answer, which is read whole."""
        self.writer.write(request)
        await self.writer.drain()
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        await self.reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0))
        return int(head.split()[1])


Attack = Callable[[int, int], Awaitable[None]]
"""One hostile connection to this port, the so-manieth; it ends at any time, and is begun again."""


async def slow_bodies(port: int, _number: int) -> None:
    async with Connection(port) as one:
        one.writer.write(message("POST", BULK_PATH, HEADERS, b"[", length=_BULK_BYTES))
        while not one.reader.at_eof():
            one.writer.write(b" ")
            with suppress(TimeoutError):
                await asyncio.wait_for(one.reader.read(100), 0.2)


async def stalled_large_bodies(port: int, _number: int) -> None:
    """All but the last bytes of the longest bulk are sent."""
    async with Connection(port) as one:
        one.writer.write(message("POST", BULK_PATH, HEADERS, b"[" + b" " * (_BULK_BYTES - 100), length=_BULK_BYTES))
        await one.reader.read()


async def waiting_submissions(port: int, _number: int) -> None:
    body = json.dumps({**GENERAL, "roomId": _new_name()}).encode()
    async with Connection(port) as one:
        await one.ask(
            message("POST", GENERAL_PATH, {**HEADERS, "Prefer": "wait=60"}, body + b" " * (65_536 - len(body)))
        )


async def slow_page_readers(port: int, _number: int) -> None:
    async with Connection(port) as one:
        for _ in range(300):  # some are refused, while others have the workspace's share
            one.writer.write(message("GET", LIST_PATH, HEADERS))
            await asyncio.sleep(0.2)


async def bulks(port: int, _number: int) -> None:
    names = (_new_name() for _ in range(400))
    reservations = ({**BOOKING_ENGINE, "roomId": name, "transactionId": name} for name in names)
    items = [{"operation": "booking-engine", "reservation": each} for each in reservations]
    async with Connection(port) as one:
        await one.ask(message("POST", BULK_PATH, HEADERS, json.dumps(items).encode()))


async def bad_tokens(port: int, _number: int) -> None:
    async with Connection(port) as one:
        for _ in range(50):
            await one.ask(message("POST", GENERAL_PATH, _BAD, b"{}"))


async def pipelined_requests(port: int, _number: int) -> None:
    async with Connection(port) as one:
        one.writer.write(message("GET", LIST_PATH, HEADERS) * 2_000)
        await asyncio.sleep(60)


ATTACKS: Final[Mapping[str, tuple[Attack, int]]] = {
    "slow bodies": (slow_bodies, 50),
    "stalled large bodies": (stalled_large_bodies, 8),
    "waiting submissions": (waiting_submissions, 300),
    "slow readers of pages": (slow_page_readers, 60),
    "bulks": (bulks, 12),
    "bad tokens": (bad_tokens, 16),
    "pipelined requests": (pipelined_requests, 4),
}
"""Each, and over how many connections at once."""


async def attack(port: int, *names: str, one_in: int = 1) -> None:
    """Go on with these, until cancelled; over one in so many of the connections."""

    async def again(one: Attack, number: int) -> None:
        while True:
            with suppress(OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError):
                await one(port, number)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for name in names:
            one, count = ATTACKS[name]
            for number in range(max(count // one_in, 1)):
                group.create_task(again(one, number))


@dataclass
class Victim:
    """Submits, reads a page and long-polls over a few connections, in turn."""

    port: int
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    async def run(self, rounds: int, connections: int = 4) -> None:
        await asyncio.gather(*(self._run(rounds) for _ in range(connections)))

    async def _run(self, rounds: int) -> None:
        async with Connection(self.port) as one:
            for _ in range(rounds):
                name = _new_name()
                body = json.dumps({**BOOKING_ENGINE, "roomId": name, "transactionId": name}).encode()
                await self._ask(one, "submit", message("POST", BOOKING_ENGINE_PATH, OTHER_WORKSPACE, body))
                await self._ask(one, "page", message("GET", LIST_PATH, OTHER_WORKSPACE))
                await self._ask(one, "health", message("GET", "/healthz", {}))

    async def _ask(self, one: Connection, what: str, request: bytes) -> None:
        began = time.perf_counter()
        self.statuses[f"{what} {await one.ask(request)}"] += 1
        self.seconds.append(time.perf_counter() - began)

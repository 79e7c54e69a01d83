"""A customer's endpoint: takes what is posted to it over real HTTP, and answers as it is told to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support.network.raw_server import Caller, raw_server

_PATIENCE_SECONDS = 90.0


@dataclass(slots=True)
class Received:
    """One post, as it came. Header names are in lower case."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass(slots=True)
class Receiver:
    """Where it is, and what it took. It answers with `status` once `answering` is set; until then a post is in `begun` alone."""

    url: str = ""
    status: int = 204
    begun: list[Received] = field(default_factory=list)
    answered: list[Received] = field(default_factory=list)
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def serve(self, caller: Caller) -> None:
        """One connection."""
        while True:
            received = _parsed(await caller.request())
            self.begun.append(received)
            await self._tell()
            await self.answering.wait()
            await caller.say(b"HTTP/1.1 %d -\r\nContent-Length: 0\r\n\r\n" % self.status)
            self.answered.append(received)
            await self._tell()

    async def has_begun(self, *ids: str) -> None:
        """Return once each was posted."""
        await self._wait_for(lambda: set(ids) <= {one.id for one in self.begun})

    async def has_begun_any(self, ids: set[str]) -> None:
        """Return once any of them was posted."""
        await self._wait_for(lambda: any(one.id in ids for one in self.begun))

    async def has_begun_one(self, prefix: str) -> None:
        """Return once one whose id begins so was posted."""
        await self._wait_for(lambda: any(one.id.startswith(prefix) for one in self.begun))

    async def has_answered(self, *ids: str) -> None:
        """Return once each was answered."""
        await self._wait_for(lambda: set(ids) <= {one.id for one in self.answered})

    async def _wait_for(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(reached)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def receiver(*, status: int = 204, answering: bool = True) -> AsyncIterator[Receiver]:
    """One on a free port of loopback."""
    made = Receiver(status=status)
    if answering:
        made.answering.set()
    async with raw_server(made.serve) as server:
        made.url = server.url + "/hook"
        yield made


def _parsed(request: bytes) -> Received:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line.decode().partition(": ") for line in head.split(b"\r\n")[1:]]
    return Received({name.lower(): value for name, _, value in lines}, body)

"""A proxy that loses answers: the request went through, and the connection ends without a byte."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.support.network.raw_server import Caller, raw_server


class LosingProxy:
    """Passes requests on to the servers of their method, to each in turn, and loses every third answer. `answers`: the bodies of
    all of them by method, those included that nobody saw, of which there are `lost`."""

    def __init__(self, servers: Mapping[str, Sequence[str]]) -> None:
        self.url = ""
        self.answers: dict[str, list[bytes]] = {method: [] for method in servers}
        self.lost = 0
        self._numbers = itertools.count(1)
        self._servers = {method: itertools.cycle(map(urlsplit, urls)) for method, urls in servers.items()}
        self._answered = asyncio.Condition()

    async def has_answered(self, method: str, count: int) -> None:
        """Return once so many requests were answered."""
        async with self._answered:
            await self._answered.wait_for(lambda: len(self.answers[method]) >= count)

    async def serve(self, caller: Caller) -> None:
        """One connection, until an answer is lost on it."""
        while True:
            request = await caller.request()
            method = request.partition(b" ")[0].decode()
            answer = await self._ask(method, request)
            async with self._answered:
                self.answers[method].append(answer.partition(b"\r\n\r\n")[2])
                self._answered.notify_all()
            if next(self._numbers) % 3 == 0:
                self.lost += 1
                return
            await caller.say(answer)

    async def _ask(self, method: str, request: bytes) -> bytes:
        server = next(self._servers[method])
        reader, writer = await asyncio.open_connection(server.hostname, server.port)
        try:
            answering = Caller(reader, writer)
            await answering.say(request)
            return await answering.request()  # an answer has a head and a length as a request has
        finally:
            writer.close()


@asynccontextmanager
async def losing_proxy(servers: Mapping[str, Sequence[str]]) -> AsyncIterator[LosingProxy]:
    """One on a free port of loopback. `servers`: method → where requests with it go."""
    proxy = LosingProxy(servers)
    async with raw_server(proxy.serve) as server:
        proxy.url = server.url
        yield proxy

"""What carries a request to a PMS and brings the whole answer in time: the transport of production, or any other of httpx, watched.

Private to the seam.
"""

import asyncio
from abc import abstractmethod

import httpx

from forwarder.pms.http.connection import Held


class PunctualTransport(httpx.AsyncBaseTransport):
    """A transport that keeps the time it is given by itself. To watch over one that does costs more CPU than to build a request."""

    @abstractmethod
    async def exchange(self, request: httpx.Request, until: float, held: Held | None = None) -> httpx.Response:
        """As `handle_async_request`: the answer, with its body in memory, by `until` of the loop's clock or a moment after it, or
        else `httpx.TimeoutException`. `held` is asked in the step that sends; where it says no, `NotHeld` is raised."""


class Watched(PunctualTransport):
    """Any transport: told its time, so that nothing of it goes on unseen, and not relied on to keep it."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._transport.handle_async_request(request)

    async def exchange(self, request: httpx.Request, until: float, held: Held | None = None) -> httpx.Response:
        """Raises `TimeoutError` as well."""
        left = until - asyncio.get_running_loop().time()
        request.extensions["timeout"] = {"connect": left, "read": left, "write": left, "pool": left}
        request.extensions["held"] = held
        async with asyncio.timeout_at(until):
            response = await self._transport.handle_async_request(request)
            await response.aread()
        return response


def punctual(transport: httpx.AsyncBaseTransport) -> PunctualTransport:
    """`transport`, watched unless it keeps its time."""
    return transport if isinstance(transport, PunctualTransport) else Watched(transport)

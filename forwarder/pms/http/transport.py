"""The transport of production: httpx's interface over connections of the event loop, in its own thread.

What is to be relied on: an error that says that nothing was sent (`ConnectError`, `ConnectTimeout`, `PoolTimeout`,
`UnsupportedProtocol`) is raised only when that is certain. After the first byte was written all is in doubt: `ReadError`,
`ReadTimeout`, `RemoteProtocolError`. No request is sent a second time, and no other connection tried.

`extensions["held"]` of a request, a `Held`, is asked when the connection stands, in the very step of the event loop that then hands
the request to the system: nothing else that the loop has to do comes between the two. Where it says no, `NotHeld` is raised.

Follows no redirect, keeps no cookie, uses no proxy of the environment, and reads no more of an answer than its limit.
"""

import asyncio
import ssl
from typing import Final

import httpx

from forwarder.pms.http.client import MAX_RESPONSE_BYTES
from forwarder.pms.http.connection import Held
from forwarder.pms.http.exchange import PunctualTransport
from forwarder.pms.http.pool import Pool, PoolLimits
from forwarder.pms.http.request import PlainRequest, destination_of, encoded

__all__ = ["HttpTransport", "PoolLimits"]

_DEFAULT_SECONDS: Final = 30.0


class HttpTransport(PunctualTransport):
    """Sends requests; the whole of an answer is in memory when it is returned. `aclose` it in the end: it leaves nothing open.

    Belongs to the event loop of its first request. `trusted`: whose certificates are believed; the system's, unless given.
    """

    def __init__(self, connections: PoolLimits, trusted: ssl.SSLContext | None = None) -> None:
        self._pool = Pool(connections, MAX_RESPONSE_BYTES, trusted)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises `httpx.TransportError` and its kin. The time that `request` allows for reading is that of the whole exchange.

        Cancelling it ends its connection, and nothing of it goes on; what was written by then may reach the PMS all the same.
        """
        until = asyncio.get_running_loop().time() + _seconds_for(request)
        return await self.exchange(request, until, request.extensions.get("held"))

    async def exchange(self, request: httpx.Request, until: float, held: Held | None = None) -> httpx.Response:
        destination = request.destination if isinstance(request, PlainRequest) else destination_of(request.url)
        # What is in memory is taken as it is: httpx would go through it by an asynchronous generator, for 10 µs.
        body = request.whole_body if isinstance(request, PlainRequest) else None
        content = encoded(request, destination, await _read(request, until) if body is None else body)
        origin = destination.origin
        connection = self._pool.kept(origin) or await self._pool.obtained(origin, until)
        try:
            return await connection.exchange(content, until, held=held, bodiless=request.method == "HEAD")
        finally:
            self._pool.give_back(connection)

    async def aclose(self) -> None:
        await self._pool.aclose()


async def _read(request: httpx.Request, until: float) -> bytes:
    """What `request` carries."""
    stream = request.stream
    if isinstance(stream, httpx.ByteStream):
        return b"".join(stream)
    try:
        async with asyncio.timeout_at(until):
            return await request.aread()
    except TimeoutError as error:
        raise httpx.WriteTimeout("the request was not whole in time") from error


def _seconds_for(request: httpx.Request) -> float:
    seconds = request.extensions.get("timeout", {}).get("read")
    return _DEFAULT_SECONDS if seconds is None else max(float(seconds), 0.001)

"""A PMS behind any transport of httpx: a test's table of responses, or a simulator within the process."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

import httpx

from forwarder.pms.http.client import Held, Request, Reuse
from forwarder.pms.http.connections import ConnectionPool, PoolLimits
from forwarder.pms.http.response import (
    NoResponse,
    NotSent,
    Response,
    broke_protocol,
    connection_lost,
    invalid_address,
    unreachable,
)
from forwarder.pms.port import LEASE_LOST

Handler = Callable[[httpx.Request], httpx.Response] | Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]


class HttpxTransport:
    """A `Transport` over one of httpx's."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def exchange(
        self, request: Request, deadline: float, held: Held | None = None, reuse: Reuse | None = None
    ) -> Response:
        if held is not None and not held():
            raise NotSent(LEASE_LOST, "It was held no longer when this was to be sent.")
        try:
            async with asyncio.timeout_at(deadline):
                response = await self._transport.handle_async_request(_of_httpx(request))
                content = await response.aread()
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise failure_of(error) from error
        return Response(response.status_code, response.headers.raw, content)

    async def aclose(self) -> None:
        await self._transport.aclose()


def replying(handler: Handler) -> HttpxTransport:
    """A PMS that answers by `handler`."""
    return HttpxTransport(httpx.MockTransport(handler))


def in_process(app: Callable[..., Awaitable[None]]) -> HttpxTransport:
    """A PMS that is an ASGI application."""
    return HttpxTransport(httpx.ASGITransport(app))


def _of_httpx(request: Request) -> httpx.Request:
    url = httpx.URL(request.url)
    if request.query:
        url = url.copy_with(query=request.query.encode("ascii"))
    return httpx.Request(request.method, url, headers=[*request.headers], stream=httpx.ByteStream(request.content))


def failure_of(error: Exception) -> NotSent | NoResponse:
    """What httpx's errors say. Whatever is not known to have come before the first byte is a `NoResponse`."""
    match error:
        case httpx.ConnectTimeout():
            return NotSent("pms_connect_timed_out", "The PMS did not take the connection in time.", passing=True)
        case httpx.PoolTimeout():
            return NotSent("no_connection_free", "All connections to PMSs were in use.", passing=True)
        case httpx.ConnectError():
            return unreachable(str(error))
        case httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return invalid_address("The account's base URL is not an http or https address.")
        case httpx.TimeoutException() | TimeoutError():
            return NoResponse("pms_timed_out", "The PMS was sent the request and did not answer in time.")
        case httpx.DecodingError() | httpx.ProtocolError():
            return broke_protocol(str(error))
        case _:
            return connection_lost(str(error))


class PooledTransport(httpx.AsyncBaseTransport):
    """The other way about: httpx's client over the connections that PMSs are spoken to by, which cost less CPU than its own."""

    def __init__(self, limits: PoolLimits) -> None:
        self._pool = ConnectionPool(limits)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        seconds = request.extensions["timeout"]["read"]
        deadline = asyncio.get_running_loop().time() + seconds
        ours = Request(request.method, str(request.url), request.headers.raw, await request.aread())
        try:
            response = await self._pool.exchange(ours, deadline)
        except NotSent as error:
            raise httpx.ConnectError(error.detail) from error
        except NoResponse as error:
            raise httpx.ReadError(error.detail) from error
        return httpx.Response(response.status_code, headers=[*response.headers], content=response.content)

    async def aclose(self) -> None:
        await self._pool.aclose()

"""The transport of production: httpx's interface over pyreqwest, whose work is done outside of Python.

What is to be relied on: an error that says that nothing was sent (`ConnectError`, `ConnectTimeout`, `PoolTimeout`,
`UnsupportedProtocol`) is raised only when that is certain. pyreqwest's own classes cannot be taken for it: it calls a connection
that was reset after the request, and an answer that did not come in time, errors of connecting too. Hence the look at causes.

Follows no redirect, keeps no cookie, uses no proxy of the environment, and reads no more of an answer than its limit.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import certifi
import httpx
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import (
    BuilderError,
    DecodeError,
    DetailedPyreqwestError,
    PoolTimeoutError,
    PyreqwestError,
    RequestTimeoutError,
)
from pyreqwest.request import RequestBuilder
from pyreqwest.response import Response

from forwarder.pms.wire import MAX_ANSWER_BYTES

_CONNECTING: Final = "client error (Connect)"
"""What reqwest's connector, and nothing that runs after it, puts into the causes of its errors."""
_DEFAULT_SECONDS: Final = 30.0
_DEFAULT_HEADERS = {"User-Agent": "reservation-forwarder"}


@dataclass(frozen=True, slots=True)
class Connections:
    """`at_most`: connections in use at once, of all PMSs; `pool_seconds`: how long to wait for one.

    `idle_per_pms` are kept open, for `idle_seconds`: less than the 5 s after which common servers close theirs, so that a
    request seldom meets a connection that is just being closed, which would leave it in doubt.
    """

    at_most: int = 2048
    pool_seconds: float = 2.0
    connect_seconds: float = 5.0
    idle_per_pms: int = 64
    idle_seconds: float = 4.0


class RustTransport(httpx.AsyncBaseTransport):
    """Sends requests; the whole of an answer is in memory when it is returned. `aclose` it in the end."""

    def __init__(self, connections: Connections) -> None:
        self._client = _client(connections)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises `httpx.TransportError` and its kin. The time that `request` allows for reading is that of the whole exchange.

        Cancelling it does not call the exchange back: pyreqwest goes on with it unseen, and it may even be sent only then, but
        all of it is over when its time is.
        """
        builder = await self._prepared(request)
        try:
            async with builder.build_streamed() as response:
                return _as_httpx(response, await _read(response))
        except PyreqwestError as error:
            raise _translated(error) from error

    async def aclose(self) -> None:
        await self._client.close()

    async def _prepared(self, request: httpx.Request) -> RequestBuilder:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        content = await _content(request)
        try:
            builder = (
                self._client.request(request.method, str(request.url)).headers(headers).timeout(_time_for(request))
            )
            return builder.body_bytes(content) if content else builder
        except ValueError as error:
            # Nothing of the address may go into the message: it may hold a password.
            raise httpx.UnsupportedProtocol("not an address that HTTP can be spoken to") from error


async def _content(request: httpx.Request) -> bytes:
    """What it carries. What is in memory is taken as it is: httpx would go through it by an asynchronous generator, for 10 µs."""
    stream = request.stream
    return b"".join(stream) if isinstance(stream, httpx.ByteStream) else await request.aread()


def _client(connections: Connections) -> Client:
    try:
        return _builder(connections).build()
    except BuilderError:
        # A machine without certificates of its own, such as a bare container: then those that httpx goes by.
        return _builder(connections).add_root_certificate_pem(Path(certifi.where()).read_bytes()).build()


def _builder(connections: Connections) -> ClientBuilder:
    return (
        ClientBuilder()
        .default_headers(_DEFAULT_HEADERS)
        .follow_redirects(enable=False)
        .no_proxy()
        .max_connections(connections.at_most)
        .pool_timeout(timedelta(seconds=connections.pool_seconds))
        .connect_timeout(timedelta(seconds=connections.connect_seconds))
        .pool_max_idle_per_host(connections.idle_per_pms)
        .pool_idle_timeout(timedelta(seconds=connections.idle_seconds))
    )


def _time_for(request: httpx.Request) -> timedelta:
    seconds = request.extensions.get("timeout", {}).get("read")
    return timedelta(seconds=_DEFAULT_SECONDS if seconds is None else max(seconds, 0.001))


async def _read(response: Response) -> bytes:
    """The body. A length that is announced is kept by the peer, or reading fails; without one, what comes is counted."""
    announced = response.get_header("content-length")
    if announced is not None and announced.isdigit():
        if int(announced) > MAX_ANSWER_BYTES:
            raise httpx.ReadError(f"an answer of {announced} bytes")
        return bytes(await response.bytes())
    chunks, size = [], 0
    while (chunk := await response.body_reader.read_chunk()) is not None:
        chunks.append(bytes(chunk))
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise httpx.ReadError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
    return b"".join(chunks)


def _as_httpx(response: Response, content: bytes) -> httpx.Response:
    try:
        headers = list(response.headers.items())
    except ValueError as error:
        raise httpx.RemoteProtocolError("a header that is not text") from error
    return _WholeResponse(response.status, headers, content)


class _WholeResponse(httpx.Response):
    """A response whose body is there, and decoded, from the start: httpx's own reading of it would cost 10 µs of CPU."""

    def __init__(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        super().__init__(status, headers=headers, stream=httpx.ByteStream(content))
        self._whole = content

    @property
    def content(self) -> bytes:
        return self._whole

    def read(self) -> bytes:
        return self._whole

    async def aread(self) -> bytes:
        return self._whole


def _translated(error: PyreqwestError) -> httpx.TransportError:
    """The error of httpx for one of pyreqwest's. Its message is the innermost cause, since the outer ones quote the address."""
    causes = _causes(error)
    message = causes[-1] if causes else error.message
    match error:
        case BuilderError():
            return httpx.UnsupportedProtocol(message)
        case PoolTimeoutError():
            return httpx.PoolTimeout(message)
        case RequestTimeoutError() if _CONNECTING in causes:
            return httpx.ConnectTimeout(message)
        case _ if _CONNECTING in causes:
            return httpx.ConnectError(message)
        case RequestTimeoutError():
            return httpx.ReadTimeout(message)
        case DecodeError():
            return httpx.RemoteProtocolError(message)
        case _:
            return httpx.ReadError(message)


def _causes(error: PyreqwestError) -> list[str]:
    """What each error of the chain says, outermost first."""
    details = error.details if isinstance(error, DetailedPyreqwestError) else None
    causes = None if details is None else details["causes"]
    return [cause["message"] for cause in causes or ()]

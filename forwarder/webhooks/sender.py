"""Posts to customers' endpoints: HTTP/1.1 with httpcore, because it lets us open the connections ourselves.

A host name is resolved once, its addresses are checked, and the connection goes to a checked address: a later DNS response cannot
lead elsewhere. TLS still verifies the name. No redirect is followed, no cookie is kept. Only the first KiB of a response is read.
With a proxy, which resolves the names itself, only addresses that are written as such are checked.

`TracedSender` records each post as a span."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import certifi
import httpcore

from forwarder.http.parameters import read_retry_after
from forwarder.observability import tracing
from forwarder.observability.tracing import Kind, Tracer
from forwarder.process.clock import Clock
from forwarder.reservation.checks.card_numbers import mask
from forwarder.webhooks.addresses import PORTS, AddressRule, Resolve, Resolver
from forwarder.webhooks.port import EndpointResponse, NoResponse, PostResult, Sender

_MAX_READ: Final = 1024
_MAX_EXCERPT: Final = 200
_CONNECTIONS: Final = 1024
_IDLE: Final = 128
_IDLE_SECONDS: Final = 4.0
"""Less than the 5 s after which common servers close idle connections."""
_CONNECT_SECONDS: Final = 10.0
_MAX_ADDRESSES: Final = 3
_OK = range(200, 300)
_FAILURES = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpcore.ProxyError, OSError)
_FAILED: Final = 400


class _AddressRefused(httpcore.ConnectError):
    """No address of the host may be connected to."""


class _HostUnknown(httpcore.ConnectError):
    """The host name does not resolve."""


class HttpSender:
    """`Sender` with a time limit of `seconds` for each post. Opened by `open_sender`."""

    def __init__(
        self,
        pools: Mapping[str, httpcore.AsyncConnectionPool],
        clock: Clock,
        *,
        seconds: float,
        rule: AddressRule | None = None,
    ) -> None:
        """`rule`: checked here for addresses that are written as such, if the pools do not check any."""
        self._rule, self._pools, self._clock, self._seconds = rule, pools, clock, seconds

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._exchange(url, headers, body)
        except TimeoutError:
            return NoResponse("timed_out", f"No complete response within {self._seconds:g} s.")
        except _FAILURES as error:
            return _no_response(error)
        except (httpcore.UnsupportedProtocol, KeyError, ValueError):
            return NoResponse("address_invalid", "Not an address that HTTP can be spoken to.")

    async def _exchange(self, url: str, headers: Mapping[str, str], body: bytes) -> EndpointResponse:
        address = httpcore.URL(url)
        if self._rule is not None:
            scheme, host = address.scheme.decode(), address.host.decode().strip("[]")
            try:
                allowed = self._rule.allows(scheme, host)
            except ValueError:  # a name, which the proxy resolves
                allowed = self._rule.may_allow(scheme)
            if not allowed:
                raise _AddressRefused(f"{host} is not an address of the public internet")
        timeouts = {"connect": _CONNECT_SECONDS, "pool": self._seconds}
        async with self._pools[address.scheme.decode()].stream(
            "POST", address, headers=list(headers.items()), content=body, extensions={"timeout": timeouts}
        ) as response:
            # If the body is not read to its end, the connection is closed.
            beginning = b""
            async for chunk in response.aiter_stream():
                beginning += chunk
                if len(beginning) >= _MAX_READ:
                    break
        value = next((each for name, each in response.headers if name.lower() == b"retry-after"), None)
        retry_after = None if value is None else read_retry_after(value.decode("latin-1"), self._clock.now())
        excerpt = ""
        if response.status not in _OK:
            text = beginning[:_MAX_READ].decode("utf-8", "replace")
            printable = "".join(character if character.isprintable() else " " for character in text)
            excerpt = mask(" ".join(printable.split()))[:_MAX_EXCERPT]
        return EndpointResponse(response.status, retry_after, excerpt)


@asynccontextmanager
async def open_sender(
    rule: AddressRule,
    clock: Clock,
    *,
    seconds: float,
    find: Resolve | None = None,
    trusted: ssl.SSLContext | None = None,
    proxy: str | None = None,
) -> AsyncIterator[HttpSender]:
    """Connects only to what `rule` allows. `trusted`: the trusted certificates, by default Mozilla's. `proxy`: its URL."""
    pool: dict[str, Any] = {"ssl_context": trusted or ssl.create_default_context(cafile=certifi.where())}
    pool |= {"max_connections": _CONNECTIONS, "max_keepalive_connections": _IDLE, "keepalive_expiry": _IDLE_SECONDS}
    pools: dict[str, httpcore.AsyncConnectionPool] = {}
    if proxy is None:
        resolve = find or Resolver()
        for scheme in ("http", "https"):
            guarded = _GuardedBackend(scheme, rule, resolve)
            pools[scheme] = httpcore.AsyncConnectionPool(**pool, network_backend=guarded)
    else:
        parts = urlsplit(proxy)
        named = parts.username is not None
        through = httpcore.AsyncHTTPProxy(
            proxy_url=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
            proxy_auth=(unquote(parts.username or ""), unquote(parts.password or "")) if named else None,
            **pool,
        )
        pools = dict.fromkeys(("http", "https"), through)
    try:
        yield HttpSender(pools, clock, seconds=seconds, rule=None if proxy is None else rule)
    finally:
        for each in set(pools.values()):
            await each.aclose()


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to allowed addresses only."""

    def __init__(self, scheme: str, rule: AddressRule, find: Resolve) -> None:
        self._scheme, self._rule, self._find = scheme, rule, find
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failed: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        try:
            found = await self._find(host, port)
        except OSError as error:
            raise _HostUnknown(f"the name {host} leads to no address") from error
        allowed = [address for address in found if self._rule.allows(self._scheme, address)]
        for address in allowed[:_MAX_ADDRESSES]:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed or _AddressRefused(f"{host} does not lead to an address of the public internet")


def _no_response(error: Exception) -> NoResponse:
    """The class of a failure, from httpcore's error and its causes. The detail quotes no path of a URL."""
    detail = mask(str(error))[:_MAX_EXCERPT]
    match error:
        case _AddressRefused():
            return NoResponse("address_refused", detail)
        case _HostUnknown():
            return NoResponse("host_unknown", detail)
        case httpcore.ConnectError() if any(isinstance(cause, ssl.SSLError) for cause in _causes(error)):
            return NoResponse("tls_failed", detail)
        case httpcore.ConnectTimeout():
            return NoResponse("connect_timed_out", "The connection was not accepted in time.")
        case httpcore.ConnectError():
            return NoResponse("connect_failed", detail)
        case httpcore.ProxyError():
            return NoResponse("connect_failed", f"The proxy refused: {detail}")
        case httpcore.TimeoutException():
            return NoResponse("timed_out", "No complete response in time.")
        case httpcore.ProtocolError():
            return NoResponse("not_http", detail)
        case _:
            return NoResponse("connection_lost", detail)


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class TracedSender:
    """`sender`, with a span for each post, a part of the trace in its `traceparent`."""

    def __init__(self, sender: Sender, tracer: Tracer) -> None:
        self._sender, self._tracer = sender, tracer

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        parent = tracing.read_trace(headers.get(tracing.TRACEPARENT), headers.get(tracing.TRACESTATE))
        event_id = headers.get("webhook-id", "")
        named = {"forwarder.event_id": event_id} if tracing.OUR_ID.fullmatch(event_id) else {}
        span = self._tracer.start("POST", Kind.CLIENT, parent, {**_address(url), **named})
        with tracing.ending(span):
            result = await self._sender.post(url, {**headers, **dict(tracing.trace_headers(span.trace))}, body)
            if not isinstance(result, EndpointResponse):
                span.fail(result.failure)
                return result
            span.note({"http.response.status_code": result.status})
            if result.status >= _FAILED:
                span.fail(str(result.status))
            return result


def _address(url: str) -> dict[str, str | int]:
    """Span attributes of the host only: the rest of a webhook's URL is often secret."""
    method: dict[str, str | int] = {"http.request.method": "POST"}
    try:
        parsed = urlsplit(url)
        port = parsed.port or PORTS[parsed.scheme]
    except (KeyError, ValueError):  # `sender` refuses it
        return method
    return {**method, "server.address": parsed.hostname or "", "server.port": port, "url.scheme": parsed.scheme}

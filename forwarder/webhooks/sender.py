"""Posts to customers' endpoints: HTTP/1.1 with httpcore, because it lets us open the connections ourselves.

A host name is resolved once, its addresses are checked, and the connection goes to a checked address: a later DNS response cannot
lead elsewhere. TLS still verifies the name. No redirect is followed, no cookie is kept. Only the first KiB of a response is read.
With a proxy, which resolves the names itself, only addresses that are written as such are checked."""

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
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
from forwarder.webhooks.port import EndpointResponse, PostResult, Sender, Unanswered

_MAX_READ: Final = 1024
_MAX_EXCERPT: Final = 200


class _AddressRefused(httpcore.ConnectError):
    """No address of the host may be connected to."""


class _HostUnknown(httpcore.ConnectError):
    """The host name does not resolve."""


# Each failure's class is that of the first of these that it is; the braces are for the error's own words.
_FAILURES: Final[Sequence[tuple[type[Exception], str, str]]] = (
    (_AddressRefused, "address_refused", "{}"),
    (_HostUnknown, "host_unknown", "{}"),
    (httpcore.ConnectTimeout, "connect_timed_out", "The connection was not accepted in time."),
    (httpcore.ConnectError, "connect_failed", "{}"),
    (httpcore.ProxyError, "connect_failed", "The proxy refused: {}"),
    (httpcore.TimeoutException, "timed_out", "No complete response in time."),
    (httpcore.ProtocolError, "not_http", "{}"),
    (httpcore.NetworkError, "connection_lost", "{}"),
    (OSError, "connection_lost", "{}"),
)


class HttpSender:
    """`Sender` with a time limit of `seconds` for each post. `aclose` it in the end.

    Connects only to what `rule` allows. `trusted`: the trusted certificates, by default Mozilla's. `proxy`: its URL."""

    def __init__(
        self,
        rule: AddressRule,
        clock: Clock,
        *,
        seconds: float,
        find: Resolve | None = None,
        trusted: ssl.SSLContext | None = None,
        proxy: str | None = None,
    ) -> None:
        self._rule = None if proxy is None else rule  # else the connections are checked
        self._clock, self._seconds = clock, seconds
        pool: dict[str, Any] = {"ssl_context": trusted or ssl.create_default_context(cafile=certifi.where())}
        # Idle for less than the 5 s after which common servers close connections.
        pool |= {"max_connections": 1024, "max_keepalive_connections": 128, "keepalive_expiry": 4.0}
        if proxy is None:
            resolve = find or Resolver()
            self._pools = {
                scheme: httpcore.AsyncConnectionPool(**pool, network_backend=_GuardedBackend(scheme, rule, resolve))
                for scheme in ("http", "https")
            }
            return
        parts = urlsplit(proxy)
        named = parts.username is not None
        through: httpcore.AsyncConnectionPool = httpcore.AsyncHTTPProxy(
            proxy_url=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
            proxy_auth=(unquote(parts.username or ""), unquote(parts.password or "")) if named else None,
            **pool,
        )
        self._pools = dict.fromkeys(("http", "https"), through)

    async def aclose(self) -> None:
        for each in set(self._pools.values()):
            await each.aclose()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._exchange(url, headers, body)
        except TimeoutError:
            return Unanswered("timed_out", f"No complete response within {self._seconds:g} s.")
        except tuple(kind for kind, _, _ in _FAILURES) as error:
            return _no_response(error)
        except (httpcore.UnsupportedProtocol, KeyError, ValueError):
            return Unanswered("address_invalid", "Not an address that HTTP can be spoken to.")

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
        timeouts = {"connect": 10.0, "pool": self._seconds}
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
        if not 200 <= response.status < 300:  # noqa: PLR2004
            text = beginning[:_MAX_READ].decode("utf-8", "replace")
            printable = "".join(character if character.isprintable() else " " for character in text)
            excerpt = mask(" ".join(printable.split()))[:_MAX_EXCERPT]
        return EndpointResponse(response.status, retry_after, excerpt)


class _GuardedBackend(httpcore.AsyncNetworkBackend):
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
        for address in allowed[:3]:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed or _AddressRefused(f"{host} does not lead to an address of the public internet")


def _no_response(error: Exception) -> Unanswered:
    """The class of a failure, from httpcore's error and its causes. The detail quotes no path of a URL."""
    detail = mask(str(error))[:_MAX_EXCERPT]
    if isinstance(error, httpcore.ConnectError) and any(isinstance(each, ssl.SSLError) for each in _causes(error)):
        return Unanswered("tls_failed", detail)
    failure, says = next((failure, says) for kind, failure, says in _FAILURES if isinstance(error, kind))
    return Unanswered(failure, says.format(detail))


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
            if result.status >= 400:  # noqa: PLR2004
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

"""Requests to a PMS: the bytes that each is on a connection, and those of one push together: within the push time-out, at the
account's pace, and tried again only where surely nothing was sent.

What HTTP cannot carry is refused with `NotSent` (`pms_address_invalid`), before anything is connected to."""

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from random import SystemRandom
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, unquote_to_bytes

import httpx

from forwarder.observability.tracing import TRACEPARENT, Kind, Tracer, trace_headers
from forwarder.pms.http.response import Headers, NoResponse, NotSent, Response, hold_off_asked, invalid_address
from forwarder.pms.port import UNPACED, Pace
from forwarder.process.clock import Clock
from forwarder.reservation.fast import value

_PORTS: Final = {"http": 80, "https": 443}
_TRACEPARENT: Final = TRACEPARENT.encode()


@value(frozen=True, slots=True)
class Request:
    """`url` excludes the query, which is given encoded. Sending adds `Host` and `Content-Length`. Its `repr` leaves out everything
    that may hold a credential, a card or the guest."""

    method: str
    url: str
    headers: Headers = field(default=(), repr=False)
    content: bytes = field(default=b"", repr=False)
    query: str = field(default="", repr=False)


def bearer(credential: str) -> Headers:
    """As `credential_header`, in `Authorization`."""
    return credential_header(b"Authorization", credential, scheme=b"Bearer ")


def credential_header(name: bytes, credential: str, *, scheme: bytes = b"") -> Headers:
    """The header that carries it; none for an account without a credential. Raises `NotSent` where no header can carry it."""
    token = credential.encode()
    if not token:
        return ()
    if re.fullmatch(rb"[\x21-\x7e]+", token) is None:
        raise NotSent("pms_credential_invalid", "The account's credential is not made of visible ASCII characters.")
    return ((name, scheme + token),)


def with_trace(request: Request, trace: str) -> Request:
    """`request` as a part of `trace`; other headers, such as signatures, are kept. No `tracestate`: it is for the caller's own."""
    (_, parent), *_ = trace_headers(trace)
    others = tuple(each for each in request.headers if each[0].lower() != _TRACEPARENT)
    return replace(request, headers=(*others, (_TRACEPARENT, parent.encode())))


def path_segment(identifier: str) -> str | None:
    """`identifier` as one segment of a path; None for the few that no path can name, since they would mean another one."""
    return None if identifier in ("", ".", "..") else quote(identifier, safe="")


class Origin(NamedTuple):
    """The destination of connections; those to the same one are interchangeable."""

    host: str
    port: int
    tls: bool


class Destination(NamedTuple):
    """What an address says of a request. `host`: the header's value; `authorization`: the line for user information, if any."""

    origin: Origin
    host: bytes
    target: bytes
    authorization: bytes | None


@lru_cache(maxsize=4096)
def destination_of(url: str) -> Destination:
    """Cached, because an account's pushes all go to one address or a few, and parsing one costs 15 µs."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise invalid_address("The account's base URL is not a URL.") from error
    host, port = parsed.raw_host, parsed.port
    # A name or an address; one of IPv6 comes without its brackets.
    is_host = re.fullmatch(rb"[0-9A-Za-z._~-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", host)
    if parsed.scheme not in _PORTS or is_host is None:
        raise invalid_address("The account's base URL is not an http or https address.")
    origin = Origin(host.decode("ascii"), port or _PORTS[parsed.scheme], parsed.scheme == "https")
    named = b"[%b]" % host if b":" in host else host
    user, _, password = parsed.userinfo.partition(b":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    authorization = b"Authorization: Basic %b" % b64encode(pair) if parsed.userinfo else None
    return Destination(origin, named if port is None else b"%b:%d" % (named, port), parsed.raw_path, authorization)


def encoded(request: Request, destination: Destination) -> bytes:
    """Head and body. Raises `NotSent` for a method, a name or a value that would not be read as one."""
    # It is sent whole, framed by its length only.
    headers = [each for each in request.headers if each[0].lower() not in (b"content-length", b"transfer-encoding")]
    names = tuple([name for name, _ in headers])
    form, target = _form(request.method, destination.host, names), destination.target
    if request.query:
        query = quote(request.query, safe="!$%&'()*+,;:@/?=~[]").encode("ascii")  # which a query may have unencoded
        target = b"%b?%b" % (target.partition(b"?")[0], query)
    head = form % (target, *[value for _, value in headers])
    if not form.count(b"\n") == head.count(b"\n") == head.count(b"\r") or b"\0" in head:
        raise invalid_address("A header of the request is not one that HTTP can carry.")
    if request.content or request.method in ("POST", "PUT", "PATCH"):
        head += b"Content-Length: %d\r\n" % len(request.content)
    if destination.authorization is not None and b"authorization" not in {name.lower() for name in names}:
        head += destination.authorization + b"\r\n"
    return b"%b\r\n%b" % (head, request.content)


@lru_cache(maxsize=1024)
def _form(method: str, host: bytes, names: tuple[bytes, ...]) -> bytes:
    """The head of requests with these headers, with gaps for the target and the values. Cached: an account's have few forms."""
    verb, lower = method.encode("ascii", "replace"), {name.lower() for name in names}
    for what, name in (("The method", verb), *(("A header", name) for name in names)):
        if re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) is None:
            raise invalid_address(f"{what} of the request is not one that HTTP can carry.")
    defaults = ((b"Host", host), (b"User-Agent", b"reservation-forwarder"), (b"Accept-Encoding", b"identity"))
    lines = [verb.replace(b"%", b"%%") + b" %b HTTP/1.1"]
    lines += [name + b": " + text for name, text in defaults if name.lower() not in lower]
    return b"\r\n".join([*lines, *[name.replace(b"%", b"%%") + b": %b" for name in names], b""])


# --- the requests of one push ---

Held = Callable[[], bool]
"""Whether what is to be sent may still be sent. Asked in the very step of the event loop that then writes it; must not wait."""

Send = Callable[[Request], Awaitable[Response]]
"""Sends a request of one push. Raises `NotSent` or `NoResponse`, nothing else; being cancelled leaves it in doubt."""


class Reuse:
    """Which connections the requests of one push may go over, and what becomes of them afterwards.

    A PMS that answers twice, or late, answers the next request on that connection too. So connections that are kept are an
    `owner`'s, the account's, alone, and one is kept only after an answer that was seen to be the push's own (`end`). Without an
    owner each request has a new connection, which ends with its response.

    `trust`: what they are secured with; None for the transport's own. `reused`: whether a request went over a connection that had
    carried one before. `when_over`: called when the push is over, with whether the connection may be kept."""

    __slots__ = ("owner", "reused", "trust", "when_over")

    def __init__(self, owner: str | None, trust: ssl.SSLContext | None = None) -> None:
        self.owner, self.trust, self.reused = owner, trust, False
        self.when_over: list[Callable[[bool], None]] = []

    def end(self, *, keep: bool) -> None:
        """The push is over. `keep`: its answers were surely its own."""
        while self.when_over:
            self.when_over.pop()(keep)


class Transport(Protocol):
    """Carries requests to PMSs: `ConnectionPool`, or a test's own."""

    async def exchange(
        self, request: Request, deadline: float, held: Held | None = None, reuse: Reuse | None = None
    ) -> Response:
        """The response, with at most `MAX_RESPONSE_BYTES` in memory, by `deadline` of the loop's clock or a moment after it. `held`
        is asked in the step that sends; where it says no, nothing is sent. `reuse` says which connections it may go over; without
        it, any. Raises `NotSent` only where it is certain that nothing was sent, else `NoResponse`, and nothing besides."""

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PushPolicy:
    """`push_seconds`: how long one push may take, all its requests and tries together. `max_tries`: how often a request is
    tried if nothing of it was sent; the pauses between, in seconds, are random, at most `max_pause_seconds` each."""

    push_seconds: float = 30.0
    max_tries: int = 3
    max_pause_seconds: float = 1.0


class PmsClient:
    """The HTTP client that all pushes share, over one transport. Belongs to the event loop of its first push. `tracer`: records
    each request in its trace; `forward`: the PMS is sent that trace."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        policy: PushPolicy,
        tracer: Tracer | None = None,
        *,
        forward: bool = True,
    ) -> None:
        self._transport, self._clock, self._policy = transport, clock, policy
        self._tracer, self._forward = tracer, forward
        self._loop: asyncio.AbstractEventLoop | None = None

    def push(
        self, pace: Pace = UNPACED, held: Held | None = None, reuse: Reuse | None = None, trace: str | None = None
    ) -> Send:
        """The `Send` for the requests of one push, whose time starts now. `pace` hears of each request before it is sent, and of
        each response that asks for a pause. The caller ends `reuse` afterwards. `trace`: what each request is a part of."""
        loop = self._loop = self._loop or asyncio.get_running_loop()  # once: it is a system call
        policy, deadline = self._policy, loop.time() + self._policy.push_seconds
        exchange: Send = partial(self._transport.exchange, deadline=deadline, held=held, reuse=reuse)
        if self._tracer is not None:
            exchange = partial(self._recorded, exchange, self._tracer, trace)

        async def send(request: Request) -> Response:
            if trace is not None and self._forward:
                request = with_trace(request, trace)
            tries, longest_pause = 0, policy.max_pause_seconds / 2
            while True:
                if loop.time() >= deadline:
                    raise NotSent("push_timed_out", "The time for one push had run out before this was sent.")
                pace.requested()
                tries += 1
                try:
                    response = await exchange(request)
                except NotSent as error:
                    pause = SystemRandom().uniform(0.0, longest_pause)
                    if not error.passing or tries >= policy.max_tries or loop.time() + pause >= deadline:
                        raise
                except NoResponse as error:
                    error.status = 0 if request.method == "GET" else error.status
                    raise
                else:
                    if (seconds := hold_off_asked(response, self._clock.now())) > 0.0:
                        pace.hold_off(seconds)
                    return response
                await self._clock.sleep(pause)
                longest_pause = policy.max_pause_seconds

        return send

    async def _recorded(self, exchange: Send, tracer: Tracer, trace: str | None, request: Request) -> Response:
        origin = destination_of(request.url).origin
        # No path: it may hold a credential, or name a guest.
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "server.address": origin.host,
            "server.port": origin.port,
            "url.scheme": "https" if origin.tls else "http",
        }
        span = tracer.start(request.method, Kind.CLIENT, trace, attributes)
        try:
            response = await exchange(with_trace(request, span.trace) if self._forward else request)
        except BaseException as error:
            span.fail(error.reason if isinstance(error, NotSent | NoResponse) else type(error).__name__)
            raise
        else:
            span.note({"http.response.status_code": response.status_code})
            if response.status_code >= 400:  # noqa: PLR2004 - the first of the failures
                span.fail(str(response.status_code))
            return response
        finally:
            span.end()

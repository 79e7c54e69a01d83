"""Requests to a PMS: the bytes that each is on a connection, and those of one push together: within the push time-out, at the
account's pace, and tried again only where surely nothing was sent.

An adapter builds a `Request`, gives it to the `Send` of its push, and reads a `Response` whose body is in memory.

What HTTP cannot carry is refused with `NotSent` (`pms_address_invalid`), before anything is connected to. The refusal quotes
neither the address nor a header: they may hold a password.
"""

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, unquote_to_bytes

import httpx
from msgspec import Struct
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from forwarder.observability.tracing.context import TRACEPARENT, trace_headers
from forwarder.pms.http.errors import NoResponse, NotSent, invalid_address
from forwarder.pms.http.response import MAX_RESPONSE_BYTES, Headers, Response, hold_off_asked, may_ask_for_pause
from forwarder.pms.port import UNPACED, Pace
from forwarder.process.clock import Clock
from forwarder.reservation.value import value

_PORTS: Final = {"http": 80, "https": 443}
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(rb"[0-9A-Za-z._~-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
"""A name or an address; one of IPv6 comes without its brackets."""
_FRAMING: Final = {b"content-length", b"transfer-encoding"}
"""Headers that frame the body. It is sent whole, framed by its length only."""
_ANNOUNCED_IF_EMPTY: Final = {"POST", "PUT", "PATCH"}
_TRACEPARENT: Final = TRACEPARENT.encode()
_VISIBLE_ASCII = re.compile(rb"[\x21-\x7e]+")
_DOT_SEGMENTS = {"", ".", ".."}
_OF_A_QUERY: Final = "!$%&'()*+,;:@/?=~[]"
"""Characters that a query may contain unencoded."""


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
    """The `Authorization` header; as `credential_header`."""
    return credential_header(b"Authorization", credential, scheme=b"Bearer ")


def credential_header(name: bytes, credential: str, *, scheme: bytes = b"") -> Headers:
    """The header that carries it; none for an account without a credential. Raises `NotSent` where no header can carry it."""
    token = credential.encode()
    if not token:
        return ()
    if _VISIBLE_ASCII.fullmatch(token) is None:
        raise NotSent("pms_credential_invalid", "The account's credential is not made of visible ASCII characters.")
    return ((name, scheme + token),)


def with_trace(request: Request, trace: str) -> Request:
    """`request` as a part of `trace`; other headers, signatures among them, are unchanged. `tracestate` is not sent: it belongs to
    the caller's own systems."""
    (_, parent), *_ = trace_headers(trace)
    request = without_trace(request)
    return replace(request, headers=(*request.headers, (_TRACEPARENT, parent.encode())))


def without_trace(request: Request) -> Request:
    """`request` as a part of nothing."""
    return replace(request, headers=tuple(each for each in request.headers if each[0].lower() != _TRACEPARENT))


def path_segment(identifier: str) -> str | None:
    """`identifier` as one segment of a path; None for the few that no path can name, since they would mean another one."""
    return None if identifier in _DOT_SEGMENTS else quote(identifier, safe="")


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The destination of connections; those to the same one are interchangeable. `headers`: the lines that a request to it has
    unless it brings its own, by their names in lower case."""

    host: str
    port: int
    tls: bool
    headers: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Destination:
    """The parts of a request that come from its address: the destination, the target, and the header line for the user information,
    if any."""

    origin: Origin
    target: bytes
    authorization: bytes | None


@lru_cache(maxsize=4096)
def destination_of(url: str) -> Destination:
    """Cached, because an account's pushes all go to one address or a few, and parsing one costs 15 µs."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise invalid_address("The account's base URL is not a URL.") from error
    origin = _origin(parsed.scheme, parsed.raw_host, parsed.port)
    return Destination(origin, parsed.raw_path, _basic(parsed.userinfo) if parsed.userinfo else None)


@lru_cache(maxsize=4096)
def _origin(scheme: str, host: bytes, port: int | None) -> Origin:
    """The one object for that scheme, host and port."""
    if scheme not in _PORTS or _HOST.fullmatch(host) is None:
        raise invalid_address("The account's base URL is not an http or https address.")
    name = b"[%b]" % host if b":" in host else host
    if port is not None:
        name += b":%d" % port
    lines = {
        b"host": b"Host: " + name,
        b"user-agent": b"User-Agent: reservation-forwarder",
        b"accept-encoding": b"Accept-Encoding: identity",
    }
    return Origin(host.decode("ascii"), port or _PORTS[scheme], scheme == "https", MappingProxyType(lines))


def encoded(request: Request, destination: Destination) -> bytes:
    """Head and body. Raises `NotSent` for a method, a name or a value that would not be read as one."""
    headers, content = request.headers, request.content
    form = _form(request.method, destination.origin, tuple([name for name, _ in headers]))
    values = [value for _, value in headers]
    if form.left_out:
        values = [value for place, value in enumerate(values) if place not in form.left_out]
    target = _target(destination, request.query) if request.query else destination.target
    head = form.text % (target, *values)
    if not form.lines == head.count(b"\n") == head.count(b"\r") or b"\0" in head:
        raise invalid_address("A header of the request is not one that HTTP can carry.")
    last = b""
    if content or request.method in _ANNOUNCED_IF_EMPTY:
        last = b"Content-Length: %d\r\n" % len(content)
    if destination.authorization is not None and not form.authorized:
        last += destination.authorization
    return b"%b%b\r\n%b" % (head, last, content)


def _target(destination: Destination, query: str) -> bytes:
    return b"%b?%b" % (destination.target.partition(b"?")[0], quote(query, safe=_OF_A_QUERY).encode("ascii"))


class _Form(NamedTuple):
    """Requests with the same headers, but for their values: the text with gaps for the target and the values, how many lines that
    is, the places of the headers that are left out, and whether one of them authorizes."""

    text: bytes
    lines: int
    left_out: frozenset[int]
    authorized: bool


@lru_cache(maxsize=1024)
def _form(method: str, origin: Origin, names: tuple[bytes, ...]) -> _Form:
    lower = [_lower(name) for name in names]
    defaults = [line for name, line in origin.headers.items() if name not in lower]
    left_out = frozenset(place for place, name in enumerate(lower) if name in _FRAMING)
    own = [_verbatim(name) + b": %b" for place, name in enumerate(names) if place not in left_out]
    lines = [_verbatim(_method(method)) + b" %b HTTP/1.1", *map(_verbatim, defaults), *own, b""]
    return _Form(b"\r\n".join(lines), len(lines) - 1, left_out, b"authorization" in lower)


def _verbatim(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _lower(name: bytes) -> bytes:
    """A header's name, to compare by."""
    if _TOKEN.fullmatch(name) is None:
        raise invalid_address("A header of the request is not one that HTTP can carry.")
    return name.lower()


def _method(method: str) -> bytes:
    named = method.encode("ascii", "replace")
    if _TOKEN.fullmatch(named) is None:
        raise invalid_address("The method of the request is not one that HTTP can carry.")
    return named


def _basic(userinfo: bytes) -> bytes:
    user, _, password = userinfo.partition(b":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return b"Authorization: Basic %b\r\n" % b64encode(pair)


# --- the requests of one push ---

Held = Callable[[], bool]
"""Whether what is to be sent may still be sent. Asked in the very step of the event loop that then writes it; must not wait."""

Send = Callable[[Request], Awaitable[Response]]
"""Sends a request of one push. Raises `NotSent` or `NoResponse`, nothing else; being cancelled leaves it in doubt."""


class Reuse:
    """Which connections the requests of one push may go over, and what becomes of them afterwards.

    A PMS that answers twice, or late, answers the next request on that connection too. So connections that are kept are an
    `owner`'s, the account's, alone, and one is kept only after an answer that was seen to be the push's own (`end`). Without an
    owner each request has a new connection, which is not kept.

    `trust`: what they are secured with; None for the transport's own. `reused`: whether a request went over a connection that had
    carried one before.
    """

    __slots__ = ("_over", "owner", "reused", "trust")

    def __init__(self, owner: str | None, trust: ssl.SSLContext | None = None) -> None:
        self.owner = owner
        self.trust = trust
        self.reused = False
        self._over: list[Callable[[bool], None]] = []

    def when_over(self, give_back: Callable[[bool], None]) -> None:
        """Calls `give_back` when the push is over, with whether the connection may be kept."""
        self._over.append(give_back)

    def end(self, *, keep: bool) -> None:
        """The push is over. `keep`: its answers were surely its own."""
        while self._over:
            self._over.pop()(keep and self.owner is not None)


class Transport(Protocol):
    """Carries requests to PMSs: `ConnectionPool`, or a test's own."""

    async def exchange(
        self, request: Request, deadline: float, held: Held | None = None, reuse: Reuse | None = None
    ) -> Response:
        """The response, with its body in memory, by `deadline` of the loop's clock or a moment after it. `held` is asked in the
        step that sends; where it says no, nothing is sent. `reuse` says which connections it may go over; without it, any.
        Raises `NotSent` only where it is certain that nothing was sent, else `NoResponse`, and nothing besides."""
        ...

    async def aclose(self) -> None:
        """Leave nothing open."""
        ...


@dataclass(frozen=True, slots=True)
class PushPolicy:
    """`push_seconds`: how long one push may take, all its requests and tries together. `max_tries`: how often a request is
    tried if nothing of it was sent; the pauses between, in seconds, are random, at most `max_pause_seconds` each."""

    push_seconds: float = 30.0
    max_tries: int = 3
    max_pause_seconds: float = 1.0


def always() -> bool:
    """A `held` that never ends."""
    return True


class PmsClient:
    """The HTTP client that all pushes share, over one transport. Belongs to the event loop of its first push."""

    def __init__(self, transport: Transport, clock: Clock, policy: PushPolicy) -> None:
        self._transport = transport
        self._clock = clock
        self._policy = policy
        self._loop: asyncio.AbstractEventLoop | None = None

    def push(
        self,
        pace: Pace = UNPACED,
        held: Callable[[], bool] = always,
        reuse: Reuse | None = None,
        trace: str | None = None,
    ) -> Send:
        """The `Send` for the requests of one push, whose time starts now. Call it in the running loop. `pace` hears of each request
        before it is sent, and of each response that asks for a pause. A request made when `held` returns False
        raises `NotSent`. The caller ends `reuse` afterwards. `trace`: the `traceparent` of each request."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # once: it is a system call
        deadline = self._loop.time() + self._policy.push_seconds
        return _Push(self._transport, self._clock, self._policy, self._loop, deadline, pace, held, reuse, trace).send


class _Push(Struct, frozen=True, eq=False):
    transport: Transport
    clock: Clock
    policy: PushPolicy
    loop: asyncio.AbstractEventLoop
    deadline: float
    pace: Pace
    held: Held
    reuse: Reuse | None
    trace: str | None

    async def send(self, request: Request) -> Response:
        if self.trace is not None:
            request = with_trace(request, self.trace)
        # tenacity comes in only when a try has failed: entering it costs about as much CPU as an exchange.
        self._begin()
        try:
            response = await self.transport.exchange(request, self.deadline, self.held, self.reuse)
        except NotSent as error:
            if not error.passing:
                raise
            response = await self._send_again(request, error)
        return self._received(response)

    async def _send_again(self, request: Request, first: NotSent) -> Response:
        tries = AsyncRetrying(
            sleep=self.clock.sleep,
            stop=self._enough,
            wait=wait_random_exponential(
                multiplier=self.policy.max_pause_seconds / 2, max=self.policy.max_pause_seconds
            ),
            retry=retry_if_exception(lambda error: isinstance(error, NotSent) and error.passing),
            reraise=True,
        )
        async for attempt in tries:
            with attempt:
                if attempt.retry_state.attempt_number == 1:
                    raise first  # that try is behind us: it counts, and has its pause
                self._begin()
                return await self.transport.exchange(request, self.deadline, self.held, self.reuse)
        raise first

    def _enough(self, state: RetryCallState) -> bool:
        too_late = self.loop.time() + state.upcoming_sleep >= self.deadline
        return too_late or state.attempt_number >= self.policy.max_tries

    def _begin(self) -> None:
        if self.loop.time() >= self.deadline:
            raise NotSent("push_timed_out", "The time for one push had run out before this was sent.")
        self.pace.requested()

    def _received(self, response: Response) -> Response:
        if may_ask_for_pause(response) and (seconds := hold_off_asked(response, self.clock.now())) > 0.0:
            self.pace.hold_off(seconds)
        if len(response.content) > MAX_RESPONSE_BYTES:
            raise NoResponse("pms_answer_too_large", f"The PMS answered with more than {MAX_RESPONSE_BYTES} bytes.")
        return response

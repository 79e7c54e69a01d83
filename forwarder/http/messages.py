"""HTTP messages: requests, with limits on the size and time of bodies; responses, also conditional ones (RFC 9110, section 13), and
problems (RFC 9457). Also the admission that bounds one process's load: concurrent requests, bytes of their bodies, and bytes of
responses that clients are reading.

`Shares` divides each bound: among workspaces once the caller is authenticated, before that among client addresses. A request over
its share is refused with `overloaded`, so memory stays bounded and one caller's requests are never refused because of another's.
Health routes take no place. `connections` bounds connections, `connection_limits` heads and idle time."""

import asyncio
import functools
import random
import re
import types
from base64 import urlsafe_b64encode
from collections.abc import Coroutine, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, Final, Protocol, cast, runtime_checkable

from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from forwarder.process.addresses import client_of
from forwarder.process.shares import Shares
from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks.card_numbers import mask
from forwarder.reservation.fast import value
from forwarder.reservation.problems import Problem, with_absolute_links

PLACE: Final = "forwarder.place"
"""The scope key of a request's `RequestShare`."""


class Admission:
    """`max_requests`: in flight; a quarter as many with callers not authenticated yet. `max_body_bytes`: received and not safe yet,
    of all bodies. `max_response_bytes`: of responses over 64 KiB whose clients are still reading."""

    def __init__(
        self, *, max_requests: int = 5_000, max_body_bytes: int = 48 * 2**20, max_response_bytes: int = 64 * 2**20
    ) -> None:
        self.requests, self.strangers = Shares(max_requests), Shares(max(max_requests // 4, 1))
        self.bodies = Shares(max_body_bytes)
        self.responses, self.strangers_responses = Shares(max_response_bytes), Shares(max_response_bytes // 4)

    def enter(self, workspace: str) -> "RequestShare | None":
        """A place for a request of this workspace; None where it has all that it may have."""
        return RequestShare(self, workspace, self.requests, self.responses) if self.requests.take(workspace) else None

    def enter_unknown(self, address: str, *, always: bool = False) -> "RequestShare | None":
        """A place for a request from this address, until its caller is known: see `RequestShare.claim`. `always`: for a request
        that is answered in any case; only its response is counted."""
        party, counted = client_of(address), None if always else self.strangers
        entered = counted is None or counted.take(party)
        return RequestShare(self, party, counted, self.strangers_responses) if entered else None


class RequestShare:
    """One request's share of the budgets. `counted`: the request budget that it counts against."""

    __slots__ = ("_admission", "_body_bytes", "_counted", "_party", "_response_bytes", "_responses")

    def __init__(self, admission: Admission, party: Hashable, counted: Shares | None, responses: Shares) -> None:
        self._admission, self._party, self._counted, self._responses = admission, party, counted, responses
        self._body_bytes = self._response_bytes = 0

    def claim(self, workspace: str) -> bool:
        """Counts the request for this workspace from now on; False if its share is used up, and `leave` is still due."""
        if not self._admission.requests.take(workspace):
            return False
        self.leave()
        self._party, self._counted, self._responses = workspace, self._admission.requests, self._admission.responses
        return True

    def may_receive(self, size: int) -> bool:
        """Whether a body of that size would fit now. Reserves nothing."""
        return self._admission.bodies.fits(self._party, size)

    def received(self, size: int) -> bool:
        if not self._admission.bodies.take(self._party, size):
            return False
        self._body_bytes += size
        return True

    def leave(self) -> None:
        """Releases its place and the bytes of its body, once: the content is safe, or was refused."""
        if self._body_bytes:
            self._admission.bodies.give_back(self._party, self._body_bytes)
            self._body_bytes = 0
        if self._counted is not None:
            self._counted.give_back(self._party)
            self._counted = None

    def hold_response(self, size: int, *, refusable: bool) -> bool:
        """Holds so many bytes of its response instead of those before; False where that is too much. A response that is not
        `refusable`, because the request took effect, overdraws."""
        more = size - self._response_bytes
        if more < 0:
            self._responses.give_back(self._party, -more)
        elif more and not self._responses.take(self._party, more):
            if refusable:
                return False
            self._responses.overdraw(self._party, more)
        self._response_bytes = size
        return True

    def end(self) -> None:
        self.leave()
        self.hold_response(0, refusable=False)


def place_of(scope: Scope) -> RequestShare | None:
    """The place that a request has; None outside of an application."""
    return cast("RequestShare | None", scope.get(PLACE))


Header = tuple[bytes, bytes]
"""A header line as in ASGI: name, value."""

# `utf8` is not a registered name, but many programs write it.
_CHARSET: Final = r'\s*(;\s*charset\s*=\s*("utf-?8"|utf-?8)\s*)?;?'
JSON_BODY: Final = re.compile("application/json" + _CHARSET, re.IGNORECASE)
NDJSON_BODY: Final = re.compile("application/x-ndjson" + _CHARSET, re.IGNORECASE)
_HOST: Final = re.compile(r"[A-Za-z0-9._\-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")


BodyFault = Enum("BodyFault", "TOO_LARGE TIMED_OUT NO_ROOM")
"""Why a body was not read."""


class HttpRequest:
    """`fields`: its headers as bytes, by lower-case name; `started`: when it arrived, by the monotonic clock."""

    __slots__ = ("_headers", "fields", "receive", "scope", "started")

    def __init__(self, scope: Scope, receive: Receive, started: float = 0.0) -> None:
        self.scope, self.receive, self.started = scope, receive, started
        self.fields = header_fields(scope)
        self._headers: Mapping[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers as text, decoded on first use; the hot path reads `fields`."""
        if self._headers is None:
            self._headers = header_map(self.scope)
        return self._headers

    @property
    def origin(self) -> str:
        """Scheme and host as the caller wrote them (`http://host:port`), empty if the host is missing or invalid."""
        return _origin(self.scope["scheme"], self.fields.get(b"host", b""))

    def is_sent_as(self, media_type: re.Pattern[str]) -> bool:
        """Whether the headers declare that media type, in UTF-8 and not compressed."""
        fields = self.fields
        return _declares(media_type, fields.get(b"content-type", b""), fields.get(b"content-encoding", b"identity"))

    def with_media_type(self, refused: Problem) -> Problem:
        given = [
            f"{name}: {mask(self.fields[field].decode('latin-1'))[:64]}"
            for field, name in ((b"content-type", "Content-Type"), (b"content-encoding", "Content-Encoding"))
            if field in self.fields
        ]
        return replace(refused, detail=f"{refused.detail} You sent {', '.join(given) or 'no Content-Type'}.")

    async def body(self, max_bytes: int, within_seconds: float) -> bytes | BodyFault:
        """The whole body; `TOO_LARGE` as soon as it exceeds `max_bytes`, `TIMED_OUT` if it takes longer than `within_seconds`,
        `NO_ROOM` if it exceeds the caller's share now: the bytes received count, not those declared. Raises `ClientDisconnect`."""
        written = self.fields.get(b"content-length", b"")
        declared, place = int(written) if written.isdigit() else 0, place_of(self.scope)
        if declared > max_bytes:
            return BodyFault.TOO_LARGE
        if declared > LARGE_BYTES and place is not None and not place.may_receive(declared):
            return BodyFault.NO_ROOM
        reading = self._read_body(max_bytes, place)
        try:
            waiting_for = reading.send(None)
        except StopIteration as finished:  # as for most: `asyncio.timeout` costs more than reading them
            return cast("bytes | BodyFault", finished.value)
        try:
            async with asyncio.timeout(within_seconds):
                return cast("bytes | BodyFault", await _resumed(reading, waiting_for))
        except TimeoutError:
            return BodyFault.TIMED_OUT

    async def _read_body(self, max_bytes: int, place: RequestShare | None) -> bytes | BodyFault:
        chunks, size, more = list[bytes](), 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk, more = message.get("body", b""), message.get("more_body", False)
            if place is not None and not place.received(len(chunk)):
                return BodyFault.NO_ROOM
            chunks.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                return BodyFault.TOO_LARGE
        return b"".join(chunks)

    def leave_place(self) -> None:
        if (place := place_of(self.scope)) is not None:
            place.leave()

    async def client_left(self) -> None:
        await client_left(self.scope, self.receive)


@types.coroutine
def _resumed(coroutine: Coroutine[Any, Any, Any], waiting_for: Any) -> Generator[Any, Any, Any]:
    """Awaits the rest of a coroutine that was started by hand and waits."""
    try:
        while True:
            try:
                sent = yield waiting_for
            except BaseException as error:  # noqa: BLE001 - a cancellation above all
                waiting_for = coroutine.throw(error)
            else:
                waiting_for = coroutine.send(sent)
    except StopIteration as finished:
        return finished.value


async def client_left(scope: Scope, receive: Receive) -> bool:
    """Returns when the client has left (True), or has closed its sending side (False): it may still read, so it gets a response,
    but without further waiting, because the server cannot see whether it does. Await it after the body."""
    if HALF_CLOSED in scope.get("state", ()):
        return False
    return bool((await receive())["type"] == "http.disconnect")


@functools.lru_cache(maxsize=256)
def _declares(media_type: re.Pattern[str], content_type: bytes, encoding: bytes) -> bool:
    return encoding.lower() == b"identity" and bool(media_type.fullmatch(content_type.decode("latin-1").strip()))


@functools.lru_cache(maxsize=256)
def _origin(scheme: str, host: bytes) -> str:
    text = host.decode("latin-1")
    return f"{scheme}://{text}" if _HOST.fullmatch(text) else ""


def client_address(scope: Scope) -> str:
    """The client's address: that of the connection, or the one that a trusted proxy reports. Empty if unknown."""
    client = scope.get("client")
    return client[0] if client else ""


def header_map(scope: Scope) -> dict[str, str]:
    """`header_fields` as text."""
    return {name.decode("latin-1"): field.decode("latin-1") for name, field in header_fields(scope).items()}


def header_fields(scope: Scope) -> dict[bytes, bytes]:
    """The request's headers by lower-case name; lines with the same name are joined by a comma (RFC 9110, 5.3). Identical lines
    count once: a proxy or a wrapper around the client may have repeated one."""
    lines: Sequence[Header] = scope["headers"]
    fields = dict(lines)
    if len(fields) == len(lines):
        return fields
    fields = {}
    for name, line in dict.fromkeys(lines):
        fields[name] = b"%s, %s" % (fields[name], line) if name in fields else line
    return fields


JSON: Final = b"application/json"
PROBLEM_JSON: Final = b"application/problem+json"
PUBLIC_URL: Final = "forwarder.public_url"
"""The scope key of the URL, in bytes, that links of problems begin with; missing if they stay relative."""
ADDED: Final = "forwarder.added_headers"
"""The scope key of the headers that the application adds to the response, the request id first."""
HALF_CLOSED: Final = "forwarder.half_closed"
"""Set in a request's state once its client has closed its sending side."""
LARGE_BYTES: Final = 64 * 1024
"""A larger response is sent in chunks, and counted while its client reads it; a larger declared body needs room to be read."""
NO_STORE: Final = (b"cache-control", b"no-store")
"""For responses with guests' data: no cache may store them."""
Routes = Sequence[BaseRoute]
"""A stage's routes in the application."""


@runtime_checkable
class DirectEndpoint(Protocol):
    """An ASGI application for one path, found without the framework. It takes its place of the admission itself."""

    async def respond(self, scope: Scope, receive: Receive) -> "Response":
        """The response that it sends. Raises `ClientDisconnect`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


@value(frozen=True, slots=True)
class Response:
    """A complete response, and the ASGI application that sends it. `headers` have lower-case names, as in ASGI."""

    status: int
    body: bytes
    headers: tuple[Header, ...] = ()
    media_type: bytes = JSON

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it with the request's `Request-Id`, which a problem has in its body too. A large body is sent in chunks, each once
        the client has read the one before, and counted until the last. If the caller has too many unread responses, the response of
        a safe method is replaced by a refusal; others are sent, because the request has taken effect."""
        body, added = self.body, scope.get(ADDED, ())
        if added and self.media_type is PROBLEM_JSON:
            body = with_request_id(body, added[0][1])
        if url := scope.get(PUBLIC_URL):
            body = with_absolute_links(body, url)
        if len(body) > LARGE_BYTES and (place := place_of(scope)) is not None:
            if not place.hold_response(len(body), refusable=scope["method"] in {"GET", "HEAD"}):
                unread = "Earlier responses to this caller have not been read yet. Read them, then ask again."
                await problem_response(catalogue.OVERLOADED.problem(unread))(scope, receive, send)
                return
            place.leave()
        headers = [(b"content-type", self.media_type), (b"content-length", b"%d" % len(body)), *self.headers, *added]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for at in range(0, len(body) or 1, LARGE_BYTES):
            more = at + LARGE_BYTES < len(body)
            await send({"type": "http.response.body", "body": body[at : at + LARGE_BYTES], "more_body": more})


def new_request_id() -> bytes:
    """An id for a request whose caller gave it none: no secret, but never shared by two."""
    return b"req_%024x" % random.getrandbits(96)


def problem_response(problem: Problem, *headers: Header, retry_after_seconds: int = 1) -> Response:
    """The response with `problem`. A 401 names the authentication scheme (RFC 9110, section 11.6.1), a 503 has `Retry-After`."""
    match problem.status:
        case HTTPStatus.UNAUTHORIZED:
            headers = (*headers, (b"www-authenticate", b"Bearer"))
        case HTTPStatus.SERVICE_UNAVAILABLE:
            headers = (*headers, retry_after(retry_after_seconds))
        case HTTPStatus.TOO_MANY_REQUESTS if problem.retry_after is not None:
            headers = (*headers, retry_after(problem.retry_after))
    return Response(problem.status, problem_body(problem.as_json()), headers, PROBLEM_JSON)


def with_request_id(body: bytes, request_id: bytes) -> bytes:
    """A problem's `body`, with the id by which its request is found."""
    return b'%b,"httpRequestId":"%b"}' % (body[:-1], request_id)


def problem_body(problem: Mapping[str, Any]) -> bytes:
    """The body for `problem`: the members of RFC 9457, and `success` for callers that check only that."""
    return to_json({"success": False, **problem})


def envelope(success: bool, data: bytes) -> bytes:  # noqa: FBT001 - as in the body
    """The body for `data`, which is JSON (section 2.5 of the contract)."""
    return (b'{"success":true,"data":' if success else b'{"success":false,"data":') + data + b"}"


@functools.lru_cache(maxsize=64)
def retry_after(seconds: int) -> Header:
    return (b"retry-after", b"%d" % seconds)


_TAG = re.compile(r'(?:W/)?("[!#-~\x80-\xff]*")')
_TAGS = re.compile(rf"[\t ,]*(?:{_TAG.pattern}[\t ]*(?:,[\t ,]*|$))+")


@dataclass(frozen=True, slots=True)
class NotModified:
    """304: the caller has the current version. An ASGI application, like `Response`, without a body or its headers."""

    headers: tuple[Header, ...]

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 304, "headers": [*self.headers, *scope.get(ADDED, ())]})
        await send({"type": "http.response.body", "body": b""})


def entity_tag(body: bytes) -> str:
    """A strong tag: a digest of the body, so that it changes with any byte."""
    return f'"{urlsafe_b64encode(blake2b(body, digest_size=15).digest()).decode()}"'


def matches(if_none_match: str, tag: str) -> bool:
    """Whether the header's list of tags matches `tag`, by the weak comparison, or is `*`. A malformed list matches nothing."""
    listed = _TAG.findall(if_none_match) if _TAGS.fullmatch(if_none_match) else ()
    return if_none_match.strip() == "*" or tag in listed


def conditional_response(body: bytes, if_none_match: str | None, *headers: Header) -> Response | NotModified:
    """`body`, unless the caller has it already. It stays `no-store`: the tag is for callers that store records on purpose; caches
    in proxies and browsers must not keep guests' data only to revalidate it."""
    tag = entity_tag(body)
    headers = (NO_STORE, (b"etag", tag.encode()), *headers)
    return NotModified(headers) if matches(if_none_match or "", tag) else Response(200, body, headers)

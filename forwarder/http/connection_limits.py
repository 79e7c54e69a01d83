"""Limits on one connection before its client is authenticated: time, requests, and bytes outside of bodies.

`LimitedProtocol` is uvicorn's HTTP protocol with these limits, and depends on uvicorn's state of a connection. The application has
limits of its own, which respond with a problem: the size of a head, and the size and time of a body."""

import asyncio
import functools
import math
import re
from collections import deque
from collections.abc import Sequence
from http import HTTPStatus
from ipaddress import AddressValueError, IPv6Address
from typing import Any, Final, cast

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forwarder.http import messages
from forwarder.http.connections import SWEEP_SECONDS, TRANSPORT, Connections, GatheringTransport, Limited
from forwarder.http.messages import HALF_CLOSED, PROBLEM_JSON, Response
from forwarder.observability.metrics import CONNECTIONS_ENDED
from forwarder.reservation import problems as catalogue

MAX_HEAD_BYTES: Final = 32 * 1024
"""Maximum size of a request's target and all header lines."""
HEAD_TOO_LARGE: Final = messages.problem_response(
    catalogue.HEADERS_TOO_LARGE.problem(f"The request's target and headers must have at most {MAX_HEAD_BYTES} bytes."),
    (b"connection", b"close"),
)
MAX_QUEUED: Final = 16
"""Maximum requests of one connection that are parsed and unanswered."""

_log = structlog.get_logger()
_HEAD_END: Final = b"\r\n\r\n"
_FRAMING: Final = frozenset({b"host", b"transfer-encoding", b"content-length"})
_HOST: Final = re.compile(
    rb"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]{0,5})?"
)
_ABSOLUTE: Final = re.compile(rb"https?://(?P<authority>[^/?#]+)(?=[/?#]|$)", re.IGNORECASE)
# Made once: a flood of connections gets them.
_TOO_MANY: Final = messages.problem_response(
    catalogue.TOO_MANY_CONNECTIONS.problem("This process has no room for another connection now.")
)
_TIMED_OUT: Final = messages.problem_response(
    catalogue.HEAD_TIMED_OUT.problem("The rest of the target and headers did not come in time.")
)


class LimitedProtocol(HttpToolsProtocol):
    """One connection. The parser buffers heads, chunk framing and trailers without limit, so this counts bytes since the last
    progress of the request, in whole reads: a read that makes progress is not counted. Trailers are
    ignored: they came after its admission.

    Responses leave in the order of their requests, also one that refuses malformed bytes after a good request. At most `MAX_QUEUED`
    pipelined requests are parsed; the rest waits unparsed, and reading stops. Upgrades are ignored, as RFC 9110 (7.8) allows for
    unsupported ones: the request is served as if it had not asked for one."""

    _open = _in_head = _in_body = _moved_on = _eof = False
    _stalled_bytes = _unread_bytes = 0
    _deadline = _began = _unread_until = _full_until = math.inf
    _unparsed = _last_words = b""
    _head_without_upgrade: bytes | None = None
    _refusal: Response | None = None

    def __init__(
        self, *arguments: Any, connections: Connections, handshake: Limited | None = None, **options: Any
    ) -> None:
        """`handshake`: which this one replaces in the counts of `connections` once it is made."""
        super().__init__(*arguments, **options)
        self._connections, self._limits, self._handshake = connections, connections.limits, handshake
        self._requests: deque[RequestResponseCycle] = deque()  # unanswered, in their order

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", GatheringTransport(cast("asyncio.Transport", transport))))
        now = self.loop.time()
        if self._handshake is not None:
            self._connections.remove(self._handshake)
        self._open = self._connections.add(self, self.client[0] if self.client else "", now)
        self._deadline = now + self._limits.head_seconds
        if not self._open:
            self.end("refused", _TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open, self._unparsed = False, b""
        for cycle in self._requests:  # the library notifies only the newest
            _disconnect(cycle)
        self._connections.remove(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._full_until = self.loop.time() + self._limits.unread_seconds
        super().pause_writing()

    def resume_writing(self) -> None:
        self._full_until = math.inf
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if not self._open:
            return
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        self._moved_on = False
        if self._unparsed:
            self._hold(self._unparsed + data)
        else:
            self._parse(data)
        if self._moved_on or not self._open:
            self._stalled_bytes = 0
            return
        self._stalled_bytes += len(data)
        if self._deadline == math.inf:  # blank lines before a request
            self._deadline = self.loop.time() + self._limits.head_seconds
        if self._stalled_bytes > MAX_HEAD_BYTES and not self._unparsed:
            self.end("too_large", HEAD_TOO_LARGE)

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """A client that closes its sending side still gets the responses to its requests. With TLS both sides close."""
        if self.scheme == "https":
            return False
        self._eof = True
        if self._open and not self._unparsed:
            self._finish()
        return not self.transport.is_closing()

    def _parse(self, data: bytes) -> None:
        start = 0
        while self._open and start < len(data):
            room = MAX_QUEUED - len(self._requests)
            if room <= 0:
                self._hold(data[start:])
                return
            end = start
            for _ in range(room):
                end = data.find(_HEAD_END, end) + len(_HEAD_END)
                if end < len(_HEAD_END):
                    end = len(data)
                    break
            self._feed(data[start:end])
            start = end

    def _hold(self, data: bytes) -> None:
        self._unparsed, self._moved_on = data, True
        self.flow.pause_reading()
        if len(data) > 1024 * 1024:  # the loop may still deliver bytes that it has read
            self.end("too_large", HEAD_TOO_LARGE)

    def _go_on(self) -> None:
        data, self._unparsed = self._unparsed, b""
        self._parse(data)
        if self._open and not self._unparsed:
            if self._eof:
                self._finish()
            elif not self.pipeline:
                self.flow.resume_reading()

    def _feed(self, data: bytes) -> None:
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                except httptools.HttpParserUpgrade as upgrade:
                    data = data[upgrade.args[0] :]
                    head, self._head_without_upgrade = self._head_without_upgrade, None
                    # The earlier cycle has ended if its request says close.
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.feed_data(head or b"")
                else:
                    return
        except httptools.HttpParserError:
            self.end("malformed", self._refusal or _malformed("Invalid HTTP request received."))

    def on_message_begin(self) -> None:
        self._moved_on = self._in_head = True
        self._began = self.loop.time()
        self._deadline = self._began + self._limits.head_seconds
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self._refusal = _head_refusal(method, version, self.url, self.headers)
        if self._refusal is not None:
            raise ValueError  # which ends the parsing
        if self.parser.should_upgrade():
            lines = [b"%b: %b" % line for line in self.headers if line[0] != b"upgrade"]
            start = b"%b %b HTTP/%b" % (method, self.url, version.encode())
            self._head_without_upgrade = b"\r\n".join((start, *lines, b"", b""))
            return
        if version == "1.0":
            self.expect_100_continue = False
        if self.url[:1] != b"/" and (authority := _authority_of(self.url)):
            self.headers[:] = [line for line in self.headers if line[0] != b"host"] + [(b"host", authority)]
        self._moved_on, self._in_head, self._in_body = True, False, True
        self._deadline = self.loop.time() + self._limits.body_seconds + SWEEP_SECONDS
        self.scope["state"][TRANSPORT] = self.transport
        super().on_headers_complete()
        self._requests.append(self.cycle)
        self.headers = []  # trailers go here, and are ignored

    def on_chunk_header(self) -> None:
        self._moved_on = True

    def on_body(self, body: bytes) -> None:
        self._moved_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._head_without_upgrade is not None:
            return
        self._moved_on, self._in_body = True, False
        self._deadline = math.inf
        self._connections.spoke(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._requests.popleft()
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._unparsed:
            self.flow.pause_reading()
            if len(self._requests) == MAX_QUEUED // 2 or not self._requests:
                self.loop.call_soon(self._go_on)
        elif not self._open and not self._requests:
            self._say_last()

    @property
    def idle_since(self) -> float:
        """The event loop's time at which the last request began, if the connection is idle since its response; else infinity."""
        busy = self._in_head or self._in_body or self._requests or self.transport.get_write_buffer_size()
        return math.inf if busy else self._began

    def check(self, now: float) -> None:
        if now >= self._deadline:
            if self._requests and (self.pipeline or not self._in_body):
                # The request waits for the response to an earlier one, which is not its client's fault.
                self._deadline = now + self._limits.head_seconds
            elif self._in_head:
                self.end("slow_head", _TIMED_OUT)
            else:
                self.end("silent" if self._began == math.inf else "slow_body")
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread_bytes or not unread:
            self._unread_bytes, self._unread_until = unread, now + self._limits.unread_seconds
        if unread and now >= min(self._unread_until, self._full_until):
            CONNECTIONS_ENDED.labels("unread").inc()
            self.transport.abort()

    def end(self, reason: str, last: Response | None = None) -> None:
        """Ends the connection, and counts the `reason`: answers complete requests, then sends `last`, which no application does."""
        CONNECTIONS_ENDED.labels(reason).inc()
        if last is None:
            self._finish()
            return
        request_id, status = messages.new_request_id(), HTTPStatus(last.status)
        _log.debug("connection.refused", reason=reason, http_request_id=request_id.decode())
        body = messages.with_request_id(last.body, request_id) if last.media_type is PROBLEM_JSON else last.body
        ours = [(b"connection", b"close"), (b"request-id", request_id), (b"content-type", last.media_type)]
        others = [each for each in (*self.server_state.default_headers, *last.headers) if each[0] != b"connection"]
        headers = [b"%b: %b" % each for each in (*ours, (b"content-length", b"%d" % len(body)), *others)]
        start = b"HTTP/1.1 %d %b" % (status, status.phrase.encode())
        self._finish(b"\r\n".join((start, *headers, b"", body)))

    def _finish(self, last: bytes = b"") -> None:
        self._open, self._deadline, self._unparsed = False, math.inf, b""
        if self._in_body and self._requests:  # the newest request is incomplete
            cycle = self._requests.pop()
            if self.pipeline:
                self.pipeline.popleft()
            elif cycle.response_started:
                last = b""
            _disconnect(cycle)
        if self._eof:
            for cycle in self._requests:
                cycle.scope["state"][HALF_CLOSED] = True
                cycle.message_event.set()
        self._last_words = last
        if not self._requests:
            self._say_last()

    def _say_last(self) -> None:
        if self._last_words:
            self.transport.write(self._last_words)
        self.transport.close()


def _malformed(detail: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> Response:
    return Response(status, detail.encode(), (), b"text/plain; charset=utf-8")


def _head_refusal(method: bytes, version: str, target: bytes, lines: Sequence[tuple[bytes, bytes]]) -> Response | None:
    """Why the head is refused though the parser accepts it: version, framing or `Host` (RFC 9112); None if it is accepted. Names in
    `lines` are in lower case. The parser itself refuses an ambiguous message length: both `Content-Length` and `Transfer-Encoding`,
    either of them twice, bare LF, folded lines, space before a colon. `tests/stage/http/test_request_framing.py` verifies that."""
    if version not in {"1.0", "1.1"}:
        return _malformed("This server speaks HTTP/1.1 and HTTP/1.0.")
    if method == b"CONNECT":
        return _malformed("CONNECT is not supported: this server is not a proxy.", HTTPStatus.NOT_IMPLEMENTED)
    hosts = 0
    for name, field in lines:
        if name in _FRAMING:
            if name == b"host":
                hosts += 1
                if not _is_host(field):
                    return _malformed("The Host header must be a host name or an IP address, with a port or without.")
            elif name == b"content-length":
                if len(field) > 19:  # noqa: PLR2004 - as any length; Python refuses to parse thousands of digits
                    return _malformed("The Content-Length header must be a number of at most 19 digits.")
            elif version == "1.0" or field.lower() != b"chunked":
                return _malformed("The Transfer-Encoding header must be chunked, in HTTP/1.1 only.")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return _malformed(f"A request must have one Host header, not {hosts}.")
    if target[:1] != b"/" and target != b"*" and _authority_of(target) is None:
        return _malformed("The target must be a path, such as /healthz, or an http:// or https:// URL.")
    return None


def _authority_of(target: bytes) -> bytes | None:
    """The host of a target in absolute form, which replaces `Host` (RFC 9112, section 3.2.2)."""
    found = _ABSOLUTE.match(target)
    return found["authority"] if found is not None and _is_host(found["authority"]) else None


@functools.lru_cache(maxsize=256)
def _is_host(field: bytes) -> bool:
    """Whether `field` is a valid `Host`; an empty one is valid (RFC 9110, section 7.2)."""
    if (found := _HOST.fullmatch(field)) is None:
        return False
    try:
        return found["ipv6"] is None or bool(IPv6Address(found["ipv6"].decode()))
    except AddressValueError:
        return False


def _disconnect(cycle: RequestResponseCycle) -> None:
    """Reports to the application that its client has left, unless it has responded."""
    cycle.disconnected = not cycle.response_complete
    cycle.message_event.set()

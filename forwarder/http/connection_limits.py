"""Limits on one connection before its client is authenticated: time, requests, and bytes outside of bodies.

`LimitedProtocol` is uvicorn's HTTP protocol with these limits. It may depend on uvicorn: on the callbacks of asyncio and httptools,
and on uvicorn's state of a connection. Independent of routes. The application has limits of its own, which respond with a problem:
the size of a head, and the size and time of a body. `connections` limits the number of connections.
"""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, cast

import httptools
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forwarder.http.connections import SWEEP_SECONDS, Connections, Limited
from forwarder.http.framing import HeadFault, authority_of, head_fault
from forwarder.http.gathered_writes import GatheringTransport, TurnEnd
from forwarder.http.messages import (
    HALF_CLOSED,
    PROBLEM_JSON,
    Header,
    Response,
    new_request_id,
    problem_response,
    with_request_id,
)
from forwarder.http.open_connections import OPEN
from forwarder.reservation.problems import requests, service

MAX_HEAD_BYTES: Final = 32 * 1024
"""Maximum size of a request's target and all header lines."""

HEAD_TOO_LARGE: Final = problem_response(
    requests.HEADERS_TOO_LARGE.problem(f"The request's target and headers must have at most {MAX_HEAD_BYTES} bytes."),
    (b"connection", b"close"),
)

MAX_QUEUED: Final = 16
"""Maximum requests of one connection that are parsed and unanswered."""

_log = structlog.get_logger()

_HEAD_END: Final = b"\r\n\r\n"
_MAX_UNPARSED_BYTES: Final = 1024 * 1024
"""Reading stops when requests are held; the loop may still deliver bytes that it has read."""


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration, with the connections of its server: uvicorn passes its protocols nothing else."""

    def __init__(self, app: Any, connections: Connections, **options: Any) -> None:
        super().__init__(app, http=LimitedProtocol, **options)
        self.connections = connections
        self.turn_end = TurnEnd()


class LimitedProtocol(HttpToolsProtocol):
    """One connection.

    The parser buffers heads, chunk framing and trailers without limit. So it counts bytes since the last progress of the request,
    in whole reads: a read that makes progress is not counted. Trailers are ignored: they were not there when the request was
    admitted.

    Responses leave in the order of their requests, also one that refuses malformed bytes after a good request. At most
    `MAX_QUEUED` pipelined requests are parsed; the rest waits unparsed, and reading stops. Upgrades are ignored, as RFC 9110 (7.8)
    allows for unsupported ones: the request is served as if it had not asked for one.
    """

    config: LimitedConfig

    _handshake: Limited | None = None
    _open = False
    _in_head = False
    _in_body = False
    _moved_on = False
    _stalled_bytes = 0
    _deadline = math.inf
    _began = math.inf
    _unread_bytes = 0
    _unread_until = math.inf
    _unparsed = b""
    _head_without_upgrade: bytes | None = None
    _fault: HeadFault | None = None
    _eof = False
    _last_words = b""
    _full_until = math.inf

    def take_over(self, handshake: Limited) -> None:
        """Replaces `handshake` in the counts, once the connection is made."""
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(GatheringTransport(cast("asyncio.Transport", transport), self.config.turn_end))
        now = self.loop.time()
        OPEN[self.server, self.client] = self.transport
        self._requests: deque[RequestResponseCycle] = deque()  # unanswered, in their order
        self._connections = self.config.connections
        if self._handshake is not None:
            self._connections.remove(self._handshake)
        self._limits = self._connections.limits
        self._open = self._connections.add(self, self.client[0] if self.client else "", now)
        self._deadline = now + self._limits.head_seconds
        if not self._open:
            self.end("refused", _TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open, self._unparsed = False, b""
        for cycle in self._requests:  # the library notifies only the newest
            _disconnect(cycle)
        OPEN.pop((self.server, self.client), None)
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
        elif data.count(_HEAD_END) < MAX_QUEUED - len(self._requests):
            self._feed(data)
        else:
            self._parse(data)
        if self._moved_on or not self._open:
            self._stalled_bytes = 0
            return
        self._stalled_bytes += len(data)
        if self._deadline == math.inf:  # blank lines before a request
            self._deadline = self.loop.time() + self._limits.head_seconds
        if self._stalled_bytes > MAX_HEAD_BYTES and not self._unparsed:
            self.end("too_large", _TOO_LARGE)

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """A client that closes its sending side still gets the responses to its requests. With TLS both sides close."""
        if self.scheme == "https":
            return False
        self._eof = True
        if self._open and not self._unparsed:
            self._finish()
        return not self.transport.is_closing()

    def _parse(self, data: bytes) -> None:
        """Parses as many requests as may be queued, and holds the rest."""
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
        if len(data) > _MAX_UNPARSED_BYTES:
            self.end("too_large", _TOO_LARGE)

    def _go_on(self) -> None:
        """Continues to parse the held bytes."""
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
                    self.parser = httptools.HttpRequestParser(
                        self
                    )  # the earlier cycle has ended if its request says close
                    self.parser.feed_data(head or b"")
                else:
                    return
        except httptools.HttpParserError:
            fault = self._fault or _MALFORMED
            refusal = Response(fault.status, fault.detail.encode(), media_type=b"text/plain; charset=utf-8")
            self.end("malformed", _LastWords(refusal, fault.status.phrase.encode()))

    def on_message_begin(self) -> None:
        self._moved_on = self._in_head = True
        self._began = self.loop.time()
        self._deadline = self._began + self._limits.head_seconds
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self._fault = head_fault(method, version, self.url, self.headers)
        if self._fault is not None:
            raise ValueError(self._fault.detail)  # which ends the parsing
        if self.parser.should_upgrade():
            lines = [b"%b: %b" % line for line in self.headers if line[0] != b"upgrade"]
            start = b"%b %b HTTP/%b" % (method, self.url, version.encode())
            self._head_without_upgrade = b"\r\n".join((start, *lines, b"", b""))
            return
        if version == "1.0":
            self.expect_100_continue = False
        if self.url[:1] != b"/" and (authority := authority_of(self.url)):
            self.headers[:] = [line for line in self.headers if line[0] != b"host"] + [(b"host", authority)]
        self._moved_on, self._in_head, self._in_body = True, False, True
        self._deadline = self.loop.time() + self._limits.body_seconds + SWEEP_SECONDS
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
            self._say_last(self._last_words)

    @property
    def idle_since(self) -> float:
        """The event loop's time at which the last request began, if the connection is idle since its response; else infinity."""
        busy = self._in_head or self._in_body or self._requests or self.transport.get_write_buffer_size()
        return math.inf if busy else self._began

    def check(self, now: float) -> None:
        """Ends the connection if its client takes too long."""
        if now >= self._deadline:
            self._check_reading(now)
        self._check_writing(now)

    def end(self, reason: str, last: "_LastWords | None" = None) -> None:
        """Ends the connection, and counts the `reason`: answers complete requests, then sends `last`."""
        self._connections.count_end(reason)
        words = b""
        if last is not None:
            request_id = new_request_id()
            _log.debug("connection.refused", reason=reason, http_request_id=request_id.decode())
            words = last.said(request_id, self.server_state.default_headers)
        self._finish(words)

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
        if self._requests:
            self._last_words = last
            return
        self._say_last(last)

    def _say_last(self, last: bytes) -> None:
        if last:
            self.transport.write(last)
        self.transport.close()

    def _check_reading(self, now: float) -> None:
        if self._requests and (self.pipeline or not self._in_body):
            # The request waits for the response to an earlier one, which is not its client's fault.
            self._deadline = now + self._limits.head_seconds
        elif self._in_head:
            self.end("slow_head", _TIMED_OUT)
        else:
            self.end("silent" if self._began == math.inf else "slow_body")

    def _check_writing(self, now: float) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread_bytes or not unread:
            self._unread_bytes, self._unread_until = unread, now + self._limits.unread_seconds
        if unread and now >= min(self._unread_until, self._full_until):
            self._connections.count_end("unread")
            self.transport.abort()


def _disconnect(cycle: RequestResponseCycle) -> None:
    """Reports to the application that its client has left, unless it has responded."""
    cycle.disconnected = not cycle.response_complete
    cycle.message_event.set()


class _LastWords:
    """A response that no application sends: the last one of its connection."""

    def __init__(self, response: Response, reason: bytes) -> None:
        self._response = response
        self._head = b"HTTP/1.1 %d %b" % (response.status, reason)

    def said(self, request_id: bytes, default_headers: Sequence[Header]) -> bytes:
        response = self._response
        body = with_request_id(response.body, request_id) if response.media_type is PROBLEM_JSON else response.body
        lines = [
            self._head,
            b"connection: close",
            b"request-id: " + request_id,
            b"content-type: " + response.media_type,
            b"content-length: %d" % len(body),
        ]
        lines += [
            name + b": " + value for name, value in (*default_headers, *response.headers) if name != b"connection"
        ]
        return b"\r\n".join((*lines, b"", body))


_MALFORMED: Final = HeadFault("Invalid HTTP request received.")
_TOO_LARGE: Final = _LastWords(HEAD_TOO_LARGE, b"Request Header Fields Too Large")
_TIMED_OUT: Final = _LastWords(
    problem_response(requests.HEAD_TIMED_OUT.problem("The rest of the target and headers did not come in time.")),
    b"Request Timeout",
)
_TOO_MANY: Final = _LastWords(
    problem_response(service.TOO_MANY_CONNECTIONS.problem("This process has no room for another connection now.")),
    b"Service Unavailable",
)

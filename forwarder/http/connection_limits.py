"""What a client may use of a server before anything is known of it: connections, time, and bytes that are no part of a body.

`LimitedProtocol` is uvicorn's HTTP protocol with these limits; `Connections` are those of one server, which looks through them once
a second. May touch uvicorn, through the callbacks of asyncio and httptools and what it tells of a connection's state. Knows no
routes. The application has limits of its own, which answer with a problem: the size of a head, and the size and time of a body.
"""

import asyncio
import math
import resource
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import structlog
import uvicorn
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forwarder.http.gathered_writes import GatheringTransport, TurnEnd
from forwarder.http.messages import Response, new_request_id, problem_response, with_request_id
from forwarder.observability.metrics import CONNECTIONS, CONNECTIONS_ENDED
from forwarder.reservation.problems import requests, service

MAX_HEAD_BYTES: Final = 32 * 1024
"""Of the target and all header lines of a request."""

HEAD_TOO_LARGE: Final = problem_response(
    requests.HEADERS_TOO_LARGE.problem(f"The request's target and headers must have at most {MAX_HEAD_BYTES} bytes."),
    (b"connection", b"close"),
)

_log = structlog.get_logger()

_SWEEP_SECONDS: Final = 1.0
_ROOM_SECONDS: Final = 0.1
"""How often at the most a full server looks for connections to end in favour of new ones."""

_IDLE_SECONDS: Final = 1.0
"""For how long a connection must have had no request to be ended in favour of a new one."""

_OWN_FILES: Final = 64
"""Files of the process that are no client's: log, store, PMSs."""


_connections: Final[dict[tuple[object, object], "LimitedProtocol"]] = {}
"""Those of all servers of this process, by the server's address and the client's."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`max_connections`: at once, by all clients; `max_per_address`: by those of one address. `head_seconds`: how long a request's
    target and headers may take, and a new connection until it sends them. `body_seconds`: how long a body may take; the application
    refuses one that takes longer, this ends connections whose bodies nobody reads. `unread_seconds`: how long a client may read
    nothing of a response."""

    max_connections: int = 8192
    max_per_address: int = 4096
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    unread_seconds: float = 60.0


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration, and with it the connections of the server that it is for: its protocols are given no more."""

    def __init__(self, app: Any, connections: "Connections", **options: Any) -> None:
        super().__init__(app, http=LimitedProtocol, **options)
        self.connections = connections
        self.turn_end = TurnEnd()


class Limited(Protocol):
    """A connection that is counted, secured yet or not. `idle_since`: when its last request began, if nothing is under way."""

    @property
    def idle_since(self) -> float: ...

    def check(self, now: float) -> None:
        """End it if its client takes too long."""
        ...

    def end(self, reason: str) -> None: ...


class Connections:
    """The connections of one server.

    Where there are as many as there may be, those that have no request under way are ended in favour of new ones: first those that
    never sent one. Thus clients that only connect, however many, keep nobody out who asks for something.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._max = max(min(limits.max_connections, _open_files() - _OWN_FILES), 1)
        self._all: dict[Limited, str] = {}
        self._by_address: Counter[str] = Counter()
        self._silent: dict[Limited, None] = {}
        self._made_room = -math.inf

    @property
    def limits(self) -> ConnectionLimits:
        return self._limits

    def add(self, connection: Limited, address: str, now: float) -> bool:
        """Whether there is room for it. To be removed once it is lost, in either case."""
        if self._by_address[address] >= self._limits.max_per_address:
            return False
        if len(self._all) >= self._max and not self._make_room(now):
            return False
        self._all[connection] = address
        self._silent[connection] = None
        self._by_address[address] += 1
        return True

    def count_end(self, reason: str) -> None:
        """One was ended, for that reason."""
        CONNECTIONS_ENDED.labels(reason).inc()

    def spoke(self, connection: Limited) -> None:
        """It sent a whole request."""
        self._silent.pop(connection, None)

    def remove(self, connection: Limited) -> None:
        address = self._all.pop(connection, None)
        self._silent.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _make_room(self, now: float) -> bool:
        for connection in self._silent:
            connection.end("evicted")
            self.remove(connection)
            return True
        if now - self._made_room < _ROOM_SECONDS:
            return False
        self._made_room = now
        for connection in [each for each in self._all if each.idle_since <= now - _IDLE_SECONDS]:
            connection.end("evicted")
            self.remove(connection)
        return len(self._all) < self._max

    async def watch(self) -> None:
        """End what exceeds its time, until cancelled."""
        loop = asyncio.get_running_loop()
        pause = min(_SWEEP_SECONDS, self._limits.head_seconds / 4)
        while True:
            await asyncio.sleep(pause)
            self.sweep(loop.time())

    def sweep(self, now: float) -> None:
        """End what has exceeded its time by `now`, on the event loop's clock."""
        CONNECTIONS.set(len(self._all))
        for connection in list(self._all):
            connection.check(now)


class LimitedProtocol(HttpToolsProtocol):
    """One connection.

    Of the head of a request, of what frames a body's chunks and of trailers a parser holds any length. So bytes are counted from
    the last that moved the request on, in whole pieces as they are read: the piece that moves it on is not counted. Trailers are
    not read: what they would say was not there when the request was admitted.
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

    def take_over(self, handshake: Limited) -> None:
        """Once it is made, it counts in place of that."""
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(GatheringTransport(cast("asyncio.Transport", transport), self.config.turn_end))
        now = self.loop.time()
        _connections[self.server, self.client] = self
        self._connections = self.config.connections
        if self._handshake is not None:
            self._connections.remove(self._handshake)
        self._limits = self._connections.limits
        self._open = self._connections.add(self, self.client[0] if self.client else "", now)
        self._deadline = now + self._limits.head_seconds
        if not self._open:
            self.end("refused", _TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open = False
        _connections.pop((self.server, self.client), None)
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._open:
            return
        self._moved_on = False
        super().data_received(data)
        if self._moved_on:
            self._stalled_bytes = 0
            return
        self._stalled_bytes += len(data)
        if self._deadline == math.inf:  # blank lines before a request
            self._deadline = self.loop.time() + self._limits.head_seconds
        if self._stalled_bytes > MAX_HEAD_BYTES:
            self.end("too_large", _TOO_LARGE)

    def on_message_begin(self) -> None:
        self._moved_on = self._in_head = True
        self._began = self.loop.time()
        self._deadline = self._began + self._limits.head_seconds
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._moved_on, self._in_head, self._in_body = True, False, True
        self._deadline = self.loop.time() + self._limits.body_seconds + _SWEEP_SECONDS
        super().on_headers_complete()
        self.headers = []  # trailers go here, and nobody reads them

    def on_chunk_header(self) -> None:
        self._moved_on = True

    def on_body(self, body: bytes) -> None:
        self._moved_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._moved_on, self._in_body = True, False
        self._deadline = math.inf
        self._connections.spoke(self)
        super().on_message_complete()

    @property
    def idle_since(self) -> float:
        """When the last request began, if its response was read and none came since, on the event loop's clock; else infinity."""
        busy = self._in_head or self._in_body or self._responding or self.transport.get_write_buffer_size()
        return math.inf if busy else self._began

    def check(self, now: float) -> None:
        """End the connection if its client takes too long."""
        if now >= self._deadline:
            self._check_reading(now)
        self._check_writing(now)

    def end(self, reason: str, last: "_LastWords | None" = None) -> None:
        """End the connection, for a `reason` that is counted; what was written before is sent."""
        self._connections.count_end(reason)
        self._open, self._deadline = False, math.inf
        if last is not None and not self._responding:
            request_id = new_request_id()
            _log.debug("connection.refused", reason=reason, http_request_id=request_id.decode())
            self.transport.write(last.said(request_id))
        self.transport.close()

    @property
    def _responding(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # none before the first request, whatever its type says
        return cycle is not None and not cycle.response_complete

    def _check_reading(self, now: float) -> None:
        if self._responding and (self.pipeline or not self._in_body):
            # What came waits for the response to an earlier request, which is not its client's doing.
            self._deadline = now + self._limits.head_seconds
        elif self._in_head:
            self.end("slow_head", _TIMED_OUT)
        else:
            self.end("silent" if self._began == math.inf else "slow_body")

    def _check_writing(self, now: float) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread_bytes or not unread:
            self._unread_bytes, self._unread_until = unread, now + self._limits.unread_seconds
        elif now >= self._unread_until:
            self._connections.count_end("unread")
            self.transport.abort()


def connection_of(scope: Scope) -> asyncio.Transport | None:
    """The connection over which a request came; None where it came over none that is open in this process."""
    server, client = scope.get("server"), scope.get("client")
    connection = _connections.get((server, client)) if client else None
    return None if connection is None else connection.transport


def _open_files() -> int:
    """How many files this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


class _LastWords:
    """A response that no application sends: the connection's last."""

    def __init__(self, response: Response, reason: bytes) -> None:
        self._response = response
        self._head = b"HTTP/1.1 %d %b" % (response.status, reason)

    def said(self, request_id: bytes) -> bytes:
        response = self._response
        body = with_request_id(response.body, request_id)
        lines = [
            self._head,
            b"connection: close",
            b"request-id: " + request_id,
            b"content-type: " + response.media_type,
            b"content-length: %d" % len(body),
        ]
        lines += [name + b": " + value for name, value in response.headers if name != b"connection"]
        return b"\r\n".join((*lines, b"", body))


_TOO_LARGE: Final = _LastWords(HEAD_TOO_LARGE, b"Request Header Fields Too Large")
_TIMED_OUT: Final = _LastWords(
    problem_response(requests.HEAD_TIMED_OUT.problem("The rest of the target and headers did not come in time.")),
    b"Request Timeout",
)
_TOO_MANY: Final = _LastWords(
    problem_response(service.TOO_MANY_CONNECTIONS.problem("This process has no room for another connection now.")),
    b"Service Unavailable",
)

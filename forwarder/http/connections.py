"""The connections of one server: limits in total and per client, and which idle ones end to make room.

Independent of the protocol: `Limited` reports what a connection is doing.
"""

import asyncio
import math
import resource
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Protocol

from forwarder.observability.metrics import CONNECTIONS, CONNECTIONS_ENDED
from forwarder.process.addresses import client_of

SWEEP_SECONDS: Final = 1.0
"""How often each connection is checked."""

_ROOM_SECONDS: Final = 0.1
"""The shortest time between two searches of a full server for connections to end in favour of new ones."""

_IDLE_SECONDS: Final = 1.0
"""How long a connection must have been idle before it may be ended in favour of a new one."""

_OWN_FILES: Final = 64
"""Files of the process other than client connections: log, store, PMSs."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`max_connections`: at once, by all clients; `max_per_address`: from one IPv4 address or IPv6 /64. `head_seconds`: how long a
    request's target and headers may take, and a new connection until it sends them. `body_seconds`: how long a body may take; the
    application refuses a slower one, and this limit ends connections whose bodies the application does not read.
    `unread_seconds`: how long a client may read nothing of a response, or less than is buffered of it."""

    max_connections: int = 8192
    max_per_address: int = 4096
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    unread_seconds: float = 60.0


class Limited(Protocol):
    """A counted connection, before or after its TLS handshake. `idle_since`: when its last request began, if nothing is under
    way."""

    @property
    def idle_since(self) -> float: ...

    def check(self, now: float) -> None:
        """Ends it if its client takes too long."""
        ...

    def end(self, reason: str) -> None: ...


class Connections:
    """The connections of one server.

    At the maximum, ends idle connections in favour of new ones: first those that never sent a request. So clients that only
    connect, however many, cannot keep out clients that send requests.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._max = max(min(limits.max_connections, _open_files() - _OWN_FILES), 1)
        self._all: dict[Limited, Hashable] = {}
        self._by_client: Counter[Hashable] = Counter()
        self._silent: dict[Limited, None] = {}
        self._made_room = -math.inf

    @property
    def limits(self) -> ConnectionLimits:
        return self._limits

    def add(self, connection: Limited, address: str, now: float) -> bool:
        """Whether there is room for the connection. Must be removed once it is lost, in either case."""
        client = client_of(address)
        if self._by_client[client] >= self._limits.max_per_address:
            return False
        if len(self._all) >= self._max and not self._make_room(now):
            return False
        self._all[connection] = client
        self._silent[connection] = None
        self._by_client[client] += 1
        return True

    def count_end(self, reason: str) -> None:
        """Counts a connection that the server ended."""
        CONNECTIONS_ENDED.labels(reason).inc()

    def spoke(self, connection: Limited) -> None:
        """It sent a whole request."""
        self._silent.pop(connection, None)

    def remove(self, connection: Limited) -> None:
        if connection not in self._all:
            return
        client = self._all.pop(connection)
        self._silent.pop(connection, None)
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]

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
        """Ends connections that exceed their time, until cancelled."""
        loop = asyncio.get_running_loop()
        pause = min(SWEEP_SECONDS, self._limits.head_seconds / 4)
        while True:
            await asyncio.sleep(pause)
            self.sweep(loop.time())

    def sweep(self, now: float) -> None:
        """Ends connections that have exceeded their time by `now`, on the event loop's clock."""
        CONNECTIONS.set(len(self._all))
        for connection in list(self._all):
            connection.check(now)


def _open_files() -> int:
    """How many files this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft

"""The connections of one server: limits in total and per client, which idle ones end to make room, and their transports. Inbound
TLS: the server's certificate, renewed while it serves, and the handshake of each connection.

The server library sees a connection only after its handshake. Here the connection counts against the limits from the start, and its
handshake has the time limit of a request's head. Independent of the protocol: `Limited` reports what a connection is doing."""

import asyncio
import math
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from forwarder.observability.metrics import CONNECTIONS, CONNECTIONS_ENDED
from forwarder.process.addresses import client_of
from forwarder.process.supervision import BACKLOG

SWEEP_SECONDS: Final = 1.0  # between two checks of each connection
TRANSPORT: Final = "forwarder.transport"
"""Set in a request's state: the transport of its connection."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`max_per_address`: from one IPv4 address or IPv6 /64. `head_seconds`: how long a request's target and headers may take, and a
    new connection until it sends them. `body_seconds`: for bodies that the application does not read; it refuses slower ones
    itself. `unread_seconds`: how long a client may read nothing of a response, or less than is buffered of it."""

    max_connections: int = 8192
    max_per_address: int = 4096
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    unread_seconds: float = 60.0


class Limited(Protocol):
    """A counted connection. `idle_since`: when its last request began, if it is idle. `check` ends it if its client is too slow."""

    @property
    def idle_since(self) -> float: ...
    def check(self, now: float) -> None: ...
    def end(self, reason: str) -> None: ...


class Connections:
    """At the maximum, ends idle connections in favour of new ones: first those that never sent a request. So clients that only
    connect, however many, cannot keep out clients that send requests."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = math.inf if soft == resource.RLIM_INFINITY else soft - 64  # for log, store and PMSs
        self._max = max(min(limits.max_connections, files), 1)
        self._all: dict[Limited, Hashable] = {}
        self._by_client: Counter[Hashable] = Counter()
        self._silent: dict[Limited, None] = {}
        self._made_room = -math.inf

    def add(self, connection: Limited, address: str, now: float) -> bool:
        """Whether there is room for the connection. Must be removed once it is lost, in either case."""
        client = client_of(address)
        full = len(self._all) >= self._max
        if self._by_client[client] >= self.limits.max_per_address or (full and not self._make_room(now)):
            return False
        self._all[connection] = client
        self._silent[connection] = None
        self._by_client[client] += 1
        return True

    def spoke(self, connection: Limited) -> None:
        self._silent.pop(connection, None)

    def remove(self, connection: Limited) -> None:
        if connection in self._all:
            client = self._all.pop(connection)
            self._silent.pop(connection, None)
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    def _make_room(self, now: float) -> bool:
        ended = list(islice(self._silent, 1))
        if not ended:
            if now - self._made_room < 0.1:  # noqa: PLR2004 - seconds between two searches of a full server
                return False
            self._made_room = now
            ended = [each for each in self._all if each.idle_since <= now - 1.0]
        for connection in ended:
            connection.end("evicted")
            self.remove(connection)
        return len(self._all) < self._max

    async def watch(self) -> None:
        """Ends connections that have exceeded their time, on the event loop's clock."""
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.limits.head_seconds / 4))
            CONNECTIONS.set(len(self._all))
            for connection in list(self._all):
                connection.check(asyncio.get_running_loop().time())


class GatheringTransport:
    """A connection's transport that sends what was written in a turn of the event loop at its end, with one system call: the HTTP
    server writes a response's head and body separately. Closing sends the held bytes first; aborting drops them, as it drops bytes
    that the system has not taken. Once the connection is closing, writes are dropped: its client may reset it at any time."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._held:
            asyncio.get_running_loop().call_soon(self.send_held)
        self._held.append(bytes(data))
        # At once, so that the transport notices early enough that its client reads too slowly.
        if len(data) > 16 * 1024 or len(self._held) > 16:  # noqa: PLR2004 - pieces
            self.send_held()

    def send_held(self) -> None:
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            try:
                self._transport.write(b"".join(held))
            except Exception:  # noqa: BLE001 - the transport's own failure ends this connection, and no other
                _log.warning("connection.write_failed", exc_info=True)
                self.abort()

    def close(self) -> None:
        self.send_held()
        self._transport.close()

    def abort(self) -> None:
        self._held = []
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._held))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: a certificate with its chain, its key without a password, and authorities if clients need a certificate."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(self.certificate, self.key, password="")
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class ServerTls:
    """The TLS context for new connections. Creating it raises `OSError` if the files cannot be used."""

    def __init__(self, files: TlsFiles) -> None:
        self._files, self._stamps, self.context = files, _stamps(files), files.context()

    def renew(self) -> None:
        """Loads changed files: all of them, or none. Established connections are not affected."""
        try:
            if (stamps := _stamps(self._files)) == self._stamps:
                return
            self._stamps = stamps
            self.context = self._files.context()
        except OSError as error:
            _log.error("tls.certificate_not_renewed", file=str(self._files.certificate), error=str(error))
        else:
            _log.info("tls.certificate_renewed", file=str(self._files.certificate))

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(10)  # a certificate is usually renewed weeks before it expires
            self.renew()


def _stamps(files: TlsFiles) -> list[tuple[int, int]]:
    every = (files.certificate, files.key, files.client_ca)
    return [(found.st_mtime_ns, found.st_ino) for file in every if file is not None and (found := file.stat())]


async def accept_secured(
    listening: socket.socket, tls: ServerTls, connections: Connections, make: Callable[..., asyncio.BaseProtocol]
) -> None:
    """Accepts connections in place of the server library, until cancelled; `make` creates each one's protocol, once secured."""
    loop, handshakes = asyncio.get_running_loop(), set[_Handshake]()

    async def secure(handshake: _Handshake, peer: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(
                lambda: make(handshake=handshake),
                peer,
                ssl=tls.context,
                ssl_handshake_timeout=connections.limits.head_seconds,
                ssl_shutdown_timeout=1.0,
            )
        except OSError:  # no TLS, no common version, no trusted client certificate, or too slow
            CONNECTIONS_ENDED.labels("tls").inc()
        finally:
            connections.remove(handshake)
            handshakes.discard(handshake)

    listening.listen(BACKLOG)
    try:
        while True:
            try:
                peer, address = await loop.sock_accept(listening)
            except OSError:  # more than this process may open
                await asyncio.sleep(0.1)
                continue
            handshake = _Handshake()
            if not connections.add(handshake, str(address[0]), loop.time()):
                CONNECTIONS_ENDED.labels("refused").inc()
                peer.close()
                continue
            peer.setblocking(False)  # noqa: FBT003 - its only parameter
            handshake.task = loop.create_task(secure(handshake, peer))
            handshakes.add(handshake)
    finally:
        listening.close()
        for handshake in handshakes:
            handshake.task.cancel()


class _Handshake:
    """A handshake, which counts as a connection that has sent nothing. It has a time limit of its own."""

    idle_since = math.inf
    task: asyncio.Task[None]

    def check(self, now: float) -> None:
        pass

    def end(self, reason: str) -> None:
        CONNECTIONS_ENDED.labels(reason).inc()
        self.task.cancel()

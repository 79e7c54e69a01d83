"""Inbound TLS: the certificate of a server, renewed while it serves, and the handshake of each connection.

The server library sees a connection only after its handshake. Here the connection counts against the limits from the start, and
its handshake has the time limit of a request's head.
"""

import asyncio
import math
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from forwarder.http.connection_limits import LimitedProtocol
from forwarder.http.connections import Connections
from forwarder.process.supervision import BACKLOG

_LOOK_SECONDS: Final = 10.0
"""How often the files are checked. A certificate is usually renewed weeks before it expires."""
_GOODBYE_SECONDS: Final = 1.0
"""How long a client may take to acknowledge the end of its connection."""
_FULL_SECONDS: Final = 0.1

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: a certificate with its chain, its key without a password, and the authorities for clients' certificates; without
    these, clients need no certificate."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """The context, for TLS 1.2 or newer. Raises `OSError`, also as `ssl.SSLError`."""
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
        self._files = files
        self._stamps = self._stamped()
        self.context = files.context()

    def renew(self) -> None:
        """Loads changed files: all of them, or none. Established connections are not affected."""
        try:
            stamps = self._stamped()
            if stamps == self._stamps:
                return
            self._stamps = stamps
            self.context = self._files.context()
        except OSError as error:
            _log.error("tls.certificate_not_renewed", file=str(self._files.certificate), error=str(error))
        else:
            _log.info("tls.certificate_renewed", file=str(self._files.certificate))

    async def watch(self) -> None:
        """Renew, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.renew()

    def _stamped(self) -> list[tuple[int, int]]:
        files = (self._files.certificate, self._files.key, self._files.client_ca)
        found = [file.stat() for file in files if file is not None]
        return [(each.st_mtime_ns, each.st_ino) for each in found]


async def accept_secured(
    listening: socket.socket, tls: ServerTls, connections: Connections, make: Callable[..., LimitedProtocol]
) -> None:
    """Accepts connections in place of the server library, until cancelled; then ends unsecured connections, and the listening.
    After a successful handshake, `make` creates the connection's protocol."""
    loop, handshakes = asyncio.get_running_loop(), set[_Handshake]()

    async def secure(handshake: _Handshake, peer: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(
                lambda: make(handshake=handshake),
                peer,
                ssl=tls.context,
                ssl_handshake_timeout=connections.limits.head_seconds,
                ssl_shutdown_timeout=_GOODBYE_SECONDS,
            )
        except OSError:  # no TLS, no common version, no trusted client certificate, or too slow
            connections.count_end("tls")
        finally:
            connections.remove(handshake)
            handshakes.discard(handshake)

    listening.listen(BACKLOG)
    try:
        while True:
            try:
                peer, address = await loop.sock_accept(listening)
            except OSError:  # more than this process may open
                await asyncio.sleep(_FULL_SECONDS)
                continue
            handshake = _Handshake(connections)
            if not connections.add(handshake, str(address[0]), loop.time()):
                connections.count_end("refused")
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

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def check(self, now: float) -> None:
        pass

    def end(self, reason: str) -> None:
        self._connections.count_end(reason)
        self.task.cancel()

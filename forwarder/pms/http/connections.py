"""Connections to PMSs: the exchanges over one, one at a time; how it is established (the first address of a name that takes it, TLS
where it is asked for); how many are in use at once, and which are kept for the next request; and the certificates that they trust
and show (an SSL context for each account that has its own, made once)."""

import asyncio
import os
import re
import select
import socket
import ssl
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import cast

import certifi

from forwarder.pms.http.client import Held, Origin, Request, Reuse, destination_of, encoded
from forwarder.pms.http.response import (
    MAX_RESPONSE_BYTES,
    NoResponse,
    NotSent,
    Response,
    ResponseReader,
    connection_lost,
    refused_certificate,
    unreachable,
)
from forwarder.pms.port import LEASE_LOST, BadOptions, ClientTls
from forwarder.pms.responses import shortened


class Connection(asyncio.Protocol):
    """`expires`, by the loop's clock: when `expire` is to be called, at the end of an exchange's time or the idle time. `on_lost`
    is called once, when it has ended. `used`: whether anything was sent over it. Bytes that nobody asked for end it."""

    def __init__(self, on_lost: Callable[["Connection"], None]) -> None:
        self._on_lost = on_lost
        self._reader = ResponseReader(MAX_RESPONSE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._readable = select.poll()
        self._transport: asyncio.Transport
        self._pending: asyncio.Future[None] | None = None
        self._failure: NoResponse | NotSent | None = None
        self.used = self._kept = self._tls_1_3 = self._refused = False
        self.expires = float("inf")

    async def exchange(
        self, content: bytes, until: float, *, held: Held | None = None, bodiless: bool = False
    ) -> Response:
        """The response to `content`, a whole request, before `until` by the loop's clock; `bodiless`: to a HEAD. Where there is
        none, the connection has ended, unless the lease was lost. Where this is cancelled, `abort` it: what was written by then may
        reach the PMS all the same."""
        if not self.is_open():
            raise self.ended()
        if held is not None and not held():
            raise NotSent(LEASE_LOST, "It was held no longer when this was to be sent.")
        self.used = True
        self._transport.write(content)  # in one step with the look above: nothing is awaited in between
        self._reader.begin(bodiless=bodiless)
        self._pending = pending = self._loop.create_future()
        self.expires = until
        await pending
        try:
            if self._failure is not None:
                raise self._failure
            return self._reader.response()
        except NoResponse as error:
            error.status = self._reader.status
            raise
        finally:
            self._failure = None  # which knows this frame: a cycle

    def ended(self) -> NotSent:
        return refused_certificate() if self._refused else unreachable("the connection ended before anything was sent")

    def is_open(self) -> bool:
        """Whether it has not ended, as far as the loop has seen."""
        return not self._transport.is_closing()

    def is_reusable(self) -> bool:
        """After an exchange: whether the next may use it."""
        if self._pending is not None or not self.is_open() or not self._reader.reusable:
            return False
        # A response that came before all of its request had left: what reads the rest, if anything, is not known.
        return not (self._transport.get_write_buffer_size() or self._underneath.get_write_buffer_size())

    def is_fit(self) -> bool:
        """Between two exchanges: whether it is open and has received nothing, not even an end that the loop has yet to see."""
        return self.is_open() and not self._readable.poll(0)

    def keep_for(self, seconds: float) -> None:
        """Between two exchanges: it expires in so many seconds."""
        self.expires = self._loop.time() + seconds
        self._kept = True

    def expire(self) -> None:
        if self._pending is None:
            self._transport.close()
        else:
            self._fail(NoResponse("pms_timed_out", "The PMS was sent the request and did not answer in time."))

    def abort(self) -> None:
        """End it at once. An exchange that is under way fails."""
        self._fail(connection_lost("it was given up"))

    async def secure(self, trusted: ssl.SSLContext, host: str) -> None:
        """Agrees on TLS with `host`. Raises `OSError` and `ssl.SSLError`."""
        if not self._transport.is_closing():
            # The PMS has a second to agree that the connection ends.
            secured = await self._loop.start_tls(
                self._transport, self, trusted, server_hostname=host, ssl_shutdown_timeout=1.0
            )
            if secured is not None:  # else it was closed meanwhile
                self._transport = secured
                self._tls_1_3 = secured.get_extra_info("ssl_object").version() == "TLSv1.3"
                return
        raise ConnectionError("the connection ended before TLS was agreed on")

    # --- what the event loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._underneath = cast("asyncio.Transport", transport)
        self._readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._pending is None:
            self._transport.abort()
            return
        try:
            if self._reader.feed(data):
                self._finish()
        except NoResponse as error:
            self._fail(error)

    def eof_received(self) -> None:
        if self._pending is not None and self._reader.end():
            self._finish()
        else:
            self._fail(connection_lost("it ended before the response was whole"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._refused = _is_refusal(exc)
        # In TLS 1.3 a server looks at our certificate only after we may speak, and reads nothing before it took it. With an older
        # version it may ask for one when it has read a request. One that resets the connection says neither: that is in doubt.
        certain = self._refused and self._tls_1_3 and not self._kept and not self._reader.received
        self._fail(refused_certificate() if certain else connection_lost(str(exc or "it was closed")))
        self._reader.close()
        self._on_lost(self)

    def _fail(self, error: NoResponse | NotSent) -> None:
        if self._pending is not None:
            self._failure = error
            self._finish()
        self._transport.abort()

    def _finish(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None and not pending.done():
            pending.set_result(None)


async def connect(origin: Origin, trusted: ssl.SSLContext | None, on_lost: Callable[[Connection], None]) -> Connection:
    """An established connection, after a TLS handshake where the origin has TLS. `trusted`: the authorities to trust; the system's,
    unless given. Raises `NotSent`. Being cancelled leaves nothing open."""
    loop = asyncio.get_running_loop()
    try:
        peer = await _first_of(origin)
        try:
            _, connection = await loop.create_connection(partial(Connection, on_lost), sock=peer)
            if origin.tls:
                await connection.secure(trusted or system_trust(), origin.host)
        except BaseException:
            peer.close()
            raise
    except ssl.SSLCertVerificationError as error:
        # Of another name, of an authority that is not trusted, or expired.
        detail = f"The PMS's certificate is not trusted: {shortened(error.verify_message)}."
        raise NotSent("pms_not_trusted", detail) from error
    except (OSError, ValueError) as error:  # certificates and names that cannot be are ValueErrors
        if _is_refusal(error):
            raise refused_certificate() from error
        raise unreachable(str(error) or type(error).__name__) from error
    return connection


def _is_refusal(error: Exception | None) -> bool:
    """Whether it is a PMS's alert that it does not take our certificate, or wants one."""
    alerts = "ALERT_(UNKNOWN_CA|(BAD|UNSUPPORTED)_CERTIFICATE|CERTIFICATE_(REQUIRED|REVOKED|EXPIRED|UNKNOWN))$"
    return isinstance(error, ssl.SSLError) and re.search(alerts, error.reason or "") is not None


async def _first_of(origin: Origin) -> socket.socket:
    """Connected to the first of the host's addresses that takes it. They are tried in the system's order, but of either family in
    turn, each alone for 0.25 s before the next is tried as well (RFC 8305). Raises `OSError` where none does."""
    found = await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    first = [(family, address) for family, *_, address in found if family == found[0][0]]
    second = [(family, address) for family, *_, address in found if family != found[0][0]]
    untried = [each for each in chain.from_iterable(zip_longest(first, second)) if each is not None]
    tried: list[asyncio.Task[socket.socket]] = []
    under_way: set[asyncio.Task[socket.socket]] = set()
    try:
        while True:
            if untried:
                tried.append(asyncio.create_task(_connected(*untried.pop(0))))
                under_way.add(tried[-1])
            pause = 0.25 if untried else None
            done, under_way = await asyncio.wait(under_way, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                if attempt.exception() is None or not (untried or under_way):
                    tried.remove(attempt)
                    return attempt.result()
    finally:
        for attempt in tried:
            attempt.cancel()
        for outcome in await asyncio.gather(*tried, return_exceptions=True):
            if isinstance(outcome, socket.socket):
                outcome.close()


async def _connected(
    family: socket.AddressFamily, address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
) -> socket.socket:
    peer = socket.socket(family, socket.SOCK_STREAM)
    try:
        peer.setblocking(False)  # noqa: FBT003 - its only parameter
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(peer, address)
    except BaseException:
        peer.close()
        raise
    return peer


# --- how many there are, and which are kept ---

_Keeping = tuple[Origin, str | None, ssl.SSLContext | None]
"""The key of kept connections: destination, owner and trusted authorities."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """`max_connections`: in use at once, of all PMSs together; `pool_seconds`: how long to wait for one. `max_idle_per_pms` are
    kept open for each account of a PMS, for `idle_seconds`: less than the 5 s after which common servers close theirs, so that a
    request seldom meets a connection that is just being closed, which would leave it in doubt."""

    max_connections: int = 2048
    pool_seconds: float = 2.0
    connect_seconds: float = 5.0
    max_idle_per_pms: int = 64
    idle_seconds: float = 4.0


class ConnectionPool(AbstractAsyncContextManager["ConnectionPool", None]):
    """A `Transport`. Belongs to the event loop of its first request. `trusted`: the authorities that are believed where an account
    says nothing else; the system's, unless given.

    No request is sent a second time, and no other connection is tried. It follows no redirect, keeps no cookie, uses no proxy of
    the environment. Of the kept connections, the last one used is used next."""

    def __init__(self, limits: PoolLimits, trusted: ssl.SSLContext | None = None) -> None:
        self._limits, self._trusted = limits, trusted
        self._free = limits.max_connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: dict[_Keeping, list[Connection]] = {}
        self._open: dict[Connection, _Keeping] = {}
        self._next_look: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._closed = asyncio.Event()

    async def exchange(
        self, request: Request, deadline: float, held: Held | None = None, reuse: Reuse | None = None
    ) -> Response:
        """With `reuse` the connection stays in use until that ends. Cancelling it closes its connection and leaves nothing running;
        bytes already written may still reach the PMS."""
        destination = destination_of(request.url)
        content = encoded(request, destination)
        owner, trust = ("", None) if reuse is None else (reuse.owner, reuse.trust)
        keeping = (destination.origin, owner, trust)
        await self._turn(deadline)
        try:
            connection = self._fit(keeping) or await self._opened(keeping, deadline)
        except BaseException:
            self._pass_on()
            raise
        response = None
        try:
            if reuse is not None:
                reuse.reused |= connection.used
            response = await connection.exchange(content, deadline, held=held, bodiless=request.method == "HEAD")
            return response
        finally:
            if reuse is None or reuse.owner is None or response is None:
                self._give_back(connection, keep=reuse is None or reuse.owner is not None)
            else:
                reuse.when_over.append(partial(self._give_back, connection))

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all connections, and the exchanges on them. Nothing is open when it returns, and nothing can be opened any more."""
        self._closed.set()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        if self._next_look is not None:
            self._next_look.cancel()
        for connection in list(self._open):
            connection.abort()
        if self._open:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def _give_back(self, connection: Connection, keep: bool) -> None:  # noqa: FBT001 - `Reuse` passes it alone
        """After an exchange, or instead of one; kept only if it is fit for another."""
        keeping = self._open.get(connection) if keep and connection.is_reusable() else None
        idle = None if keeping is None else self._idle.setdefault(keeping, [])
        if idle is None or len(idle) >= self._limits.max_idle_per_pms or len(self._open) > self._limits.max_connections:
            connection.abort()
        else:
            connection.keep_for(self._limits.idle_seconds)
            idle.append(connection)
        self._pass_on()

    def _fit(self, keeping: _Keeping) -> Connection | None:
        idle = self._idle.get(keeping)
        while idle:
            connection = idle.pop()
            if connection.is_fit():
                return connection
            connection.abort()
        return None

    async def _turn(self, until: float) -> None:
        """Return when one more may be in use: first come, first served."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(min(until, turn.get_loop().time() + self._limits.pool_seconds)):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            if isinstance(error, TimeoutError):
                raise NotSent("no_connection_free", "All connections to PMSs were in use.", passing=True) from error
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def _opened(self, keeping: _Keeping, until: float) -> Connection:
        if self._closed.is_set():
            raise unreachable("no connections are opened any more")
        try:
            async with asyncio.timeout_at(min(until, asyncio.get_running_loop().time() + self._limits.connect_seconds)):
                connection = await connect(keeping[0], keeping[2] or self._trusted, self._lost)
        except TimeoutError as error:
            detail = "The PMS did not take the connection in time."
            raise NotSent("pms_connect_timed_out", detail, passing=True) from error
        if self._closed.is_set() or not connection.is_open():
            connection.abort()
            raise connection.ended()
        self._open[connection] = keeping
        if self._next_look is None:
            self._look()
        return connection

    def _lost(self, connection: Connection) -> None:
        if (keeping := self._open.pop(connection, None)) is not None:
            idle = self._idle.get(keeping, [])
            if connection in idle:
                idle.remove(connection)
            if not idle:
                self._idle.pop(keeping, None)
        if not self._open and self._emptied is not None:
            self._emptied.set_result(None)

    def _look(self) -> None:
        """End those whose time is over, every 0.1 s while any is open: a timer for each exchange would cost 2 µs."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [each for each in self._open if each.expires <= now]:
            connection.expire()
        self._next_look = loop.call_later(0.1, self._look) if self._open else None


# --- trust ---


@cache
def system_trust() -> ssl.SSLContext:
    """Believes whom the system does; on a machine without certificates of its own, such as a bare container, whom Mozilla does."""
    return _new_context(None)


@lru_cache(maxsize=1024)
def trust_of(tls: ClientTls) -> ssl.SSLContext:
    """The same one for the same certificates. Raises `BadOptions` where they cannot be used, or do not fit together."""
    if tls.authorities == "" or (tls.certificate is None) != (tls.key is None):
        raise BadOptions("A client certificate needs its key, and authorities are one certificate or more (PEM).")
    try:
        context = _new_context(tls.authorities)
    except ssl.SSLError as error:
        raise BadOptions(f"The authorities cannot be read as PEM certificates: {error.reason or error}.") from None
    if tls.certificate is not None:
        # OpenSSL reads keys from files alone: in memory where the system has that, else in one that only this user may read.
        in_memory = hasattr(os, "memfd_create")
        try:
            with os.fdopen(os.memfd_create("key"), "wb") if in_memory else tempfile.NamedTemporaryFile("wb") as file:
                file.write(f"{tls.key}\n{tls.certificate}".encode())
                file.flush()
                # Without a password it would ask for one at the terminal.
                context.load_cert_chain(f"/proc/self/fd/{file.fileno()}" if in_memory else file.name, password="")
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror
            detail = f"The client certificate and its key (PEM, without a password) cannot be used together: {reason}."
            raise BadOptions(detail) from None
    return context


def _new_context(authorities: str | None) -> ssl.SSLContext:
    paths = ssl.get_default_verify_paths()
    there_are = authorities or paths.cafile or (paths.capath and any(Path(paths.capath).iterdir()))
    context = ssl.create_default_context(cadata=authorities, cafile=None if there_are else certifi.where())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context

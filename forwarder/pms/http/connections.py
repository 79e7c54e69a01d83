"""Connections to PMSs: how many are in use at once, and which are kept for the next request. Requests go out over one in one piece,
one at a time, and their responses are read whole.

NotSent       no connection was free or came to stand, the lease was lost, or the connection had ended before anything was written
NoResponse    something may have been sent
"""

import asyncio
import select
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Self, cast

from forwarder.pms.http.client import Held, Origin, Request, Reuse, destination_of, encoded
from forwarder.pms.http.connect import connect, is_refusal
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
from forwarder.pms.port import LEASE_LOST

_Keeping = tuple[Origin, str | None, ssl.SSLContext | None]
"""The key of kept connections: destination, owner and trusted authorities."""

_ANYBODY: Final = ""
_LOOK_SECONDS: Final = 0.1
"""How often all connections are looked at for those whose time is over: a timer for each exchange would cost 2 µs."""


class Connection(asyncio.Protocol):
    """`expires`, by the loop's clock, is when `expire` is to be called: during an exchange at the end of its time, and between two
    of them as its keeper sets it. `on_lost` is called once, when it has ended. `used`: whether anything was sent over it. Bytes
    that come when nothing was asked end it."""

    def __init__(self, max_bytes: int, on_lost: Callable[["Connection"], None]) -> None:
        self._on_lost = on_lost
        self._reader = ResponseReader(max_bytes)
        self._loop = asyncio.get_running_loop()
        self._readable = select.poll()
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
        if self._transport.is_closing():
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
        if self._pending is not None or self._transport.is_closing() or not self._reader.reusable:
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

    def secure(self, transport: asyncio.Transport) -> None:
        """From now on it is `transport`, over the one that it was made with."""
        self._transport = transport
        self._tls_1_3 = transport.get_extra_info("ssl_object").version() == "TLSv1.3"

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
        self._refused = is_refusal(exc)
        # In TLS 1.3 a server looks at our certificate only after we may speak, and reads nothing before it took it. With an older
        # version it may ask for one when it has read a request. One that resets the connection says neither: that is in doubt.
        unheard = self._tls_1_3 and not self._kept and not self._reader.received
        if self._refused and unheard:
            self._fail(refused_certificate())
        else:
            self._fail(connection_lost(str(exc or "it was closed")))
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


class ConnectionPool:
    """A `Transport`. Belongs to the event loop of its first request. `aclose` it in the end: it leaves nothing open.

    What can be relied on: `NotSent` is raised only when it is certain that nothing was sent. After the first byte was written it is
    `NoResponse`. No request is sent a second time, and no other connection is tried. It follows no redirect, keeps no cookie, uses
    no proxy of the environment, and reads no more of a response than its limit.

    `trusted`: whose certificates are believed where an account says nothing else; the system's, unless given.

    Of the connections that are kept, the one that was used last is used next. Exchanges whose time is over fail within
    `_LOOK_SECONDS`."""

    def __init__(self, limits: PoolLimits, trusted: ssl.SSLContext | None = None) -> None:
        self._limits, self._trusted = limits, trusted
        self._free = limits.max_connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: dict[_Keeping, list[Connection]] = {}
        self._open: dict[Connection, _Keeping] = {}
        self._next_look: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._closed = False

    async def exchange(
        self, request: Request, deadline: float, held: Held | None = None, reuse: Reuse | None = None
    ) -> Response:
        """The response, with its body in memory. `held` is called once the connection is established, in the same step of the event
        loop that then writes the request: no other task runs between the two. With `reuse` the connection stays in use until that
        ends. Cancelling it closes its connection and leaves nothing running; bytes already written may still reach the PMS."""
        destination = destination_of(request.url)
        content = encoded(request, destination)
        owner, trust = (_ANYBODY, None) if reuse is None else (reuse.owner, reuse.trust)
        keeping = (destination.origin, owner, trust)
        if self._free and (kept := self._fit(keeping)) is not None:
            self._free -= 1
            connection = kept
        else:
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
            if reuse is None or response is None:
                self._give_back(connection, keep=reuse is None or reuse.owner is not None)
            else:
                reuse.when_over(partial(self._give_back, connection))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all connections, and the exchanges on them. Nothing is open when it returns, and nothing can be opened any more."""
        self._closed = True
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
            async with asyncio.timeout_at(self._sooner(until, self._limits.pool_seconds)):
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
        if self._is_closed():
            raise unreachable("no connections are opened any more")
        try:
            async with asyncio.timeout_at(self._sooner(until, self._limits.connect_seconds)):
                make = partial(Connection, MAX_RESPONSE_BYTES, self._lost)
                connection, secured = await connect(make, keeping[0], keeping[2] or self._trusted)
        except TimeoutError as error:
            detail = "The PMS did not take the connection in time."
            raise NotSent("pms_connect_timed_out", detail, passing=True) from error
        if secured is not None:
            connection.secure(secured)
        if self._is_closed() or not connection.is_open():
            connection.abort()
            raise connection.ended()
        self._open[connection] = keeping
        if self._next_look is None:
            self._look()
        return connection

    def _is_closed(self) -> bool:
        return self._closed

    def _sooner(self, until: float, seconds: float) -> float:
        return min(until, asyncio.get_running_loop().time() + seconds)

    def _lost(self, connection: Connection) -> None:
        keeping = self._open.pop(connection, None)
        if keeping is not None and connection in (idle := self._idle.get(keeping, [])):
            idle.remove(connection)
        if keeping is not None and not self._idle.get(keeping):
            self._idle.pop(keeping, None)
        if not self._open and self._emptied is not None:
            self._emptied.set_result(None)

    def _look(self) -> None:
        """End those whose time is over, now and again while any is open."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [each for each in self._open if each.expires <= now]:
            connection.expire()
        self._next_look = loop.call_later(_LOOK_SECONDS, self._look) if self._open else None

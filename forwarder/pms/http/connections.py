"""Connections to PMSs: how many are in use at once, and which are kept for the next request. Requests go out over one in one piece,
one at a time, and their responses are read whole."""

import asyncio
import ssl
from collections import deque
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

from forwarder.pms.http.client import Held, Origin, Request, Reuse, destination_of, encoded
from forwarder.pms.http.connect import Connection, connect
from forwarder.pms.http.response import NotSent, Response, unreachable

_Keeping = tuple[Origin, str | None, ssl.SSLContext | None]
"""The key of kept connections: destination, owner and trusted authorities."""

_LOOK_SECONDS: Final = 0.1
"""How often all connections are looked at for those whose time is over: a timer for each exchange would cost 2 µs."""


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
    """A `Transport`. Belongs to the event loop of its first request. `aclose` it in the end: it leaves nothing open. `trusted`: the
    authorities that are believed where an account says nothing else; the system's, unless given.

    After the first byte it raises `NoResponse`, before it `NotSent`. No request is sent a second time, and no other connection is
    tried. It follows no redirect, keeps no cookie, uses no proxy of the environment, and reads no more of a response than its
    limit. Of the kept connections, the last one used is used next. Exchanges whose time is over fail within `_LOOK_SECONDS`."""

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
        if self._is_closed():
            raise unreachable("no connections are opened any more")
        try:
            async with asyncio.timeout_at(min(until, asyncio.get_running_loop().time() + self._limits.connect_seconds)):
                connection = await connect(keeping[0], keeping[2] or self._trusted, self._lost)
        except TimeoutError as error:
            detail = "The PMS did not take the connection in time."
            raise NotSent("pms_connect_timed_out", detail, passing=True) from error
        if self._is_closed() or not connection.is_open():
            connection.abort()
            raise connection.ended()
        self._open[connection] = keeping
        if self._next_look is None:
            self._look()
        return connection

    def _is_closed(self) -> bool:
        return self._closed

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
        """End those whose time is over, now and again while any is open."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [each for each in self._open if each.expires <= now]:
            connection.expire()
        self._next_look = loop.call_later(_LOOK_SECONDS, self._look) if self._open else None

"""The connections to all PMSs: how many are in use at once, and which are kept for the next request."""

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass
from typing import Final

import httpx

from forwarder.pms.http.connecting import connect
from forwarder.pms.http.connection import Connection
from forwarder.pms.http.request import Origin

_LOOK_SECONDS: Final = 0.1
"""How often all connections are looked at for those whose time is over: a timer for each exchange would cost 2 µs."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """`max_connections`: in use at once, of all PMSs together; `pool_seconds`: how long to wait for one.

    `max_idle_per_pms` are kept open, for `idle_seconds`: less than the 5 s after which common servers close theirs, so that a
    request seldom meets a connection that is just being closed, which would leave it in doubt.
    """

    max_connections: int = 2048
    pool_seconds: float = 2.0
    connect_seconds: float = 5.0
    max_idle_per_pms: int = 64
    idle_seconds: float = 4.0


class Pool:
    """Each connection that `kept` or `obtained` returns is to be given back, whatever became of it. Of those that are kept, the one
    that was used last is used next. Exchanges whose time is over fail within `_LOOK_SECONDS`.

    `max_bytes`: of an answer. `trusted`: as of `connect`.
    """

    def __init__(self, limits: PoolLimits, max_bytes: int, trusted: ssl.SSLContext | None) -> None:
        self._limits = limits
        self._max_bytes = max_bytes
        self._trusted = trusted
        self._free = limits.max_connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: dict[Connection, Origin] = {}
        self._look: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._closed = False

    def kept(self, origin: Origin) -> Connection | None:
        """One that is fit to be used at once, if there is any."""
        if not self._free or (connection := self._fit(origin)) is None:
            return None
        self._free -= 1
        return connection

    async def obtained(self, origin: Origin, until: float) -> Connection:
        """One that is kept or new, in turn. Raises `httpx.PoolTimeout`, `httpx.ConnectTimeout` and `httpx.ConnectError`."""
        await self._turn(until)
        try:
            return self._fit(origin) or await self._opened(origin, until)
        except BaseException:
            self._pass_on()
            raise

    def give_back(self, connection: Connection) -> None:
        """After an exchange, or instead of one."""
        idle = self._idle.setdefault(self._open[connection], []) if connection in self._open else None
        if idle is None or len(idle) >= self._limits.max_idle_per_pms or not connection.is_reusable():
            connection.abort()
        else:
            connection.rest(self._limits.idle_seconds)
            idle.append(connection)
        self._pass_on()

    async def aclose(self) -> None:
        """End all connections, and the exchanges on them. Nothing is open when it returns, and nothing can be opened any more."""
        self._closed = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        if self._look is not None:
            self._look.cancel()
        for connection in list(self._open):
            connection.abort()
        if self._open:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def _fit(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
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
                raise httpx.PoolTimeout("all connections were in use") from error
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def _opened(self, origin: Origin, until: float) -> Connection:
        if self._is_closed():
            raise httpx.ConnectError("no connections are opened any more")
        try:
            async with asyncio.timeout_at(self._sooner(until, self._limits.connect_seconds)):
                connection = await connect(lambda: Connection(self._max_bytes, self._lost), origin, self._trusted)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("the connection was not taken in time") from error
        if self._is_closed() or not connection.is_open():
            connection.abort()
            raise httpx.ConnectError("the connection ended before anything was sent")
        self._open[connection] = origin
        if self._look is None:
            self._look_later()
        return connection

    def _is_closed(self) -> bool:
        return self._closed

    def _sooner(self, until: float, seconds: float) -> float:
        return min(until, asyncio.get_running_loop().time() + seconds)

    def _lost(self, connection: Connection) -> None:
        origin = self._open.pop(connection, None)
        if origin is not None and connection in (idle := self._idle.get(origin, [])):
            idle.remove(connection)
        if origin is not None and not self._idle.get(origin):
            self._idle.pop(origin, None)
        if not self._open and self._emptied is not None:
            self._emptied.set_result(None)

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_through)

    def _look_through(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self._open if each.expires <= now]:
            connection.expire()
        self._look = None
        if self._open:
            self._look_later()

"""PostgreSQL's sessions for reads that come all the time: the driver's own connections, in a pool that does nothing else.

SQLAlchemy's way to a connection and back (a greenlet, a checkout, a transaction object, a cursor, a result) costs several times
what the driver itself takes for a statement, and gives a single read nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import asyncpg

DriverError: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What the driver raises, besides OSError: the server's errors, its own, and its own about what it had not thought of."""

_FREE_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 2.0

Connect = Callable[[], Awaitable[asyncpg.Connection]]
Values = Sequence[Any]


class SessionRow(asyncpg.Record):
    """A row whose columns are attributes, as SQLAlchemy's are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Sessions:
    """At most so many, made by `connect` as they are needed; the one that was used last is used first.

    `connect` is to bound in time how long it takes, and how long each statement does. `open`: those that there are.
    """

    def __init__(self, connect: Connect, at_most: int) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(at_most)
        self.open: set[asyncpg.Connection] = set()
        self._idle: list[asyncpg.Connection] = []

    async def fetch(self, text: str, values: Values) -> Sequence[SessionRow]:
        """The rows of one statement, which is a transaction of its own.

        Raises `DriverError`, OSError where there is no connection or it broke, TimeoutError where the statement, or the wait for a
        session, took too long. After an error, of whatever kind, that session is not used again: after a connection was cut the
        driver may not know it yet, and nobody knows what comes over one that was given up.
        """
        await self._turn()
        try:
            session = self._last_used() or await self._new()
            try:
                rows: Sequence[SessionRow] = await session.fetch(text, *values, record_class=SessionRow)
            except BaseException:
                self._drop(session)
                raise
            self._idle.append(session)
            return rows
        finally:
            self._free.release()

    async def close(self) -> None:
        """Close those that are open. Whoever waits for rows of one gets an error; a later `fetch` makes new ones."""
        closing, self.open, self._idle = self.open, set(), []
        # One that does not close in time, or is broken, the driver has aborted by then.
        await asyncio.gather(*(session.close(timeout=_CLOSE_SECONDS) for session in closing), return_exceptions=True)

    async def _turn(self) -> None:
        if not self._free.locked():  # the usual case is spared the time limit
            await self._free.acquire()
            return
        async with asyncio.timeout(_FREE_SECONDS):
            await self._free.acquire()

    def _last_used(self) -> asyncpg.Connection | None:
        while self._idle:
            session = self._idle.pop()
            if not session.is_closed():  # after a restart of the server all are, and the driver knows it
                return session
            self._drop(session)
        return None

    async def _new(self) -> asyncpg.Connection:
        session = await self._connect()
        self.open.add(session)
        return session

    def _drop(self, session: asyncpg.Connection) -> None:
        self.open.discard(session)
        session.terminate()

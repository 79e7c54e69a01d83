"""Frequent reads on PostgreSQL: SQLAlchemy compiles each statement once, and the driver runs it on connections of its own.

SQLAlchemy's overhead per statement (a greenlet, a checkout, a transaction object, a cursor, a result) is several times the driver's
own cost, and a single read does not need it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
from sqlalchemy import Dialect, Executable
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

DriverError: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The driver's exceptions other than OSError: the server's errors, errors of its use, and its internal ones."""

_FREE_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 2.0

Connect = Callable[[], Awaitable[asyncpg.Connection]]
Values = Sequence[Any]


@dataclass(frozen=True, slots=True)
class DriverStatement:
    """A compiled statement. `parameters`: their names in order, each with what converts a value for the driver, if needed."""

    text: str
    parameters: tuple[tuple[str, Callable[[Any], Any] | None], ...]

    def values(self, parameters: Mapping[str, Any]) -> list[Any]:
        """The values of the statement's parameters, in order and as the driver takes them."""
        return [parameters[name] if bind is None else bind(parameters[name]) for name, bind in self.parameters]


def driver_statement(statement: Executable, dialect: Dialect) -> DriverStatement:
    """`statement` compiled for asyncpg. Its parameters have no values of their own, and none of them is expanding."""
    assert isinstance(statement, ClauseElement)  # noqa: S101 - every executable statement is one
    compiled = statement.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)  # noqa: S101
    assert all(parameter.required for parameter in compiled.binds.values())  # noqa: S101
    types = {name: parameter.type.dialect_impl(dialect) for name, parameter in compiled.binds.items()}
    order = compiled.positiontup or ()
    return DriverStatement(compiled.string, tuple((name, types[name].bind_processor(dialect)) for name in order))


class SessionRow(asyncpg.Record):
    """A row whose columns are attributes, as SQLAlchemy's are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Sessions:
    """Up to `max_sessions` connections, opened by `connect` on demand; reuses the last used one first.

    `connect` must set time limits for connecting and for each statement. `open`: the open connections.
    """

    def __init__(self, connect: Connect, max_sessions: int) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(max_sessions)
        self.open: set[asyncpg.Connection] = set()
        self._idle: list[asyncpg.Connection] = []

    async def fetch(self, text: str, values: Values) -> Sequence[SessionRow]:
        """The rows of one statement, which is a transaction of its own.

        Raises `DriverError`; OSError if there is no connection or it broke; TimeoutError if the statement, or the wait for a
        session, took too long. After any error the session is not reused: the driver may not have noticed a broken connection yet,
        and the response to an abandoned statement may still arrive.
        """
        await self._acquire()
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
        """Closes all sessions. Running fetches get an error; a later `fetch` opens new ones."""
        closing, self.open, self._idle = self.open, set(), []
        # The driver aborts sessions that are broken or do not close in time.
        await asyncio.gather(*(session.close(timeout=_CLOSE_SECONDS) for session in closing), return_exceptions=True)

    async def _acquire(self) -> None:
        if not self._free.locked():  # the usual case is spared the time limit
            await self._free.acquire()
            return
        async with asyncio.timeout(_FREE_SECONDS):
            await self._free.acquire()

    def _last_used(self) -> asyncpg.Connection | None:
        while self._idle:
            session = self._idle.pop()
            if not session.is_closed():  # after a restart of the server all of them are
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

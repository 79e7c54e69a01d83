"""How the store uses its engine: one statement or a whole transaction at a time, each bounded in time.

Here, and nowhere else in the store, drivers' errors become `StoreUnavailable` (the database is away, overloaded, stopping, out of
disk, or timed out) or `Unstorable` (it rejects the values it was given). What a wrong statement raises is left as it is: a bug.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import asyncpg
from sqlalchemy import CursorResult, Executable, Row
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.store.engine import PostgresqlEngine
from forwarder.store.sessions import DriverError, DriverStatement, Sessions, driver_statement
from forwarder.store.sql import DialectName
from forwarder.store.submissions.port import StoreUnavailable, Unstorable

Lookup = Callable[[Mapping[str, Any]], Awaitable[Sequence[Any]]]
"""Runs its statement with these parameters. A row's columns are attributes, and can be indexed."""

Mistake = (SQLAlchemyError, *DriverError)
"""Raised for a statement that the database cannot execute: a bug, or missing tables."""

_LIMIT_SECONDS = 30.0
"""Bounds every call, whatever the driver's own time-outs (for a connection, for each statement) add up to."""

_OUTAGE_SQLSTATES = (
    "08",  # connection exception
    "25006",  # read-only transaction: a standby, during a failover
    "25P03",  # idle-in-transaction time-out
    "40",  # rolled back: serialisation failure, deadlock
    "53",  # insufficient resources: disk full, out of memory, too many connections
    "55P03",  # lock not available
    "57",  # operator intervention: shutdown, crash of another session, starting up, cancelled
    "58",  # system error: input or output
)
# BUSY, LOCKED, NOMEM, READONLY, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL: https://sqlite.org/rescode.html
_OUTAGE_SQLITE_CODES = frozenset({5, 6, 7, 8, 9, 10, 13, 14, 15})

_VALUE_SQLSTATES = (
    "22",  # data exception: no such character, number or date
    "54",  # over a limit: too long for its index
)
_SQLITE_TOO_BIG = 18


class Database:
    """Every call is bounded in time, and raises `StoreUnavailable` where it was not carried out, or may not have been."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.dialect = cast("DialectName", engine.dialect.name)
        self._engine = engine
        postgresql = self.dialect == "postgresql"
        # A single statement is its own transaction: not beginning one saves PostgreSQL two round trips.
        self._single = engine.execution_options(isolation_level="AUTOCOMMIT") if postgresql else engine
        # SQLite has one writer at a time. Here they queue; left to SQLite each would sleep and retry.
        self._writing = nullcontext() if postgresql else asyncio.Lock()
        self._reading = self._single if postgresql else engine.execution_options(postgresql_readonly=True)
        self._sessions = engine.sessions if isinstance(engine, PostgresqlEngine) else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Committed where the block ends; rolled back where it raises."""
        async with self._writing, self._begun(self._engine) as connection:
            yield connection

    async def run(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Execute one statement that writes; the rows it returns."""
        async with self._writing, self._begun(self._single) as connection:
            return _rows(await connection.execute(statement, parameters))

    async def read(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """The rows of one statement that writes nothing."""
        async with self._begun(self._reading) as connection:
            return _rows(await connection.execute(statement, parameters))

    def lookup(self, statement: Executable) -> Lookup:
        """Like `read`, for a frequent statement: on PostgreSQL it is compiled here, once, and run by the driver alone."""
        if self._sessions is None:
            return partial(self.read, statement)
        return partial(_fetch, self._sessions, driver_statement(statement, self._engine.dialect))

    @asynccontextmanager
    async def _begun(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        with outages_translated():
            async with asyncio.timeout(_LIMIT_SECONDS), engine.begin() as connection:
                yield connection


async def _fetch(sessions: Sessions, statement: DriverStatement, parameters: Mapping[str, Any]) -> Sequence[Any]:
    with outages_translated():
        return await sessions.fetch(statement.text, statement.values(parameters))


def _rows(result: CursorResult[Any]) -> Sequence[Row[Any]]:
    return result.all() if result.returns_rows else ()


@contextmanager
def outages_translated() -> Iterator[None]:
    """Raise `StoreUnavailable` for errors of a database that cannot work now, `Unstorable` for those that its values cause."""
    try:
        yield
    except (PoolExhausted, OSError) as error:  # OSError is also every TimeoutError and ConnectionError
        raise StoreUnavailable(_described(error)) from error
    except DBAPIError as error:
        if error.connection_invalidated or _says_outage(error.orig):
            raise StoreUnavailable(_described(error.orig or error)) from error
        if _says_unstorable(error.orig):
            # Without the driver's message, which quotes the values.
            raise Unstorable(type(error.orig).__name__) from error
        raise
    except DriverError as error:
        if not (_lost_connection(error) or _says_outage(error)):
            raise
        raise StoreUnavailable(_described(error)) from error


def _says_outage(error: BaseException | None) -> bool:
    sqlstate: str = getattr(error, "sqlstate", None) or ""
    sqlite_code: int = getattr(error, "sqlite_errorcode", None) or 0
    return sqlstate.startswith(_OUTAGE_SQLSTATES) or sqlite_code & 0xFF in _OUTAGE_SQLITE_CODES


def _says_unstorable(error: BaseException | None) -> bool:
    sqlstate: str = getattr(error, "sqlstate", None) or ""
    sqlite_code: int = getattr(error, "sqlite_errorcode", None) or 0
    # asyncpg raises its DataError, a ValueError, for values that it cannot encode.
    refused_by_driver = error is not None and isinstance(error.__cause__, ValueError)
    return sqlstate.startswith(_VALUE_SQLSTATES) or sqlite_code & 0xFF == _SQLITE_TOO_BIG or refused_by_driver


def _lost_connection(error: Exception) -> bool:
    """What asyncpg raises on a connection that was cut without its knowledge: that it is closed, or that the last message makes no
    sense. Its errors about values it was given are ValueErrors as well."""
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError) and not isinstance(error, ValueError)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]

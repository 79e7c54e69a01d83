"""The store's database: PostgreSQL by asyncpg, or a SQLite file by aiosqlite. Opening it, running statements, translating errors.

Each engine is set up so that its commits are durable. A `Database` runs one statement or a whole transaction at a time, within a
time limit. Parameters never appear in errors: they contain guests' data.

Only this module of the store translates drivers' errors: into `StoreUnavailable` (the database is down, overloaded, stopping, out
of disk, or timed out) or `Unstorable` (it rejects the values). Errors of wrong statements pass through, because they are bugs.
"""

import asyncio
import os
import re
import sqlite3
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from sqlalchemy import URL, Connection, CursorResult, Executable, Row, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from forwarder.process.enlistment import to_be_written
from forwarder.store.identity import watch_identity
from forwarder.store.sessions import DriverError, DriverStatement, Sessions, driver_statement
from forwarder.store.sql import DialectName
from forwarder.store.submissions.port import StoreUnavailable, Unstorable
from forwarder.store.transport import names_session_attrs

# --- opening ----------------------------------------------------------------------------------------------------------

Engine = AsyncEngine
"""An open database, which `assembly` passes to its users."""

_POSTGRESQL = ("postgresql", "postgres", "postgresql+asyncpg")
_SQLITE = ("sqlite", "sqlite+aiosqlite")
_OLDEST_SQLITE = (3, 35, 0)
_SQLITE_CONNECTIONS = 5
_CONNECT_SECONDS = 5.0
_CANCEL_SECONDS = 2.0
_POOL_SECONDS = 10.0
_BUSY_SECONDS = 10.0

_PLANNING = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # Every statement here is short: neither pays.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
"""PostgreSQL's planner settings. Every large table has an index for every query. But plans are cached, and one made while a table
is nearly empty, or seems so by its statistics, would read the whole table."""

_SESSION = {
    # Statements and SQL texts rely on these settings; a database or role may have other defaults.
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "TimeZone": "UTC",
    "standard_conforming_strings": "on",
}

_DURABLE = """SELECT set_config('synchronous_commit', 'on', false)
 WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"""

READING = {"plan_cache_mode": "force_generic_plan"} | _PLANNING
"""Settings for `sessions`, whose statements are written for one generic plan. By default PostgreSQL considers that plan more
expensive, plans each page again, and spends more on planning than on the page."""


class UnusableDatabase(ValueError):
    """Not a database that the store can use. The message says what would be right, and quotes no password."""


class NotPermitted(StoreUnavailable):
    """This user of the database lacks a privilege."""


class PostgresqlEngine(AsyncEngine):
    """SQLAlchemy's engine, and next to its pool the sessions for frequent reads."""

    __slots__ = ("sessions",)

    def __init__(self, engine: AsyncEngine, sessions: Sessions) -> None:
        super().__init__(engine.sync_engine)
        self.sessions = sessions

    async def dispose(self, close: bool = True) -> None:  # noqa: FBT001, FBT002 - as SQLAlchemy has it
        await self.sessions.close()
        await super().dispose(close)


def open_engine(
    database_url: str | Path,
    *,
    pool_size: int = 10,
    command_seconds: float | None = 15.0,
    application_name: str = "forwarder",
) -> AsyncEngine:
    """An engine for `postgresql://…`, `sqlite:///path` or a path. Connects on first use; `dispose` it at the end.

    PostgreSQL: a `PostgresqlEngine`; at most `pool_size` connections, and as many for `sessions`; each statement bounded by
    `command_seconds` (None: unbounded); commits are durable before they return; transactions are READ COMMITTED, whatever the
    database's default; connections that the server closed, or that lead to a server that is read-only now, are replaced. Only a
    server that can be written to is connected to, unless the URL says otherwise (`target_session_attrs`).
    SQLite: one file in WAL mode, commits synced to disk; `begin()` takes the write lock at once, unless the connection has the
    execution option `postgresql_readonly`. Raises `UnusableDatabase`.
    """
    if isinstance(database_url, Path):
        return _open_sqlite(database_url)
    scheme, separator, _ = database_url.partition("://")
    if scheme in _POSTGRESQL:
        return _open_postgresql(database_url, pool_size, command_seconds, application_name)
    if scheme in _SQLITE:
        return _open_sqlite(_sqlite_path(database_url))
    beginning = f"{scheme}://" if separator else "no scheme"
    raise UnusableDatabase(
        f"A database URL must begin with postgresql:// or sqlite:///; this one begins with {beginning}."
    )


def _open_postgresql(
    url: str, pool_size: int, command_seconds: float | None, application_name: str
) -> PostgresqlEngine:
    # The server's limits are longer than the driver's: they end statements that the driver could not cancel. 0 means none.
    limit = f"{command_seconds + _CANCEL_SECONDS:.0f}s" if command_seconds else "0"
    server_settings = {
        "application_name": application_name,
        **_SESSION,
        # A process that was cut off, or is stopped within a transaction, must not keep its locks.
        "statement_timeout": limit,
        "lock_timeout": limit,
        "idle_in_transaction_session_timeout": "10s" if command_seconds else "0",
        **_PLANNING,
    }
    # asyncpg parses the URL itself, so that libpq's parameters work: sslmode, several hosts, target_session_attrs.
    connect = partial(
        _connect,
        _with_each_first(url),
        timeout=_CONNECT_SECONDS,
        command_timeout=command_seconds,
        target_session_attrs=None if names_session_attrs(url, os.environ) else "read-write",
        server_settings=server_settings,
    )
    connect_to_read = partial(connect, server_settings={**server_settings, **READING})
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=_POOL_SECONDS,
        pool_use_lifo=True,
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    event.listen(engine.sync_engine, "handle_error", _end_useless_connection)
    watch_identity(engine)
    return PostgresqlEngine(engine, Sessions(connect_to_read, pool_size))


def _with_each_first(url: str) -> deque[str]:
    parts = urlsplit(url)._replace(scheme="postgresql")
    user, at, servers = parts.netloc.rpartition("@")
    hosts, urls = deque(servers.split(",")), deque[str]()
    for _ in tuple(hosts):
        urls.append(urlunsplit(parts._replace(netloc=f"{user}{at}{','.join(hosts)}")))
        hosts.rotate(-1)
    return urls


async def _connect(urls: deque[str], **options: Any) -> asyncpg.Connection:
    """A session whose commits are durable; keeps a stricter setting of the server (`remote_apply`). `urls`: the same servers, each
    of them first in one URL, in the order of trying."""
    connection = await _answered(urls, options)
    try:
        await connection.execute(_DURABLE)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _answered(urls: deque[str], options: Mapping[str, Any]) -> asyncpg.Connection:
    left = len(urls)
    while True:
        left -= 1
        try:
            connection: asyncpg.Connection = await asyncpg.connect(urls[0], **options)
        except asyncpg.TargetServerAttributeNotMatched as error:
            raise ConnectionRefusedError(
                "none of the servers in FORWARDER_DATABASE_URL can be written to now"
            ) from error
        except TimeoutError:
            # asyncpg tries the next server only after a refusal: a first server that does not respond would use up all the time.
            urls.rotate(-1)
            if not left:
                raise
        else:
            return connection


def _end_useless_connection(context: ExceptionContext) -> None:
    """Makes the pool replace all of its connections if an error of any statement or COMMIT shows that a connection no longer leads
    to a usable server."""
    if _sqlstate(context.original_exception).startswith(_ELSEWHERE_SQLSTATES):
        context.is_disconnect = True


def _refuse_closed(connection: Any, _record: Any, _proxy: Any) -> None:
    """Replaces closed connections: after a restart of the server all are. asyncpg knows without a round trip."""
    if connection.driver_connection.is_closed():
        raise InvalidatePoolError("closed by the server")


def _sqlite_path(url: str) -> Path:
    try:
        database = make_url(url).database
    except ArgumentError:
        database = None
    if not database or database == ":memory:":
        raise UnusableDatabase("A SQLite URL must name a file: sqlite:///relative/path or sqlite:////absolute/path.")
    return Path(database)


def _open_sqlite(path: Path) -> AsyncEngine:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        oldest = ".".join(str(part) for part in _OLDEST_SQLITE)
        raise UnusableDatabase(
            f"SQLite {oldest} or newer is needed (for RETURNING); this Python has {sqlite3.sqlite_version}."
        )
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),  # not as text: a path may contain ?, # and %
        connect_args={"timeout": _BUSY_SECONDS},
        pool_size=_SQLITE_CONNECTIONS,
        max_overflow=0,
        pool_timeout=_POOL_SECONDS,
        pool_use_lifo=True,
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "connect", _set_up_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # Python begins no transactions by itself: `_begin_sqlite` does.
    cursor = connection.cursor()
    # If two connections enable the write-ahead log of a new file at once, SQLite refuses one regardless of its busy time-out.
    retrying = Retrying(
        retry=retry_if_exception_type(sqlite3.OperationalError),
        stop=stop_after_delay(_BUSY_SECONDS),
        wait=wait_random(0.0, 0.05),
        sleep=lambda seconds: connection.run_async(lambda _driver: asyncio.sleep(seconds)),
        reraise=True,
    )
    retrying(cursor.execute, "PRAGMA journal_mode=WAL")
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "secure_delete=FAST"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that reads and then writes fails at once, without the busy time-out, if another one wrote in between.
    # So a transaction that may write takes the write lock first.
    reads = connection.get_execution_options().get("postgresql_readonly", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


# --- use --------------------------------------------------------------------------------------------------------------

Lookup = Callable[[Mapping[str, Any]], Awaitable[Sequence[Any]]]
"""Runs its statement with these parameters. A row's columns are attributes, and can be indexed."""

_LIMIT_SECONDS = 30.0
"""Bounds every call, because the driver's time-outs (for a connection, for each statement) add up."""


class Database:
    """Every call is bounded in time, and raises `StoreUnavailable` if it was not carried out, or may not have been."""

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
        """A transaction, committed together with enlisted rows when the block ends, rolled back if it raises."""
        enlisted = to_be_written()
        async with self._writing, self._begun(self._engine) as connection:
            yield connection
            if enlisted is not None:
                await enlisted.write(connection)
        if enlisted is not None:
            enlisted.written = True

    async def run(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Executes one statement that writes; returns its rows."""
        if to_be_written() is not None:
            async with self.transaction() as connection:
                return _rows(await connection.execute(statement, parameters))
        async with self._writing, self._begun(self._single) as connection:
            return _rows(await connection.execute(statement, parameters))

    async def read(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """The rows of one read-only statement."""
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


# --- errors -----------------------------------------------------------------------------------------------------------

_NOT_PERMITTED = "42501"
_NOT_LET_IN = "28"  # not this user, or not with this password or certificate
_ELSEWHERE_SQLSTATES = (
    "08",  # connection exception
    "25006",  # read-only transaction: a standby, during a failover
    "25P03",  # idle-in-transaction time-out
    "25P04",  # transaction time-out
    "3D000",  # no such database: dropped, and perhaps being restored
    "3F000",  # no such schema
    "42P01",  # no such table: the same, before it is migrated
    "57P",  # shutdown, crash of another session, starting up, database dropped, idle for too long
)
"""SQLSTATEs (prefixes) of errors after which another connection may lead to a usable server."""

# BUSY, LOCKED, NOMEM, READONLY, INTERRUPT, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, NOTADB: https://sqlite.org/rescode.html
_OUTAGE_SQLITE_CODES = frozenset({5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 26})
_SQLITE_LACKS = re.compile("no such |.* has no column ")  # a table or column; it has no code of its own

_VALUE_SQLSTATES = (
    "22",  # data exception: no such character, number or date
    "54",  # over a limit: too long for its index
)
_SQLITE_TOO_BIG = 18
_ROW_SQLSTATES = (
    *_VALUE_SQLSTATES,
    "21",  # more than one row where one was asked for
    "23",  # a constraint
)
"""SQLSTATEs (prefixes) of errors that rows cause. All other errors of PostgreSQL mean that it cannot serve us now: it is down or
full, the process lacks a privilege, or the tables are not the ones of this version of the forwarder."""


@contextmanager
def outages_translated() -> Iterator[None]:
    """Translates errors: raises `StoreUnavailable` if the database cannot work now, `Unstorable` if the values are the cause."""
    try:
        yield
    except (PoolExhausted, OSError) as error:  # OSError is also every TimeoutError and ConnectionError
        raise StoreUnavailable(_described(error)) from error
    except DBAPIError as error:
        if error.connection_invalidated or _says_outage(error.orig):
            raise _outage(error.orig or error) from error
        if _says_unstorable(error.orig):
            # Without the driver's message, which quotes the values.
            raise Unstorable(type(error.orig).__name__) from error
        raise
    except DriverError as error:
        if not (_lost_connection(error) or _says_outage(error)):
            raise
        raise _outage(error) from error


def _outage(error: BaseException) -> StoreUnavailable:
    return (NotPermitted if _sqlstate(error) == _NOT_PERMITTED else StoreUnavailable)(_described(error))


def _sqlstate(error: BaseException | None) -> str:
    """PostgreSQL's code of the error; empty if it has none."""
    return getattr(error, "sqlstate", None) or ""


def _says_outage(error: BaseException | None) -> bool:
    sqlite_code: int = getattr(error, "sqlite_errorcode", None) or 0
    if sqlite_code:
        return sqlite_code & 0xFF in _OUTAGE_SQLITE_CODES or _SQLITE_LACKS.match(str(error)) is not None
    sqlstate = _sqlstate(error)
    return sqlstate != "" and not sqlstate.startswith(_ROW_SQLSTATES)


def _says_unstorable(error: BaseException | None) -> bool:
    sqlstate = _sqlstate(error)
    sqlite_code: int = getattr(error, "sqlite_errorcode", None) or 0
    # asyncpg raises its DataError, a ValueError, for values that it cannot encode.
    refused_by_driver = error is not None and isinstance(error.__cause__, ValueError)
    return sqlstate.startswith(_VALUE_SQLSTATES) or sqlite_code & 0xFF == _SQLITE_TOO_BIG or refused_by_driver


def _lost_connection(error: Exception) -> bool:
    """Whether asyncpg reports a connection that broke unnoticed: as closed, or by a message that it cannot parse. Its errors about
    argument values are ValueErrors as well."""
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError) and not isinstance(error, ValueError)


def _described(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"PostgreSQL's certificate is not trusted ({error.verify_message}): sslrootcert in FORWARDER_DATABASE_URL must hold "
            "the authority that signed it, and the host be one that it names"
        )
    if _sqlstate(error).startswith(_NOT_LET_IN):
        why = str(error).splitlines()[0]
        return f"PostgreSQL lets us not in ({why}): check the user, password and certificate in FORWARDER_DATABASE_URL"
    described = f"{type(error).__name__}: {error}".splitlines()[0]
    if _sqlstate(error) == _NOT_PERMITTED:
        return f"{described}: `forwarder migrate --roles` gives each role what this version needs"
    return described

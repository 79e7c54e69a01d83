"""Opens the store's database: PostgreSQL by asyncpg, or a SQLite file by aiosqlite, set up so that commits are durable.

`StoreIdentity` counts when an engine's connections lead to another database: a failover, a restore or a restart may put one behind
the same address that lacks acknowledged transactions. A connection through a pooler may change its server without being reopened,
so users who rely on this also ask on a pooled one (`OBSERVE`)."""

import asyncio
import os
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary, WeakValueDictionary

import asyncpg
from sqlalchemy import URL, Connection, Dialect, Executable, event, make_url, text
from sqlalchemy import Engine as SyncEngine
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from forwarder.store.transport import names_session_attrs

Engine = AsyncEngine
_CONNECT_SECONDS = 5.0
_BUSY_SECONDS = 10.0
_POOL: Final[dict[str, Any]] = {"max_overflow": 0, "pool_timeout": 10.0, "pool_use_lifo": True, "hide_parameters": True}

_PLANNING = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # Every statement here is short: neither pays.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
"""Every query has an index. But plans are cached, and one made while a table is, or seems, nearly empty would read all of it."""

READING = {"plan_cache_mode": "force_generic_plan"} | _PLANNING
"""For `sessions`, whose statements are written for one generic plan. By default PostgreSQL thinks it more expensive, plans each
page again, and spends more on planning than on the page."""


class UnusableDatabase(ValueError):
    """Not a database that the store can use. The message says what would be right, and quotes no password."""


class PostgresqlEngine(AsyncEngine):
    __slots__ = ("sessions",)

    def __init__(self, engine: AsyncEngine, sessions: "Sessions") -> None:
        super().__init__(engine.sync_engine)
        self.sessions = sessions

    async def dispose(self, close: bool = True) -> None:  # noqa: FBT001, FBT002 - as SQLAlchemy has it
        await self.sessions.close()
        await super().dispose(close)


class _Writers(asyncio.Lock):
    """The queue of a file's writers: first in, first out."""

    holder: asyncio.Task[Any] | None = None


_writers: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, Path], _Writers] = WeakValueDictionary()


class SqliteEngine(AsyncEngine):
    """SQLAlchemy's engine, whose write transactions queue with those of all engines of the process on the same file. SQLite's own
    wait, which remains between processes, is unfair: a few who write all the time can keep another one out until its busy time-out.
    Writers queue before they take a connection, so that readers do not wait."""

    __slots__ = ("_file",)

    def __init__(self, engine: AsyncEngine, file: Path) -> None:
        super().__init__(engine.sync_engine)
        self._file = file.resolve()

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A write transaction, in its turn. Raises RuntimeError if the task has one already: it would wait for itself. An engine
        for reading, made by `execution_options`, does not queue."""
        writers = _writers.setdefault((asyncio.get_running_loop(), self._file), _Writers())
        task = asyncio.current_task()
        if writers.holder is task:
            raise RuntimeError(f"This task already has a write transaction on {self._file.name}: use its connection.")
        async with writers:
            writers.holder = task
            try:
                async with super().begin() as connection:
                    yield connection
            finally:
                writers.holder = None


def open_engine(
    database_url: str | Path,
    *,
    pool_size: int = 10,
    command_seconds: float | None = 15.0,
    application_name: str = "forwarder",
) -> AsyncEngine:
    """An engine for `postgresql://…`, `sqlite:///path` or a path. Connects on first use; `dispose` it at the end.

    PostgreSQL: a `PostgresqlEngine`; at most `pool_size` connections, and as many for `sessions`; each statement bounded by
    `command_seconds` (None: unbounded); commits are durable before they return; transactions are READ COMMITTED; connections that
    the server closed, or whose server is read-only now, are replaced. Connects only to a server that can be written to, unless the
    URL says otherwise (`target_session_attrs`). SQLite: a `SqliteEngine`; one file in WAL mode, commits synced to disk; `begin()`
    takes the write lock at once, unless the engine has the execution option `postgresql_readonly`. Raises `UnusableDatabase`."""
    if isinstance(database_url, Path):
        return _open_sqlite(database_url)
    scheme, separator, _ = database_url.partition("://")
    if scheme in {"postgresql", "postgres", "postgresql+asyncpg"}:
        return _open_postgresql(database_url, pool_size, command_seconds, application_name)
    if scheme in {"sqlite", "sqlite+aiosqlite"}:
        database = None
        with suppress(ArgumentError):
            database = make_url(database_url).database
        if database and database != ":memory:":
            return _open_sqlite(Path(database))
        raise UnusableDatabase("A SQLite URL must name a file: sqlite:///relative/path or sqlite:////absolute/path.")
    begins = f"begins with {scheme}://" if separator else "begins with no scheme"
    raise UnusableDatabase(f"A database URL must begin with postgresql:// or sqlite:///; this one {begins}.")


def _open_postgresql(
    url: str, pool_size: int, command_seconds: float | None, application_name: str
) -> PostgresqlEngine:
    # The server's limits are longer than the driver's: they end statements that the driver could not cancel. 0 means none.
    limit = f"{command_seconds + 2:.0f}s" if command_seconds else "0"
    server_settings = {
        "application_name": application_name,
        # Statements and SQL texts rely on these; a database or role may have other defaults.
        "default_transaction_isolation": "read committed",
        "default_transaction_deferrable": "off",
        "TimeZone": "UTC",
        "standard_conforming_strings": "on",
        # A process that was cut off, or is stopped within a transaction, must not keep its locks.
        "statement_timeout": limit,
        "lock_timeout": limit,
        "idle_in_transaction_session_timeout": "10s" if command_seconds else "0",
        **_PLANNING,
    }
    # asyncpg parses the URL itself, so that libpq's parameters work: sslmode, several hosts, target_session_attrs.
    parts = urlsplit(url)._replace(scheme="postgresql")
    user, at, servers = parts.netloc.rpartition("@")
    hosts = servers.split(",")
    orders = (",".join(hosts[first:] + hosts[:first]) for first in range(len(hosts)))
    each_first = deque(urlunsplit(parts._replace(netloc=f"{user}{at}{order}")) for order in orders)
    connect = partial(
        _connect,
        each_first,
        timeout=_CONNECT_SECONDS,
        command_timeout=command_seconds,
        target_session_attrs=None if names_session_attrs(url, os.environ) else "read-write",
        server_settings=server_settings,
    )
    connect_to_read = partial(connect, server_settings={**server_settings, **READING})
    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, pool_size=pool_size, **_POOL)
    identity, ask = identity_of(engine), partial(_asked, query=IDENTITY)

    def refuse_closed(connection: Any, _record: Any, _proxy: Any) -> None:
        # After a restart of the server all connections are closed. asyncpg knows without a round trip.
        if connection.driver_connection.is_closed():
            raise InvalidatePoolError("closed by the server")

    # Which database a new connection leads to is asked before it is used.
    event.listen(engine.sync_engine, "connect", lambda opened, _record: identity.note(opened.run_async(ask)))
    event.listen(engine.sync_engine, "checkout", refuse_closed)
    event.listen(engine.sync_engine, "handle_error", _end_useless_connection)
    return PostgresqlEngine(engine, Sessions(connect_to_read, pool_size))


async def _connect(urls: deque[str], **options: Any) -> asyncpg.Connection:
    """A session whose commits are durable, or stricter if the server says so. `urls`: each with another server first."""
    left = len(urls)
    while True:
        left -= 1
        try:
            connection: asyncpg.Connection = await asyncpg.connect(urls[0], **options)
        except asyncpg.TargetServerAttributeNotMatched as error:
            refused = "none of the servers in FORWARDER_DATABASE_URL can be written to now"
            raise ConnectionRefusedError(refused) from error
        except TimeoutError:
            # asyncpg tries the next server only after a refusal: a first server that does not respond would use up all the time.
            urls.rotate(-1)
            if not left:
                raise
        else:
            weaker = "current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
            await _asked(connection, f"SELECT set_config('synchronous_commit', 'on', false) WHERE {weaker}")
            return connection


async def _asked(connection: asyncpg.Connection, query: str) -> Any:
    """A new connection's response. Closes one that has none, which its pool would not. Raises ConnectionError if it broke."""
    try:
        return await connection.fetchval(query)
    except BaseException as error:
        connection.terminate()
        if broke(error) or isinstance(error, asyncpg.PostgresConnectionError):
            raise ConnectionError(f"the connection broke: {error}") from error
        raise


def broke(error: BaseException) -> bool:
    """Whether a connection broke unnoticed: asyncpg then complains about its own state, or about a message that it cannot parse."""
    of_state = isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError)
    return of_state and not isinstance(error, ValueError)  # which is about an argument


def _end_useless_connection(context: ExceptionContext) -> None:
    """Makes the pool replace all connections if an error shows that the server is unusable. Raises ConnectionError if it broke."""
    error = context.original_exception
    elsewhere = (
        "08",  # connection exception
        "25006",  # read-only transaction: a standby, during a failover
        "25P03",  # idle-in-transaction time-out
        "25P04",  # transaction time-out
        "3D000",  # no such database: dropped, and perhaps being restored
        "3F000",  # no such schema
        "42P01",  # no such table: the same, before it is migrated
        "57P",  # shutdown, crash of another session, starting up, database dropped, idle for too long
    )
    if sqlstate_of(error).startswith(elsewhere) or broke(error):
        context.is_disconnect = True
    if broke(error):
        raise ConnectionError(f"the connection broke: {error}") from error


def _open_sqlite(path: Path) -> AsyncEngine:
    if sqlite3.sqlite_version_info < (3, 35, 0):
        this = sqlite3.sqlite_version
        raise UnusableDatabase(f"SQLite 3.35.0 or newer is needed (for RETURNING); this Python has {this}.")
    url = URL.create("sqlite+aiosqlite", database=str(path))  # not as text: a path may contain ?, # and %
    engine = create_async_engine(url, connect_args={"timeout": _BUSY_SECONDS}, pool_size=5, **_POOL)
    event.listen(engine.sync_engine, "connect", _set_up_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return SqliteEngine(engine, path)


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins transactions
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


def sqlstate_of(error: BaseException | None) -> str:
    """PostgreSQL's code of the error; empty if it has none."""
    return getattr(error, "sqlstate", None) or ""


DriverError: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The driver's exceptions other than OSError: the server's errors, errors of its use, and its internal ones."""

_FREE_SECONDS: Final = 10.0
Values = Sequence[Any]


def driver_statement(statement: Executable, dialect: Dialect) -> tuple[str, Callable[[Mapping[str, Any]], Values]]:
    """`statement` compiled for asyncpg, and what puts the values of its parameters in order, as the driver takes them. The
    parameters have no values of their own, and none of them is expanding."""
    compiled = cast("SQLCompiler", cast("ClauseElement", statement).compile(dialect=dialect))
    assert all(parameter.required for parameter in compiled.binds.values())  # noqa: S101
    types = {name: parameter.type.dialect_impl(dialect) for name, parameter in compiled.binds.items()}
    order = [(name, types[name].bind_processor(dialect)) for name in compiled.positiontup or ()]

    def values(parameters: Mapping[str, Any]) -> Values:
        return [parameters[name] if bind is None else bind(parameters[name]) for name, bind in order]

    return compiled.string, values


class SessionRow(asyncpg.Record):
    """With columns as attributes, as SQLAlchemy's rows have."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Sessions:
    """Up to `max_sessions` connections, the last used one first. `connect`, called on demand, sets all time limits."""

    def __init__(self, connect: Callable[[], Awaitable[asyncpg.Connection]], max_sessions: int) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(max_sessions)
        self.open: set[asyncpg.Connection] = set()
        self._idle: list[asyncpg.Connection] = []

    async def fetch(self, text: str, values: Values) -> Sequence[SessionRow]:
        """The rows of one statement, which is a transaction of its own. Raises `DriverError`; OSError if there is no connection or
        it broke; TimeoutError if the statement, or the wait for a session, took too long. After any error the session is not
        reused: the driver may not have noticed a broken connection yet, or an abandoned statement's response may still arrive."""
        if self._free.locked():
            async with asyncio.timeout(_FREE_SECONDS):
                await self._free.acquire()
        else:  # the usual case is spared the time limit
            await self._free.acquire()
        try:
            while self._idle and self._idle[-1].is_closed():  # after a restart of the server all of them are
                self._drop(self._idle.pop())
            session = self._idle.pop() if self._idle else await self._connect()
            self.open.add(session)
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
        await asyncio.gather(*(session.close(timeout=2.0) for session in closing), return_exceptions=True)

    def _drop(self, session: asyncpg.Connection) -> None:
        self.open.discard(session)
        session.terminate()


IDENTITY: Final = """
SELECT concat_ws(' ',
    extract(epoch FROM pg_postmaster_start_time())::text,
    CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
    (SELECT oid FROM pg_database WHERE datname = current_database()),
    to_regclass('reservations')::oid)"""
"""The server's start, its timeline (it advances with each promotion and each recovery to a point in time), and which database and
table of submissions these are. Every role may ask that."""

OBSERVE: Final = text(IDENTITY)
_identities: WeakKeyDictionary[SyncEngine, "StoreIdentity"] = WeakKeyDictionary()


@dataclass(slots=True)
class StoreIdentity:
    """The database behind one engine. `changes`: how often a connection led to another one than the connection before, or it had
    restarted. `refusals`: how often it refused to write for want of room, or because its disk failed. `seen`: the last one, as
    `IDENTITY` describes it; None before there was a connection, and always for SQLite."""

    changes: int = 0
    refusals: int = 0
    seen: str | None = None

    def note(self, found: str) -> None:
        if self.seen not in {None, found}:
            self.changes += 1
        self.seen = found


def identity_of(engine: AsyncEngine) -> StoreIdentity:
    """The identity of `engine`'s database. For SQLite, one file for the life of the process, it never changes."""
    return _identities.setdefault(engine.sync_engine, StoreIdentity())

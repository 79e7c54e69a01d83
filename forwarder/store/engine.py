"""Opens the database: PostgreSQL by asyncpg or a SQLite file by aiosqlite, each set up so that what it commits is safe.

The one place that knows how each database is connected to. Parameters never appear in errors: they hold guests' data.
"""

import asyncio
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from sqlalchemy import Connection, event, make_url
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import await_only
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from forwarder.store.sessions import Sessions

Engine = AsyncEngine
"""An open database, for `assembly` to hand to those who use it."""

_POSTGRESQL = ("postgresql", "postgres", "postgresql+asyncpg")
_SQLITE = ("sqlite", "sqlite+aiosqlite")
_OLDEST_SQLITE = (3, 35, 0)
_SQLITE_CONNECTIONS = 5
_CONNECT_SECONDS = 5.0
_POOL_SECONDS = 10.0
_BUSY_SECONDS = 10.0

_PLANNING = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # Every statement here is short: neither would pay.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
"""How PostgreSQL is to plan. What is large has an index for whatever is asked of it. But plans are kept, and one may be made while
there is hardly a row, or nobody has told how many there are since: then any way of reading them all looks cheap."""

READING = {"plan_cache_mode": "force_generic_plan"} | _PLANNING
"""And what `sessions` read. That is written for one plan, whatever it is asked for; left to itself PostgreSQL takes that for the
dearer one, plans each page anew, and spends more on that than on the page."""


class UnusableDatabase(ValueError):
    """Not a database that the store can be kept in. The message says what would be right, and quotes no password."""


class PostgresqlEngine(AsyncEngine):
    """SQLAlchemy's engine, and beside its pool the sessions that are read by without it."""

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

    PostgreSQL: a `PostgresqlEngine`; at most `pool_size` connections, and as many for what is read by `sessions`, each statement
    bounded by `command_seconds` (None: unbounded), commits durable before they are answered, connections that the server closed
    replaced as they are taken.
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
    beginning = f"{scheme}://" if separator else "nothing of the kind"
    raise UnusableDatabase(
        f"A database URL must begin with postgresql:// or sqlite:///; this one begins with {beginning}."
    )


def _open_postgresql(
    url: str, pool_size: int, command_seconds: float | None, application_name: str
) -> PostgresqlEngine:
    server_settings = {
        "application_name": application_name,
        "synchronous_commit": "on",
        # A process that was stopped within a transaction must not keep its locks from the others.
        "idle_in_transaction_session_timeout": "10s" if command_seconds else "0",
        **_PLANNING,
    }
    # asyncpg reads the URL itself, so that all of libpq's parameters work: sslmode, several hosts, target_session_attrs.
    connect = partial(
        asyncpg.connect,
        urlunsplit(urlsplit(url)._replace(scheme="postgresql")),
        timeout=_CONNECT_SECONDS,
        command_timeout=command_seconds,
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
    return PostgresqlEngine(engine, Sessions(connect_to_read, pool_size))


def _refuse_closed(connection: Any, _record: Any, _proxy: Any) -> None:
    """After a restart of the server every pooled connection is closed, and asyncpg knows it: no round trip is needed to tell."""
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
        f"sqlite+aiosqlite:///{path}",
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
    connection.isolation_level = None  # Python begins no transactions of its own: `_begin_sqlite` does.
    cursor = connection.cursor()
    # Of two that turn on the write-ahead log of a new file at once SQLite refuses one, whatever its busy time-out is.
    taking_turns = Retrying(
        retry=retry_if_exception_type(sqlite3.OperationalError),
        stop=stop_after_delay(_BUSY_SECONDS),
        wait=wait_random(0.0, 0.05),
        sleep=lambda seconds: await_only(asyncio.sleep(seconds)),
        reraise=True,
    )
    taking_turns(cursor.execute, "PRAGMA journal_mode=WAL")
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that first reads and then writes fails at once, not after the busy time-out, when another wrote
    # in between. So whoever may write takes the write lock first.
    reads = connection.get_execution_options().get("postgresql_readonly", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

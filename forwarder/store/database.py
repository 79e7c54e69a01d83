"""Runs statements and transactions on the store's database, within a time limit, and translates drivers' errors: into
`StoreUnavailable` (the database is down, overloaded, stopping, out of disk, or timed out) or `Unstorable` (it rejects the values).
Errors of wrong statements pass through, because they are bugs. Parameters never appear in errors: they contain guests' data."""

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, NamedTuple, cast

import sqlalchemy as sa
from sqlalchemy import CursorResult, Executable, Row
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.enlistment import to_be_written
from forwarder.store.engine import DriverError, PostgresqlEngine, broke, driver_statement, identity_of, sqlstate_of
from forwarder.store.sql import DialectName
from forwarder.store.submissions.port import StoreUnavailable, Unstorable


class NotPermitted(StoreUnavailable):
    """This user of the database lacks a privilege."""


class StoreFull(StoreUnavailable):
    """The database has no room left for what was to be written, or its disk fails."""


class NotReadable(Exception):
    """This user of the database may not read a table. The message names it, and says who may."""


Lookup = Callable[[Mapping[str, Any]], Awaitable[Sequence[Any]]]
"""Runs its statement with these parameters. A row's columns are attributes, and can be indexed."""

_LIMIT_SECONDS = 30.0  # for a call: the driver's time-outs (for a connection, for each statement) add up


class Database:
    """Every call is bounded in time, and raises `StoreUnavailable` if it was not, or may not have been, carried out."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.dialect = cast("DialectName", engine.dialect.name)
        self._engine = engine
        postgresql = self.dialect == "postgresql"
        # A single statement is its own transaction: not beginning one saves PostgreSQL two round trips.
        self._single = engine.execution_options(isolation_level="AUTOCOMMIT") if postgresql else engine
        self._reading = self._single if postgresql else engine.execution_options(postgresql_readonly=True)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction, committed together with enlisted rows when the block ends, rolled back if it raises."""
        enlisted = to_be_written()
        async with self._begun(self._engine) as connection:
            yield connection
            if enlisted is not None:
                await enlisted.write(connection, enlisted.facts)
        if enlisted is not None:
            enlisted.written = True

    async def run(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        async with self._begun(self._single) if to_be_written() is None else self.transaction() as connection:
            return _rows(await connection.execute(statement, parameters))

    async def read(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        async with self._begun(self._reading) as connection:
            return _rows(await connection.execute(statement, parameters))

    async def scalar(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Any:
        """The first column of the first row that `statement` reads; None if there is no row."""
        rows = await self.read(statement, parameters)
        return rows[0][0] if rows else None

    def lookup(self, statement: Executable) -> Lookup:
        """Like `read`, for a frequent statement: on PostgreSQL the driver alone runs it, compiled once, which costs far less."""
        if not isinstance(self._engine, PostgresqlEngine):
            return partial(self.read, statement)
        sessions, (text, values) = self._engine.sessions, driver_statement(statement, self._engine.dialect)

        async def fetch(parameters: Mapping[str, Any]) -> Sequence[Any]:
            with outages_translated():
                return await sessions.fetch(text, values(parameters))

        return fetch

    @asynccontextmanager
    async def _begun(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        try:
            with outages_translated():
                async with asyncio.timeout(_LIMIT_SECONDS), engine.begin() as connection:
                    yield connection
        except StoreFull:
            identity_of(self._engine).refusals += 1
            raise


class OnDatabase:
    """A part of the store: its methods run statements on the database of `engine`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)


def _rows(result: CursorResult[Any]) -> Sequence[Row[Any]]:
    return result.all() if result.returns_rows else ()


_NOT_PERMITTED = "42501"
_VALUE_SQLSTATES = ("22", "54")  # no such character, number or date; over a limit, too long for its index


@contextmanager
def outages_translated() -> Iterator[None]:
    """Translates errors: raises `StoreUnavailable` if the database cannot work now, `Unstorable` if the values are the cause."""
    try:
        yield
    except (PoolExhausted, OSError) as error:  # OSError is also every TimeoutError and ConnectionError
        raise StoreUnavailable(_described(error)) from error
    except DBAPIError as error:
        cause = error.orig
        if error.connection_invalidated or _says_outage(cause):
            raise _outage(cause or error) from error
        # asyncpg raises its DataError, a ValueError, for values that it cannot encode.
        refused_by_driver = cause is not None and isinstance(cause.__cause__, ValueError)
        too_big = _sqlite_code(cause) == 18  # noqa: PLR2004 - SQLITE_TOOBIG
        if refused_by_driver or too_big or sqlstate_of(cause).startswith(_VALUE_SQLSTATES):
            # Without the driver's message, which quotes the values.
            raise Unstorable(type(cause).__name__) from error
        raise
    except DriverError as error:
        if broke(error) or _says_outage(error):
            raise _outage(error) from error
        raise


def _outage(error: BaseException) -> StoreUnavailable:
    sqlstate = sqlstate_of(error)
    # Disk full, I/O error; READONLY, IOERR, FULL.
    if sqlstate in {"53100", "58030"} or _sqlite_code(error) in {8, 10, 13}:
        return StoreFull(_described(error))
    return (NotPermitted if sqlstate == _NOT_PERMITTED else StoreUnavailable)(_described(error))


def _says_outage(error: BaseException | None) -> bool:
    if code := _sqlite_code(error):
        # BUSY, LOCKED, NOMEM, READONLY, INTERRUPT, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, NOTADB:
        # https://sqlite.org/rescode.html A missing table or column has no code of its own.
        is_outage = code in {5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 26}
        return is_outage or re.match("no such |.* has no column ", str(error)) is not None
    sqlstate = sqlstate_of(error)
    # Rows cause errors of values, of more than one row where one was asked for, and of constraints. All others mean that PostgreSQL
    # cannot serve us now: it is down or full, the process lacks a privilege, or the tables are not the ones of this version.
    return sqlstate != "" and not sqlstate.startswith((*_VALUE_SQLSTATES, "21", "23"))


def _sqlite_code(error: BaseException | None) -> int:
    """SQLite's primary result code; 0 if the error has none."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _described(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"PostgreSQL's certificate is not trusted ({error.verify_message}): sslrootcert in FORWARDER_DATABASE_URL must hold "
            "the authority that signed it, and the host be one that it names"
        )
    if sqlstate_of(error).startswith("28"):  # not this user, or not with this password or certificate
        why = str(error).splitlines()[0]
        return f"PostgreSQL lets us not in ({why}): check the user, password and certificate in FORWARDER_DATABASE_URL"
    described = f"{type(error).__name__}: {error}".splitlines()[0]
    advice = ": `forwarder migrate --roles` gives each role what this version needs"
    return described + advice if sqlstate_of(error) == _NOT_PERMITTED else described


class StoredText(NamedTuple):
    """A value, and where it is: its column, or part of a message; and the row's primary key, or another place."""

    column: str
    key: str
    text: str


class SqlTexts:
    """Every text in a database, to search for data that must not be stored. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine.execution_options(postgresql_readonly=True)
        self._database = Database(engine)

    async def tables(self) -> Sequence[str]:
        """The names of all tables, including those that are not the forwarder's."""
        return sorted(await self._inspected(lambda catalogue: catalogue.get_table_names()))

    async def of(self, table: str) -> AsyncGenerator[Sequence[StoredText], None]:
        """The texts of a table, in batches, each in a short transaction: a slow reader blocks nothing, and may miss rows."""
        # Not its indexes, which cannot all be reflected.
        described, constraint = await self._inspected(lambda it: (it.get_columns(table), it.get_pk_constraint(table)))
        known = sa.Table(table, sa.MetaData(), *(sa.Column(each["name"], each["type"]) for each in described))
        key = [known.c[name] for name in constraint["constrained_columns"]] or list(known.c)
        readable = [column for column in known.c if isinstance(column.type, sa.String | sa.JSON | sa.LargeBinary)]
        shown = [column if isinstance(column.type, sa.LargeBinary) else sa.cast(column, sa.Text) for column in readable]
        statement = sa.select(*key, *shown).order_by(*key).limit(500)
        try:
            rows = await self._database.read(statement) if readable else ()
        except NotPermitted:
            raise NotReadable(
                f"This user of the database may not read the table {table}: scan as an operator or as the owner, see "
                "docs/operations/database-roles.md."
            ) from None
        while rows:
            yield [
                StoredText(
                    column.name,
                    ",".join(map(str, row[: len(key)])),
                    bytes(value).decode("utf-8", "replace") if isinstance(value, bytes | memoryview) else str(value),
                )
                for row in rows
                for column, value in zip(readable, row[len(key) :], strict=True)
                if value
            ]
            last = rows[-1][: len(key)]
            rest = sa.tuple_(*key) > sa.tuple_(*last) if len(key) > 1 else key[0] > last[0]
            rows = await self._database.read(statement.where(rest))

    async def _inspected(self, ask: Callable[[sa.Inspector], Any]) -> Any:
        with outages_translated():
            async with self._engine.connect() as connection:
                return await connection.run_sync(lambda connection: ask(sa.inspect(connection)))

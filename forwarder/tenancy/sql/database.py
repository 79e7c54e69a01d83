"""Transactions of tenancy. Here, and nowhere else in tenancy, drivers' errors become `TenancyUnavailable`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.enlistment import to_be_written
from forwarder.tenancy.port import TenancyUnavailable

_LIMIT_SECONDS = 15.0
_WRONG_VALUES = ("21", "22", "23")
"""The SQLSTATE classes for wrong values. All others say that the database cannot do our work now, be it for want of a privilege."""


@asynccontextmanager
async def transaction(engine: AsyncEngine, *, writes: bool, enlists: bool = True) -> AsyncIterator[AsyncConnection]:
    """A transaction, committed when the block ends, rolled back if it raises; bounded in time. A writing one includes enlisted
    rows, unless `enlists` is false because it is not part of the change. Raises `TenancyUnavailable`."""
    enlisted = to_be_written() if writes and enlists else None
    if not writes:
        engine = engine.execution_options(postgresql_readonly=True)
    try:
        async with asyncio.timeout(_LIMIT_SECONDS), engine.begin() as connection:
            yield connection
            if enlisted is not None:
                await enlisted.write(connection)
    except (PoolExhausted, OSError) as error:  # OSError is also every TimeoutError and ConnectionError
        raise TenancyUnavailable(_described(error)) from error
    except DBAPIError as error:
        sqlstate: str = getattr(error.orig, "sqlstate", None) or ""
        ours = sqlstate.startswith(_WRONG_VALUES) or (
            not sqlstate and isinstance(error, IntegrityError | ProgrammingError)
        )
        if ours and not error.connection_invalidated:
            raise
        raise TenancyUnavailable(_described(error.orig or error)) from error
    if enlisted is not None:
        enlisted.written = True


def insert_into(engine: AsyncEngine, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that can say ON CONFLICT."""
    return postgresql.insert(table) if engine.dialect.name == "postgresql" else sqlite.insert(table)


def in_utc(moment: datetime) -> datetime:
    """Adds the time zone, which SQLite does not store."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]

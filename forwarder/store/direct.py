"""Statements that are carried out all the time, handed to PostgreSQL's driver as SQLAlchemy compiled them once.

SQLAlchemy makes the texts and keeps the connections. What lies between them (contexts, cursors, rows, a transaction object for
each statement) costs several times what the driver itself does, and gives a single read nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
from sqlalchemy import Dialect, Executable
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

DriverError = (asyncpg.PostgresError, asyncpg.InterfaceError, AsyncAdapt_asyncpg_dbapi.Error)
"""What the driver raises; connecting, it is what SQLAlchemy makes of that. None quotes more than parameters of a read."""


class DirectRow(asyncpg.Record):
    """A row whose columns are attributes, as SQLAlchemy's are."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@dataclass(frozen=True, slots=True)
class Direct:
    """A compiled statement. `takes`: its parameters in their order, each with what brings a value into the driver's form."""

    text: str
    takes: tuple[tuple[str, Callable[[Any], Any] | None], ...]

    def arguments(self, parameters: Mapping[str, Any]) -> list[Any]:
        """What it takes of these, as the driver takes it."""
        return [parameters[name] if bind is None else bind(parameters[name]) for name, bind in self.takes]

    async def rows(self, engine: AsyncEngine, parameters: Mapping[str, Any]) -> Sequence[DirectRow]:
        """Its rows, by a connection of the engine's pool: a transaction of its own, as every statement that is in none. Raises
        `DriverError`, and what the pool raises."""
        values = self.arguments(parameters)
        # The type that is promised for a pooled connection is that of the standard library's drivers.
        pooled: Any = await engine.raw_connection()
        try:
            found: Sequence[DirectRow] = await pooled.driver_connection.fetch(
                self.text, *values, record_class=DirectRow
            )
        except asyncpg.PostgresError:
            pooled.close()  # back into the pool: it was answered, or is known to be closed
            raise
        except BaseException:
            pooled.invalidate()  # given up: nobody knows what comes over it next
            raise
        pooled.close()
        return found


def direct(statement: Executable, dialect: Dialect) -> Direct:
    """`statement`, compiled for asyncpg. All that it takes are named parameters, none of them expanding."""
    assert isinstance(statement, ClauseElement)  # noqa: S101 - whatever can be carried out is one
    compiled = statement.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)  # noqa: S101
    types = {name: parameter.type.dialect_impl(dialect) for name, parameter in compiled.binds.items()}
    order = compiled.positiontup or ()
    return Direct(compiled.string, tuple((name, types[name].bind_processor(dialect)) for name in order))

"""Reads every text in the database, in all tables, to search for data that must not be stored."""

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.types import JSON, String

from forwarder.store.database import Database, NotPermitted, outages_translated

_BATCH: Final = 500
T = TypeVar("T")


class NotReadable(Exception):
    """This user of the database may not read a table. The message names it, and says who may."""


class StoredText(NamedTuple):
    """A value, and where it is: its column, or part of a message; and the row's primary key, or another place."""

    column: str
    key: str
    text: str


class SqlTexts:
    """The texts of one database. Methods raise `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine.execution_options(postgresql_readonly=True)
        self._database = Database(engine)

    async def tables(self) -> Sequence[str]:
        """The names of all tables, including those that are not the forwarder's."""
        return await self._ask(lambda connection: sorted(sa.inspect(connection).get_table_names()))

    async def of(self, table: str) -> AsyncGenerator[Sequence[StoredText], None]:
        """The texts of a table, in batches, each in a short transaction, so that a slow reader blocks nothing. May miss texts that
        are written meanwhile."""
        known = await self._ask(partial(_known, table))
        key = list(known.primary_key) or list(known.columns)
        readable = [column for column in known.columns if isinstance(column.type, String | JSON | sa.LargeBinary)]
        shown = [column if isinstance(column.type, sa.LargeBinary) else sa.cast(column, sa.Text) for column in readable]
        statement = sa.select(*key, *shown).order_by(*key).limit(_BATCH)
        try:
            rows = await self._database.read(statement) if readable else ()
        except NotPermitted:
            raise NotReadable(
                f"This user of the database may not read the table {table}: scan as an operator or as the owner, see "
                "docs/operations/database-roles.md."
            ) from None
        while rows:
            yield [
                StoredText(column.name, ",".join(map(str, row[: len(key)])), _text(value))
                for row in rows
                for column, value in zip(readable, row[len(key) :], strict=True)
                if value
            ]
            last = rows[-1][: len(key)]
            rest = sa.tuple_(*key) > sa.tuple_(*last) if len(key) > 1 else key[0] > last[0]
            rows = await self._database.read(statement.where(rest))

    async def _ask(self, ask: Callable[[sa.Connection], T]) -> T:
        with outages_translated():
            async with self._engine.connect() as connection:
                return await connection.run_sync(ask)


def _known(table: str, connection: sa.Connection) -> sa.Table:
    """Its columns. Its indexes are of no interest, and not all of them can be reflected."""
    catalogue = sa.inspect(connection)
    key = catalogue.get_pk_constraint(table)["constrained_columns"]
    columns = (
        sa.Column(each["name"], each["type"], primary_key=each["name"] in key) for each in catalogue.get_columns(table)
    )
    return sa.Table(table, sa.MetaData(), *columns)


def _text(value: Any) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, bytes | memoryview) else str(value)

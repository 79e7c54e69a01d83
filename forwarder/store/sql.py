"""Parts of the store's statements, for both databases: literals, times, INSERT with ON CONFLICT, locked picks, distinct values."""

from datetime import date, datetime
from functools import partial
from typing import Any, Final, Literal, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from forwarder.process.clock import iso

DialectName = Literal["postgresql", "sqlite"]
ZERO: Final[sa.ColumnElement[int]] = sa.literal_column("0")
ONE: Final[sa.ColumnElement[int]] = sa.literal_column("1")
"""As literals: part of a statement's one text, unlike parameters."""


def literal(text: str) -> sa.ColumnElement[str]:
    """A text in quotes, as a literal."""
    return sa.literal_column(f"'{text}'")


def written_as(element: type[FunctionElement[Any]], **texts: str) -> None:
    """The text of `element` on each database; `{0}` is its first operand."""

    def written(text: str, element: FunctionElement[Any], compiler: SQLCompiler, **options: Any) -> str:
        return text.format(*(compiler.process(each, **options) for each in element.clauses))

    for dialect, text in texts.items():
        compiles(element, dialect)(partial(written, text))


class Moment(sa.TypeDecorator[datetime]):
    """A time, to the millisecond: timestamptz on PostgreSQL; on SQLite ISO 8601 text in UTC with `Z`, which sorts."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[datetime]:
        stored: TypeEngine[Any] = sa.Text() if dialect.name == "sqlite" else sa.DateTime(timezone=True)
        return dialect.type_descriptor(stored)

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | str | None:
        if value is None or dialect.name == "sqlite":
            return value and iso(value)
        return value.replace(microsecond=value.microsecond // 1000 * 1000)

    def process_result_value(self, value: datetime | str | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        return datetime.fromisoformat(value) if isinstance(value, str) else value


class utc_day(FunctionElement[date]):  # noqa: N801 - it is written as the functions of SQL are
    """The day of a `Moment`, in UTC."""

    name = "utc_day"
    type = sa.Date()
    inherit_cache = True


written_as(utc_day, postgresql="CAST(timezone('UTC', {0}) AS DATE)", sqlite="substr({0}, 1, 10)")


class octets(FunctionElement[int]):  # noqa: N801 - as `utc_day`
    """The length of a text in bytes. PostgreSQL does not read the text for it."""

    name = "octets"
    type = sa.Integer()
    inherit_cache = True


written_as(octets, postgresql="octet_length({0})", sqlite="length(CAST({0} AS BLOB))")


def columns_of(table: sa.FromClause, names: str) -> tuple[sa.Column[Any], ...]:
    """The columns of `table` with these names, separated by spaces."""
    return tuple(cast("sa.Column[Any]", table.c[name]) for name in names.split())


def insert_into(dialect: DialectName, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that can have ON CONFLICT."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


def locked(rows: Any) -> sa.CTE:
    """The ids that `rows` selects, locked; skips rows that another transaction has locked."""
    # A CTE, because a subquery may run more than once, and would then pick too many rows.
    picked: sa.CTE = rows.with_for_update(skip_locked=True).cte("picked")
    return picked


def distinct(among: sa.ColumnElement[bool], *order: sa.Column[Any]) -> sa.CTE:
    """The distinct values of a column, each found by one step through the index on `order`, which begins with it; and NULL.

    If another index begins with the same column, name more columns of the order: otherwise a planner may use that index and read
    every row of the table."""
    value = order[0]
    first = sa.select(value).where(among).order_by(*order).limit(ONE)
    found = sa.select(first.scalar_subquery().label("value")).cte("found", recursive=True)
    following = first.where(value > found.c.value).scalar_subquery()
    return found.union_all(sa.select(following).select_from(found).where(found.c.value.is_not(None)))

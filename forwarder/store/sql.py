"""Parts of the store's statements, for both databases: literals, times, INSERT with ON CONFLICT, locked picks, distinct values."""

from datetime import datetime
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
"""Literals are part of a statement's one text, unlike parameters."""


def literal(text: str) -> sa.ColumnElement[str]:
    return sa.literal_column(f"'{text}'")


def sql_function(name: str, type_: TypeEngine[Any], **texts: str) -> type[FunctionElement[Any]]:
    """A function with this text on each database; `{0}` is its first operand."""
    # Ungrouped: SQLAlchemy would compare a condition with 1 on SQLite, which has no boolean, and no index serves that.
    own = {"name": name, "type": type_, "inherit_cache": True, "self_group": lambda function, against=None: function}  # noqa: ARG005
    element = type(name, (FunctionElement,), own)

    def written(text: str, element: FunctionElement[Any], compiler: SQLCompiler, **options: Any) -> str:
        return text.format(*(compiler.process(each, **options) for each in element.clauses))

    for dialect, text in texts.items():
        compiles(element, dialect)(partial(written, text))
    return element


class Moment(sa.TypeDecorator[datetime]):
    """A time, to the millisecond: timestamptz on PostgreSQL; on SQLite ISO 8601 text in UTC with `Z`, which sorts."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[datetime]:
        return dialect.type_descriptor(sa.Text() if dialect.name == "sqlite" else self.impl_instance)

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | str | None:
        if value is None or dialect.name == "sqlite":
            return value and iso(value)
        return value.replace(microsecond=value.microsecond // 1000 * 1000)

    def process_result_value(self, value: datetime | str | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        return datetime.fromisoformat(value) if isinstance(value, str) else value


_DAY: Final = "CAST(timezone('UTC', {0}) AS DATE)"
utc_day = sql_function("utc_day", sa.Date(), postgresql=_DAY, sqlite="substr({0}, 1, 10)")
"""The day of a `Moment`, in UTC."""

octets = sql_function("octets", sa.Integer(), postgresql="octet_length({0})", sqlite="length(CAST({0} AS BLOB))")
"""The length of a text in bytes. PostgreSQL does not read the text for it."""


def columns_of(table: sa.FromClause, names: str) -> tuple[sa.Column[Any], ...]:
    return tuple(cast("sa.Column[Any]", table.c[name]) for name in names.split())


def insert_into(dialect: DialectName, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


def locked(rows: sa.Select[Any]) -> sa.Select[Any]:
    """The ids that `rows` selects, locked; skips rows that another transaction has locked."""
    # A CTE, because a subquery may run more than once, and would then pick too many rows.
    return sa.select(rows.with_for_update(skip_locked=True).cte("picked").c.id)


def distinct(among: sa.ColumnElement[bool], *order: sa.Column[Any]) -> sa.CTE:
    """The distinct values of a column, each found by one step through the index on `order`, which begins with it; and NULL. Name
    more columns of the order if another index begins with the same one: a planner may use that, and read every row of the table."""
    value = order[0]
    first = sa.select(value).where(among).order_by(*order).limit(ONE)
    found = sa.select(first.scalar_subquery().label("value")).cte("found", recursive=True)
    following = first.where(value > found.c.value).scalar_subquery()
    return found.union_all(sa.select(following).select_from(found).where(found.c.value.is_not(None)))

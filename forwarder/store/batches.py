"""Batches of rows in a statement, and how it finds rows by a batch's keys.

A batch is one parameter: a JSON array of objects that the database itself turns into rows. So one statement text, compiled and
prepared once, serves every batch size, in one round trip.

A batch finds its rows by their keys, one index look-up each, regardless of statistics: those of a table that quickly fills or
empties are wrong for a while, and PostgreSQL caches plans meanwhile. So the statements leave only one plan."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from forwarder.reservation.fast import json_text
from forwarder.store.sql import DialectName, sql_function
from forwarder.store.tables import reservations

BATCH: Final = "batch"  # the parameter that takes the JSON text of `as_batch`
_TEXTS: Final = "texts"

_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape for U+0000: after an even number of backslashes, for an odd one would make it six plain characters."""


class _Batch(FunctionElement[Any]):
    """The parameter, and the columns: as clauses, so that they are part of the cache key. After a separate column, the last, comes
    the parameter of its texts, which SQLite does without."""

    name = "batch"
    inherit_cache = True


Execute = Callable[[sa.Executable, dict[str, Any]], Awaitable[Iterable[Any]]]
"""Executes a statement with parameters, within a transaction or as one of its own; returns rows."""


def batch_of(
    *columns: sa.Column[Any] | sa.ColumnClause[Any], separate: sa.Column[Any] | None = None
) -> sa.TableValuedAlias:
    """The batch as something to select from, with columns of these names and types. A member that is null or missing is NULL; an
    object or array in a text column is its JSON text, as written. With `separate`, a further column: as of `batch_with_texts`."""
    every = columns if separate is None else (*columns, separate)
    shape = [sa.ColumnClause(each.name, each.type) for each in every]
    texts = [] if separate is None else [sa.bindparam(_TEXTS, type_=sa.ARRAY(sa.Text))]
    return _Batch(sa.bindparam(BATCH, type_=sa.Text()), *shape, *texts).table_valued(*shape, name="batch")


def as_batch(rows: Sequence[Mapping[str, Any]]) -> str:
    """The JSON text of `rows`. One row must not spoil the whole batch: what JSON has no number for (NaN, infinity) becomes null,
    and the character that databases take in no text (U+0000) becomes U+FFFD."""
    return _clean(json_text(rows))


def key_batch(name: str, keys: Iterable[object]) -> str:
    """The batch of these values of the one column `name`."""
    return as_batch([{name: key} for key in keys])


def batch_with_texts(
    dialect: DialectName, rows: Sequence[Mapping[str, Any]], separate: str, texts: Iterable[bytes]
) -> dict[str, Any]:
    """The parameters of a batch whose column `separate` is in `texts`, each a JSON text: one for each of `rows`, in their order. On
    PostgreSQL they are a parameter of their own: it would parse them as a part of the batch, for a tenth of a delivery's cost."""
    if dialect == "postgresql":
        return {BATCH: as_batch(rows), _TEXTS: [_clean(text) for text in texts]}
    together = (
        b'%s,"%s":%s}' % (json_text(row)[:-1], separate.encode(), text) for row, text in zip(rows, texts, strict=True)
    )
    return {BATCH: _clean(b"[%s]" % b",".join(together))}


def _clean(batch: bytes) -> str:
    text = batch.decode()
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


@compiles(_Batch)
def _compiled_batch(element: _Batch, compiler: SQLCompiler, **options: Any) -> str:
    parameter, *others = element.clauses
    rows = compiler.process(parameter, **options)
    columns = {compiler.preparer.quote(each.name): each for each in others if isinstance(each, sa.ColumnClause)}
    if compiler.dialect.name == "sqlite":
        extracted = ", ".join(f"json_extract(value, '$.{each.name}') AS {name}" for name, each in columns.items())
        return f"(SELECT {extracted} FROM json_each({rows}))"  # noqa: S608 - names of our own
    types = compiler.dialect.type_compiler_instance
    shape = [f"{name} {types.process(each.type)}" for name, each in columns.items()]
    if len(others) == len(columns):
        return f"(SELECT * FROM json_to_recordset(CAST({rows} AS JSON)) AS element({', '.join(shape)}))"  # noqa: S608
    objects = f"json_to_recordset(CAST({rows} AS JSON)) AS ({', '.join(shape[:-1])})"
    texts = f"unnest({compiler.process(others[-1], **options)})"
    return f"(SELECT * FROM ROWS FROM ({objects}, {texts}) AS element({', '.join(columns)}))"  # noqa: S608


same_key = sql_function("same_key", sa.Boolean())
"""An indexed column (the first) equals a value of the batch (the second). For equality a planner may sort or hash one side, or walk
the whole index. For a range, even of a single key, it must look up the index once per row of the batch."""


@compiles(same_key)
def _compiled_same_key(element: FunctionElement[bool], compiler: SQLCompiler, **options: Any) -> str:
    column, value = element.clauses
    # As expressions, by which SQLAlchemy sees what it joins.
    bounds = sa.and_(column >= value, column <= value).self_group()
    return compiler.process(column == value if compiler.dialect.name == "sqlite" else bounds, **options)


_key_among = sql_function("key_among", sa.Boolean(), postgresql="{0} = ANY (ARRAY{1})", sqlite="{0} IN {1}")


def key_among(column: sa.ColumnElement[Any], values: sa.Select[Any]) -> sa.ColumnElement[bool]:
    """An indexed column has one of these values: an array, built once, so that this is an index condition, without a join."""
    return _key_among(column, values.scalar_subquery())


def of_each(dialect: DialectName, outer: sa.FromClause, rows: sa.Select[Any]) -> sa.Select[Any]:
    """The reservations that `rows`, a limited query correlated to `outer`, selects for each row of `outer`."""
    if dialect == "postgresql":
        inner = rows.lateral("inner")
        return sa.select(*inner.c).select_from(outer.join(inner, sa.true()))
    # SQLite has no LATERAL, but evaluates such a list of ids for each row of `outer`.
    ids = rows.with_only_columns(reservations.c.id)
    return sa.select(*rows.selected_columns).select_from(outer.join(reservations, reservations.c.id.in_(ids)))


def in_batch(column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """An indexed column has one of the values of a `key_batch` of its name."""
    return key_among(column, sa.select(batch_of(column).c[column.name]))

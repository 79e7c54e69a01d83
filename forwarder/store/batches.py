"""Batches of rows in a statement, and how it finds rows by a batch's keys.

A batch of rows is one parameter: a JSON array of objects that the database itself turns into rows. One statement text serves every
batch size, so it is compiled and prepared once, and a batch costs one round trip.

A batch finds its rows by their keys, one index look-up each, regardless of the planner's statistics. PostgreSQL
caches a statement's plan while the table's statistics stay the same, and those of a table that quickly fills or empties are wrong
for a while: the table seems nearly empty, and a full scan cheap. So the statements leave only one plan. SQLite's plans do not
depend on the number of rows."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType

from forwarder.reservation.value import json_text
from forwarder.store.sql import DialectName, written_as

BATCH: Final = "batch"
"""The parameter that takes the JSON text of `as_batch`."""
_TEXTS: Final = "texts"

_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape for U+0000: after an even number of backslashes, for an odd one would make it six plain characters."""


class _Batch(FunctionElement[Any]):
    """The parameter, and then the columns: as clauses, so that they are part of the cache key."""

    name = "batch"
    inherit_cache = True


class _BatchWithTexts(_Batch):
    """The separate column is last, and after it comes the parameter of its texts, which SQLite does without."""

    name = "batch_with_texts"
    inherit_cache = True


Execute = Callable[[sa.Executable, dict[str, Any]], Awaitable[Iterable[Any]]]
"""Executes a statement with parameters, within a transaction or as one of its own; returns rows."""


def batch_of(
    *columns: sa.Column[Any] | sa.ColumnClause[Any], separate: sa.Column[Any] | None = None
) -> sa.TableValuedAlias:
    """The batch as something to select from, with columns of these names and types. A member that is null or missing is NULL; an
    object or array in a text column is its JSON text, as written. With `separate`, a further column: as of `batch_with_texts`."""
    rows, shape = sa.bindparam(BATCH, type_=sa.Text()), [sa.ColumnClause(each.name, each.type) for each in columns]
    if separate is None:
        return _Batch(rows, *shape).table_valued(*shape, name="batch")
    shape.append(sa.ColumnClause(separate.name, separate.type))
    texts = sa.bindparam(_TEXTS, type_=sa.ARRAY(sa.Text))
    return _BatchWithTexts(rows, *shape, texts).table_valued(*shape, name="batch")


def as_batch(rows: Sequence[Mapping[str, Any]]) -> str:
    """The JSON text of `rows`. A PMS may send what JSON has no number for (NaN, infinity), which becomes null, or the character
    that databases take in no text (U+0000), which becomes U+FFFD: one row must not spoil the whole batch."""
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


@compiles(_Batch, "postgresql")
def _batch_on_postgresql(element: _Batch, compiler: SQLCompiler, **options: Any) -> str:
    parameter, *columns = element.clauses
    types = compiler.dialect.type_compiler_instance
    shape = ", ".join(f"{_name(compiler, column)} {types.process(column.type)}" for column in columns)
    array = compiler.process(parameter, **options)
    return f"(SELECT * FROM json_to_recordset(CAST({array} AS JSON)) AS element({shape}))"  # noqa: S608 - names of our own


@compiles(_BatchWithTexts, "postgresql")
def _batch_with_texts_on_postgresql(element: _BatchWithTexts, compiler: SQLCompiler, **options: Any) -> str:
    rows, *columns, texts = element.clauses
    types, names = compiler.dialect.type_compiler_instance, [_name(compiler, column) for column in columns]
    shape = ", ".join(f"{name} {types.process(column.type)}" for name, column in zip(names[:-1], columns, strict=False))
    objects = f"json_to_recordset(CAST({compiler.process(rows, **options)} AS JSON)) AS ({shape})"
    unnested = f"unnest({compiler.process(texts, **options)})"
    return f"(SELECT * FROM ROWS FROM ({objects}, {unnested}) AS element({', '.join(names)}))"  # noqa: S608 - names of our own


@compiles(_Batch, "sqlite")
def _batch_on_sqlite(element: _Batch, compiler: SQLCompiler, **options: Any) -> str:
    parameter, *others = element.clauses
    columns = (each for each in others if isinstance(each, sa.ColumnClause))
    shape = ", ".join(f"json_extract(value, '$.{column.name}') AS {_name(compiler, column)}" for column in columns)
    return f"(SELECT {shape} FROM json_each({compiler.process(parameter, **options)}))"  # noqa: S608 - names of our own


def _name(compiler: SQLCompiler, column: Any) -> str:
    return compiler.preparer.quote(column.name)


class _Condition(FunctionElement[bool]):
    type = sa.Boolean()
    inherit_cache = True

    def self_group(self, against: OperatorType | None = None) -> Self:  # noqa: ARG002 - as SQLAlchemy has it
        """Unchanged. Otherwise SQLAlchemy would compare it with 1 on SQLite, which has no boolean, and no index serves that."""
        return self


class same_key(_Condition):  # noqa: N801 - written like SQL's functions
    """An indexed column (the first) equals a value of the batch (the second).

    For equality a planner may sort or hash one side, or walk the whole index. For a range, even of a single key, it must look up
    the index once per row of the batch."""

    name = "same_key"
    inherit_cache = True


class key_among(_Condition):  # noqa: N801 - as `same_key`
    """An indexed column (the first) has one of the values that a query selects (the second): an array of them, built once, so that
    this is an index condition, without a join."""

    name = "key_among"
    inherit_cache = True

    def __init__(self, column: sa.ColumnElement[Any], values: sa.Select[Any]) -> None:
        super().__init__(column, values.scalar_subquery())


@compiles(same_key, "postgresql")
def _same_key_on_postgresql(element: same_key, compiler: SQLCompiler, **options: Any) -> str:
    column, value = element.clauses
    return compiler.process(sa.and_(column >= value, column <= value).self_group(), **options)


@compiles(same_key, "sqlite")
def _same_key_on_sqlite(element: same_key, compiler: SQLCompiler, **options: Any) -> str:
    column, value = element.clauses
    return compiler.process(column == value, **options)  # as an expression, by which SQLAlchemy sees what it joins


written_as(key_among, postgresql="{0} = ANY (ARRAY{1})", sqlite="{0} IN {1}")


def in_batch(column: sa.Column[Any]) -> key_among:
    """An indexed column has one of the values of a `key_batch` of its name."""
    return key_among(column, sa.select(batch_of(column).c[column.name]))

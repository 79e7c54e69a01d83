"""A batch of rows as one parameter: a JSON array of objects that the database itself turns into rows.

One statement text serves every batch size, so it is compiled and prepared once, and a batch costs one round trip.

A column of long JSON texts may go apart. PostgreSQL then takes them as an array of texts, and is spared reading each of them twice,
which was half of what a batch of outcomes cost it to read. SQLite has no arrays, and finds them in their rows.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import to_json
from sqlalchemy import ARRAY, Column, ColumnClause, TableValuedAlias, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from forwarder.store.database import Dialect

PARAMETER = "batch"
"""The name of the parameter that takes the JSON text of `as_batch`."""

_TEXTS = "texts"
"""The name of the parameter that takes what goes apart."""

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape for U+0000: after an even number of backslashes, for an odd one would make it six plain characters."""


class _Batch(FunctionElement[Any]):
    """The parameter, and then the columns: as clauses, so that they are part of the cache key."""

    name = "batch"
    inherit_cache = True


class _BatchWithTexts(FunctionElement[Any]):
    """The two parameters, the column that goes apart, and the others."""

    name = "batch_with_texts"
    inherit_cache = True


def batch_of(
    *columns: Column[Any] | ColumnClause[Any], apart: Column[Any] | ColumnClause[Any] | None = None
) -> TableValuedAlias:
    """The batch as something to select from, with columns of these names and types. A member that is null, or missing, is NULL;
    an object or array in a text column is its JSON text, as it was written. With `apart` it takes what `batch_with_texts` gives."""
    shape = [ColumnClause(column.name, column.type) for column in columns]
    rows = bindparam(PARAMETER, type_=Text())
    if apart is None:
        return _Batch(rows, *shape).table_valued(*shape, name="batch")
    shape = [ColumnClause(apart.name, apart.type), *shape]
    texts = bindparam(_TEXTS, type_=ARRAY(Text))
    return _BatchWithTexts(rows, texts, *shape).table_valued(*shape, name="batch")


def as_batch(rows: Sequence[Mapping[str, Any]]) -> str:
    """The JSON text of `rows`. A PMS may answer what JSON has no number for (NaN, infinity), which becomes null, or the character
    that databases have no text with (U+0000), which becomes U+FFFD: one row must not spoil the batch of all."""
    return _clean(to_json(rows, inf_nan_mode="null"))


def batch_with_texts(
    dialect: Dialect, rows: Sequence[Mapping[str, Any]], apart: str, texts: Iterable[bytes]
) -> dict[str, Any]:
    """The parameters of a batch of which the column `apart` is in `texts`, each a JSON text: one for each of `rows`, in their
    order. What `as_batch` says holds of these too."""
    if dialect == "postgresql":
        return {PARAMETER: as_batch(rows), _TEXTS: [_clean(text) for text in texts]}
    together = (_with_member(row, apart, text) for row, text in zip(rows, texts, strict=True))
    return {PARAMETER: _clean(b"[%s]" % b",".join(together))}


def _with_member(row: Mapping[str, Any], name: str, text: bytes) -> bytes:
    return b'%s,"%s":%s}' % (to_json(row, inf_nan_mode="null")[:-1], name.encode(), text)


def _clean(batch: bytes) -> str:
    text = batch.decode()
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


@compiles(_Batch, "postgresql")
def _on_postgresql(element: _Batch, compiler: SQLCompiler, **options: Any) -> str:
    parameter, *columns = element.clauses
    types = compiler.dialect.type_compiler_instance
    shape = ", ".join(f"{_name(compiler, column)} {types.process(column.type)}" for column in columns)
    array = compiler.process(parameter, **options)
    return f"(SELECT * FROM json_to_recordset(CAST({array} AS JSON)) AS element({shape}))"  # noqa: S608 - names of our own


@compiles(_BatchWithTexts, "postgresql")
def _with_texts_on_postgresql(element: _BatchWithTexts, compiler: SQLCompiler, **options: Any) -> str:
    rows, texts, apart, *columns = element.clauses
    types = compiler.dialect.type_compiler_instance
    shape = ", ".join(f"{_name(compiler, column)} {types.process(column.type)}" for column in columns)
    names = ", ".join(_name(compiler, column) for column in (*columns, apart))
    objects = f"json_to_recordset(CAST({compiler.process(rows, **options)} AS JSON)) AS ({shape})"
    return f"(SELECT * FROM ROWS FROM ({objects}, unnest({compiler.process(texts, **options)})) AS element({names}))"  # noqa: S608 - names of our own


@compiles(_BatchWithTexts, "sqlite")
def _with_texts_on_sqlite(element: _BatchWithTexts, compiler: SQLCompiler, **options: Any) -> str:
    rows, _, *columns = element.clauses
    return compiler.process(_Batch(rows, *columns), **options)


@compiles(_Batch, "sqlite")
def _on_sqlite(element: _Batch, compiler: SQLCompiler, **options: Any) -> str:
    parameter, *columns = element.clauses
    shape = ", ".join(f"json_extract(value, '$.{column.name}') AS {_name(compiler, column)}" for column in columns)
    return f"(SELECT {shape} FROM json_each({compiler.process(parameter, **options)}))"  # noqa: S608 - names of our own


def _name(compiler: SQLCompiler, column: Any) -> str:
    return compiler.preparer.quote(column.name)

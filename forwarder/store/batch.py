"""A batch of rows as one parameter: a JSON array of objects that the database itself turns into rows.

One statement text serves every batch size, so it is compiled and prepared once, and a batch costs one round trip.
"""

import re
from typing import Any

from pydantic_core import to_json
from sqlalchemy import Column, ColumnClause, TableValuedAlias, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

PARAMETER = "batch"
"""The name of the parameter that takes the JSON text of `as_batch`."""

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape for U+0000: after an even number of backslashes, for an odd one would make it six plain characters."""


class _Batch(FunctionElement[Any]):
    """The parameter, and then the columns: as clauses, so that they are part of the cache key."""

    name = "batch"
    inherit_cache = True


def batch_of(*columns: Column[Any] | ColumnClause[Any]) -> TableValuedAlias:
    """The batch as something to select from, with columns of these names and types. A member that is null, or missing, is NULL;
    an object or array in a text column is its JSON text, as it was written."""
    shape = [ColumnClause(column.name, column.type) for column in columns]
    return _Batch(bindparam(PARAMETER, type_=Text()), *shape).table_valued(*shape, name="batch")


def as_batch(rows: list[dict[str, Any]]) -> str:
    """The JSON text of `rows`. A PMS may answer what JSON has no number for (NaN, infinity), which becomes null, or the character
    that databases have no text with (U+0000), which becomes U+FFFD: one row must not spoil the batch of all."""
    text = to_json(rows, inf_nan_mode="null").decode()
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


@compiles(_Batch, "postgresql")
def _on_postgresql(element: _Batch, compiler: SQLCompiler, **options: Any) -> str:
    parameter, *columns = element.clauses
    types = compiler.dialect.type_compiler_instance
    shape = ", ".join(f"{_name(compiler, column)} {types.process(column.type)}" for column in columns)
    array = compiler.process(parameter, **options)
    return f"(SELECT * FROM json_to_recordset(CAST({array} AS JSON)) AS element({shape}))"  # noqa: S608 - names of our own


@compiles(_Batch, "sqlite")
def _on_sqlite(element: _Batch, compiler: SQLCompiler, **options: Any) -> str:
    parameter, *columns = element.clauses
    shape = ", ".join(f"json_extract(value, '$.{column.name}') AS {_name(compiler, column)}" for column in columns)
    return f"(SELECT {shape} FROM json_each({compiler.process(parameter, **options)}))"  # noqa: S608 - names of our own


def _name(compiler: SQLCompiler, column: Any) -> str:
    return compiler.preparer.quote(column.name)

"""How a batch finds its rows: by their keys, one look each into the index, whatever a planner thinks of the table. No I/O.

PostgreSQL keeps the plan of a statement for as long as the table's statistics stay the same, and those of a table that fills up
or is emptied quickly are wrong for a while: it seems to hold hardly a row, and to read all of it seems cheap. So the statements
are written in ways that leave no other plan. SQLite needs none of it: its plans do not depend on how much there is.
"""

from typing import Any, Self

from sqlalchemy import Boolean, Select, and_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType


class _Condition(FunctionElement[bool]):
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: OperatorType | None = None) -> Self:  # noqa: ARG002 - as SQLAlchemy has it
        """As it is. Elsewhere SQLAlchemy would have SQLite compare it with 1, having no boolean, which no index serves."""
        return self


class same_key(_Condition):  # noqa: N801 - it is written as the functions of SQL are
    """That a column with an index, the first, equals a value of the batch, the second.

    Two rows can be joined on what is equal by sorting or hashing one side, or by walking the whole index. A range, be it of one
    key, leaves an index to be entered for each row of the batch.
    """

    name = "same_key"
    inherit_cache = True


class key_among(_Condition):  # noqa: N801 - as `same_key`
    """That a column with an index, the first, has one of the values that a query selects, the second.

    As an array, which is made once, it is a condition on the index, and nothing is joined.
    """

    name = "key_among"
    inherit_cache = True

    def __init__(self, column: ColumnElement[Any], values: Select[Any]) -> None:
        super().__init__(column, values.scalar_subquery())


@compiles(same_key, "postgresql")
def _same_on_postgresql(element: same_key, compiler: SQLCompiler, **options: Any) -> str:
    column, value = element.clauses
    return compiler.process(and_(column >= value, column <= value).self_group(), **options)


@compiles(same_key, "sqlite")
def _same_on_sqlite(element: same_key, compiler: SQLCompiler, **options: Any) -> str:
    column, value = element.clauses
    return compiler.process(column == value, **options)


@compiles(key_among, "postgresql")
def _among_on_postgresql(element: key_among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(side, **options) for side in element.clauses)
    return f"{column} = ANY (ARRAY{values})"


@compiles(key_among, "sqlite")
def _among_on_sqlite(element: key_among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(side, **options) for side in element.clauses)
    return f"{column} IN {values}"

"""How PostgreSQL reads each page: `EXPLAIN (ANALYZE, BUFFERS)` of the very statements, with the parameters of the case."""

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
from sqlalchemy import Executable, make_url
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

from bench.flows import ACCOUNT
from bench.pages_cases import LIMIT, Case
from forwarder.store.keyset import FIRST
from forwarder.store.listing import parameters_of, shape_of
from forwarder.store.reader import page_statement

_DIALECT = make_url("postgresql+asyncpg://").get_dialect()()
_PREPARED_AFTER = 5
"""Times that PostgreSQL plans a prepared statement anew before it takes one plan for all."""


async def plans(database_url: str, asked: Sequence[Case], rows: int) -> str:
    """The plan of each page among the cases, as it is once the statement has been used for a while."""
    connection = await asyncpg.connect(database_url)
    try:
        return "".join([await _plan(connection, case, rows) for case in asked if case.filters is not None])
    finally:
        await connection.close()


async def _plan(connection: asyncpg.Connection, case: Case, rows: int) -> str:
    assert case.filters is not None
    shape = shape_of(case.filters, case.order)
    given = {"account_id": ACCOUNT, "at_most": LIMIT + 1, **parameters_of(case.filters, shape, case.cursor)}
    text, values = _compiled(page_statement("postgresql", shape, is_first=case.cursor == FIRST), given)
    # EXPLAIN is prepared with the statement in it, and comes by the same choice of plans.
    explained = await connection.prepare(f"EXPLAIN (ANALYZE, BUFFERS) {text}")
    for _ in range(_PREPARED_AFTER):
        await explained.fetch(*values)
    steps = "\n".join(row[0] for row in await explained.fetch(*values))
    return f"### {case.name}, {rows:,} rows\n```\n{steps}\n```\n\n"


def _compiled(statement: Executable, given: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The statement and its parameters as the driver gets them."""
    assert isinstance(statement, ClauseElement)
    compiled = statement.compile(dialect=_DIALECT)
    assert isinstance(compiled, SQLCompiler)
    names = compiled.positiontup or ()
    binds = [compiled.binds[name].type.dialect_impl(_DIALECT).bind_processor(_DIALECT) for name in names]
    return compiled.string, [
        given[name] if bind is None else bind(given[name]) for name, bind in zip(names, binds, strict=True)
    ]

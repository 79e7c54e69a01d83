"""How PostgreSQL reads each page: `EXPLAIN (ANALYZE, BUFFERS)` of the very statements, with the parameters of the case."""

from collections.abc import Sequence

import asyncpg
from sqlalchemy import make_url

from bench.flows import ACCOUNT
from bench.pages_cases import LIMIT, Case
from forwarder.store.direct import direct
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
    statement = direct(page_statement("postgresql", shape, is_first=case.cursor == FIRST), _DIALECT)
    given = {"account_id": ACCOUNT, "at_most": LIMIT + 1, **parameters_of(case.filters, shape, case.cursor)}
    values = statement.arguments(given)
    # EXPLAIN is prepared with the statement in it, and comes by the same choice of plans.
    explained = await connection.prepare(f"EXPLAIN (ANALYZE, BUFFERS) {statement.text}")
    for _ in range(_PREPARED_AFTER):
        await explained.fetch(*values)
    steps = "\n".join(row[0] for row in await explained.fetch(*values))
    return f"### {case.name}, {rows:,} rows\n```\n{steps}\n```\n\n"

"""How PostgreSQL reads each page: by the very statements, with the parameters of the case."""

from collections.abc import Sequence

import asyncpg

from bench.flows import ACCOUNT
from bench.pages_cases import LIMIT, Case
from forwarder.store.lists.port import FIRST, shape_of
from forwarder.store.lists.reader import page_statement, parameters_of
from tools.generic_plan import generic_plan


async def plans(database_url: str, asked: Sequence[Case], rows: int) -> str:
    """The plan of each page among the cases."""
    connection = await asyncpg.connect(database_url)
    try:
        return "".join([await _plan(connection, case, rows) for case in asked if case.filters is not None])
    finally:
        await connection.close()


async def _plan(connection: asyncpg.Connection, case: Case, rows: int) -> str:
    assert case.filters is not None
    shape = shape_of(case.filters, case.order)
    given = {"account_id": ACCOUNT, "max_rows": LIMIT + 1, **parameters_of(case.filters, shape, case.cursor)}
    statement = page_statement("postgresql", shape, is_first=case.cursor == FIRST)
    steps = await generic_plan(connection, statement, given)
    return f"### {case.name}, {rows:,} rows\n```\n{steps}\n```\n\n"

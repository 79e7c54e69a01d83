"""How PostgreSQL carries out what the store looks up: by one plan for all parameters, as the sessions are told that read."""

import json
from collections.abc import Mapping
from typing import Any

import asyncpg
from sqlalchemy import Executable, make_url

from forwarder.store.engine import READING, driver_statement

_DIALECT = make_url("postgresql+asyncpg://").get_dialect()()


async def generic_plan(connection: asyncpg.Connection, statement: Executable, parameters: Mapping[str, Any]) -> str:
    """`EXPLAIN (ANALYZE, BUFFERS)` of that plan, carried out twice and shown once, so that what it reads is in memory. A plain
    EXPLAIN would show the plan for these very parameters, which is another."""
    text, in_order = driver_statement(statement, _DIALECT)
    values = ", ".join(map(_literal, in_order(parameters)))
    told = {**READING, "jit": "off", "max_parallel_workers_per_gather": "0"}
    await connection.execute("; ".join(f"SET {name} = {value}" for name, value in told.items()))
    await connection.execute(f"PREPARE looked_up AS {text}")
    try:
        explain = f"EXPLAIN (ANALYZE, BUFFERS) EXECUTE looked_up({values})"
        await connection.execute(explain)
        return "\n".join(row[0] for row in await connection.fetch(explain))
    finally:
        await connection.execute("DEALLOCATE looked_up")


def _literal(value: Any) -> str:
    """The value as a text, which the parameter's own type reads."""
    if value is None:
        return "NULL"
    text = "{" + ",".join(map(json.dumps, value)) + "}" if isinstance(value, list) else str(value)
    return "'" + text.replace("'", "''") + "'"

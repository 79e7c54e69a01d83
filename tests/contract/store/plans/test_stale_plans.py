"""PostgreSQL keeps a plan, and is told of what tables hold only now and then: whatever it believes, a batch finds its rows by
their keys."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Executable, text, update
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.sql import ClauseElement

from forwarder.store import delivery_queue, retention
from forwarder.store.batches import batch_of
from forwarder.store.lists.overview import statuses
from forwarder.store.submissions import cancellations, duplicates, intake, leases, recorder, repairs
from forwarder.store.tables import reservations
from tests.support.backends import only
from tests.support.worker.works import NOW

pytestmark = only("distributed")

_LARGE = ("reservations", "duplicates", "outbox", "webhook_deliveries")
_FILL = (
    """
INSERT INTO reservations (request_id, record_id, workspace_id, account_id, partition, operation, property_id, room_id, arrival_date,
  departure_date, status, request, fingerprint, accepted_at, created_at, updated_at, deadline_at, leased_by)
SELECT 'rsv_' || n, n, 'demo', 'acc' || n % 5, n % 16, 'general', '1', '1', '2027-03-01', '2027-03-02', 'PENDING',
  repeat('x', 500), 'f', :now, :now, :now, :now, 'w1' FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n
""",
    """
INSERT INTO outbox (reservation_id, request_id, revision, status, key, occurred_at, data, publish_attempted_at)
SELECT n, 'rsv_' || n, 1, 'CONFIRMED', 'k', '', repeat('x', 500), :now
FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n
""",
    """
INSERT INTO webhook_deliveries (endpoint_id, event_id, event_type, body, status, created_at, retrying_since, due_at)
SELECT 'whk_' || n % 5, 'event-' || n, 't', repeat('x', 500), 'PENDING', :now, :now, :now
FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n
""",
)
_STATEMENTS: dict[str, Executable] = {
    "record": recorder.record(),
    "finish": recorder.finish,
    "settle": repairs.settle,
    "reopen": repairs.reopen(),
    "postpone": leases.postpone(),
    "forget events": recorder.forget_events,
    "revive": intake.revive(),
    "release": leases.release(),
    "mark as being pushed": leases.mark_pushing,
    "ask for a cancellation": cancellations.note(),
    "look for repeated ones": duplicates.look("postgresql"),
    "look for what stands in their place": duplicates.alike_of("postgresql"),
    "note what is similar": duplicates.note_similar(),
    "compare bodies": duplicates.fingerprints_of(),
    "note a conflict": duplicates.note_conflicts(),
    "see who has what is cancelled": cancellations.noted_on,
    "look duplicates up": duplicates.originals,
    "park a cancellation": cancellations.park("postgresql"),
    "note what was parked": cancellations.unpark(),
    "forget what was parked": cancellations.forget_parked,
    "record deliveries": delivery_queue.record(),
    "release deliveries": delivery_queue.release(),
    "claim deliveries": delivery_queue.claim(),
    "delete deliveries": retention.delete_ended(),
    "look dead letters up": statuses,
}


@pytest.fixture
def migrated_postgres_url(new_postgres_url: str) -> str:
    """What others left behind would be planned for."""
    return new_postgres_url


@pytest.fixture(params=["empty", "empty, analyzed", "filled since", "filled since it had 20", "emptied since", "full"])
async def believed(engine: AsyncEngine, request: pytest.FixtureRequest) -> AsyncEngine:
    """A database of which PostgreSQL believes more or less what holds."""
    steps = {
        "empty": (),
        "empty, analyzed": ("analyze",),
        "filled since": ("analyze", "fill"),
        "filled since it had 20": ("some", "analyze", "fill"),
        "emptied since": ("fill", "analyze", "empty"),
        "full": ("fill", "analyze"),
    }
    async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for table in _LARGE:
            await connection.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = off)"))
        for step in steps[request.param]:
            for sql, rows in _sql(step):
                await connection.execute(text(sql), rows)
    return engine


def _sql(step: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if step in {"fill", "some"}:
        first, last = (1, 20) if step == "some" else (21, 10_000)
        for sql in _FILL:
            yield sql, {"now": NOW, "first": first, "last": last}
    for table in _LARGE:
        if step == "analyze":
            yield f"VACUUM ANALYZE {table}", {}
        if step == "empty":
            yield f"DELETE FROM {table}", {}


@pytest.fixture
async def session(believed: AsyncEngine) -> AsyncIterator[asyncpg.Connection]:
    """A connection of those that the store writes by, which plans everything for all parameters alike."""
    async with believed.connect() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert isinstance(driver, asyncpg.Connection)
        await driver.execute("SET plan_cache_mode = force_generic_plan")
        yield driver


async def scans(session: asyncpg.Connection, engine: AsyncEngine, statement: Executable) -> list[dict[str, Any]]:
    """How the plan comes by rows of what is large."""
    assert isinstance(statement, ClauseElement)
    asked = str(statement.compile(dialect=engine.dialect))
    await session.execute(f"PREPARE asked AS {asked}")
    try:
        nothing = ", ".join("NULL" for _ in set(re.findall(r"\$\d+", asked)))
        execute = f"EXECUTE asked({nothing})" if nothing else "EXECUTE asked"
        (told,) = await session.fetchval(f"EXPLAIN (FORMAT JSON) {execute}")
    finally:
        await session.execute("DEALLOCATE asked")
    return [node for node in _nodes(told["Plan"]) if node.get("Relation Name") in _LARGE]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps of a plan that read a table."""
    if plan["Node Type"] != "ModifyTable":
        yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


async def test_a_batch_finds_its_rows_by_their_keys(session: asyncpg.Connection, believed: AsyncEngine) -> None:
    for name, statement in _STATEMENTS.items():
        found = await scans(session, believed, statement)
        assert found, name
        for node in found:
            assert "Index Cond" in node, (name, node)


async def test_rows_that_are_joined_as_anybody_would_may_be_found_by_a_walk_through_the_index(
    engine: AsyncEngine,
) -> None:
    """So the tests above can fail, and that is why the statements are written as they are."""
    batch = batch_of(reservations.c.id, reservations.c.tries)
    joined = update(reservations).where(reservations.c.id == batch.c.id, leases.HELD).values(tries=batch.c.tries)
    async with engine.connect() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert isinstance(driver, asyncpg.Connection)
        await driver.execute("SET plan_cache_mode = force_generic_plan")
        assert any("Index Cond" not in node for node in await scans(driver, engine, joined))

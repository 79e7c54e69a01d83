"""How PostgreSQL carries out the statements that run all the time: by the indexes made for them, whatever the tables hold."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Executable, event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store import cancelling, holders, leasing, outcomes
from forwarder.store.batch import PARAMETER, as_batch
from forwarder.store.reader import SqlReader
from forwarder.store.recorder import SqlRecorder
from forwarder.store.tables import parked_cancellations
from tests.support.backends import only
from tests.support.stored import lease
from tests.support.works import NOW

pytestmark = only("distributed")

_ROWS = 50_000
OUTCOME = {"status": "CONFIRMED", "updated_at": NOW, "due_at": NOW, "attempts": [], "doubtful": False}
_FILL = """
INSERT INTO reservations (request_id, workspace_id, account_id, partition, operation, property_id, room_id, arrival_date,
  departure_date, status, request, fingerprint, accepted_at, created_at, updated_at, deadline_at, due_at, leased_by)
SELECT 'rsv_' || n, 'demo', 'acc' || n % 5, n % 16, 'general', '1', '1', '2027-03-01', '2027-03-02',
  CASE WHEN n % 3 = 0 THEN 'PENDING' ELSE 'CONFIRMED' END, repeat('x', 500), 'f', :now, :now, :now, :now,
  CASE WHEN n % 3 = 0 THEN CAST(:now AS timestamptz) + (n % 2000 - 1000) * interval '1 second' END,
  CASE WHEN n % 3 = 0 AND n % 7 = 0 THEN 'w1' END
FROM generate_series(1, :rows) AS n
"""


@pytest.fixture(params=["never analyzed", "analyzed"])
async def full(engine: AsyncEngine, request: pytest.FixtureRequest) -> AsyncEngine:
    """A database with 50,000 rows of five accounts, a third of them pending, with and without statistics."""
    await lease(SqlRecorder(engine), "w1")
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE reservations SET (autovacuum_enabled = off)"))
        await connection.execute(text(_FILL), {"now": NOW, "rows": _ROWS})
        if request.param == "analyzed":
            await connection.execute(text("ANALYZE reservations"))
    return engine


async def plan(engine: AsyncEngine, statement: Executable, parameters: Mapping[str, Any]) -> str:
    """What PostgreSQL does; nothing of it is committed. Not all of it shows unless it is carried out."""

    def explain(connection: Connection) -> str:
        def prefix(_c: Any, _cursor: Any, sql: str, given: Any, _context: Any, _many: bool) -> tuple[str, Any]:
            return f"EXPLAIN (ANALYZE) {sql}", given

        event.listen(connection, "before_cursor_execute", prefix, retval=True)
        cursor = connection.execute(statement, parameters).cursor
        assert cursor is not None
        return "\n".join(line for (line,) in cursor.fetchall())

    async with engine.connect() as connection:
        return await connection.run_sync(explain)


def reads_every_row(steps: str) -> bool:
    return "Seq Scan on reservations" in steps


async def test_rows_are_claimed_by_the_index_of_due_rows(full: AsyncEngine) -> None:
    asked = {"worker_id": "w1", "account": "acc1", "partitions": [3, 4], "now": NOW, "at_most": 200}
    steps = await plan(full, leasing.claim(), asked)
    assert "reservations_due" in steps
    assert not reads_every_row(steps)


async def test_expired_rows_are_claimed_by_the_index_of_deadlines(full: AsyncEngine) -> None:
    asked = {"worker_id": "w1", "partitions": [3, 4], "now": NOW, "at_most": 200}
    steps = await plan(full, leasing.claim_expired(), asked)
    assert "reservations_deadline" in steps
    assert not reads_every_row(steps)


async def test_accounts_with_due_rows_are_found_by_the_index_of_due_rows(full: AsyncEngine) -> None:
    steps = await plan(full, leasing.accounts_due(), {"partitions": [3, 4], "now": NOW + timedelta(days=1)})
    assert steps.count("reservations_due") == 3
    assert "reservations_account" not in steps
    assert not reads_every_row(steps)


async def test_rows_of_the_lost_are_found_by_the_index_of_held_rows(full: AsyncEngine) -> None:
    steps = await plan(full, holders.free_the_unheld(), {"now": NOW})
    assert steps.count("reservations_leased") == 3
    assert not reads_every_row(steps)


async def test_outcomes_find_their_rows_by_id(full: AsyncEngine) -> None:
    batch = {"worker_id": "w1", PARAMETER: as_batch([OUTCOME | {"id": number} for number in range(21, 4221, 21)])}
    for statement in (outcomes.finish(), outcomes.postpone(), leasing.release(), leasing.mark_pushing()):
        steps = await plan(full, statement, batch)
        assert "reservations_pkey" in steps
        assert not reads_every_row(steps)


async def test_cancellations_find_their_rows_by_request_id(full: AsyncEngine) -> None:
    names = [{"request_id": f"rsv_{number}", "account_id": "acc1"} for number in range(1, 500, 50)]
    asked = [each | {"revision": 0, "cancel_requested_at": NOW, "deadline_at": NOW} for each in names]
    steps = await plan(full, cancelling.ask(), {PARAMETER: as_batch(asked), "now": NOW})
    assert "reservations_request_id" in steps
    assert not reads_every_row(steps)
    async with full.begin() as connection:
        await connection.execute(parked_cancellations.insert(), [each | {"requested_at": NOW} for each in names])
    for statement in (cancelling.unpark(), cancelling.forget_parked()):
        steps = await plan(full, statement, {"now": NOW})
        assert "reservations_request_id" in steps
        assert not reads_every_row(steps)


@pytest.mark.parametrize("cursor", [1, _ROWS // 2, _ROWS])
async def test_a_page_is_read_by_the_index_of_its_account(full: AsyncEngine, cursor: int) -> None:
    reader = SqlReader(full)
    for statement in (reader._onward, reader._before):
        steps = await plan(full, statement, {"account_id": "acc1", "cursor": cursor, "at_most": 11})
        assert "using reservations_account" in steps
        assert "Sort" not in steps

"""Guests' data is removed by the indexes made for it, whatever the tables hold: no sweep reads what it leaves alone."""

from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.delivery_queue import about
from forwarder.store.engine import open_engine
from forwarder.store.retention import UNSORTED, finished, next_deliveries
from forwarder.store.tables import webhook_deliveries
from tests.contract.store.plans.test_plans import _FILL, plan
from tests.support.worker.works import NOW

_DELIVERIES = """
INSERT INTO webhook_deliveries (endpoint_id, event_id, event_type, body, status, created_at, retrying_since, ended_at)
SELECT 'whk_' || n % 5, 'rsv_' || n || '.1', 'reservation.confirmed.v1', '{}', 'DELIVERED', :now, :now, :now
FROM generate_series(1, :rows) AS n
"""


@pytest.fixture(params=[pytest.param("never analyzed", marks=pytest.mark.slow), "analyzed"])
async def full(request: pytest.FixtureRequest, new_postgres_url: str) -> AsyncIterator[AsyncEngine]:
    """20,000 submissions, a third of them pending, and as many deliveries."""
    engine = open_engine(new_postgres_url)
    async with engine.begin() as connection:
        for table, statement in (("reservations", _FILL), ("webhook_deliveries", _DELIVERIES)):
            await connection.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = off)"))
            await connection.execute(text(statement), {"now": NOW, "rows": 20_000})
            if request.param == "analyzed":
                await connection.execute(text(f"ANALYZE {table}"))
    yield engine
    await engine.dispose()


async def test_finished_submissions_are_found_oldest_first_by_the_index_of_those_whose_guest_is_known(
    full: AsyncEngine,
) -> None:
    asked = {"workspace": "demo", "status": "CONFIRMED", "until": date(2030, 1, 1), "limit": 100}
    steps = await plan(full, finished(), asked)
    assert "Index Scan using reservations_identifiable" in steps
    assert "Sort" not in steps
    assert "Index Cond" in steps
    assert "rows=100" in steps


async def test_nothing_is_read_where_nobodys_days_are_over(full: AsyncEngine) -> None:
    asked = {"workspace": "demo", "status": "CONFIRMED", "until": date(2020, 1, 1), "limit": 100}
    steps = await plan(full, finished(), asked)
    assert "Index Scan using reservations_identifiable" in steps
    assert "Rows Removed" not in steps


async def test_old_deliveries_are_looked_for_among_the_first_of_their_endpoint(full: AsyncEngine) -> None:
    event.listen(full.sync_engine, "connect", _without_sorting)
    await full.dispose()
    steps = await plan(full, next_deliveries(), {"endpoint": "whk_1", "after": 7, "limit": 100})
    assert "webhook_deliveries_endpoint" in steps
    assert "Seq Scan on webhook_deliveries" not in steps


async def test_the_deliveries_about_one_submission_are_found_by_the_index_of_events(full: AsyncEngine) -> None:
    steps = await plan(full, about("rsv_77", webhook_deliveries.c.id), {})
    found, _, _ = steps.partition("CTE")  # the endpoints are walked there
    assert "webhook_deliveries_event" in found
    assert "Rows Removed" not in found


def _without_sorting(connection: Any, _record: Any) -> None:
    """As the transaction that deletes them has it."""
    cursor = connection.cursor()
    for setting in UNSORTED:
        cursor.execute(setting.replace("LOCAL ", ""))
    connection.commit()

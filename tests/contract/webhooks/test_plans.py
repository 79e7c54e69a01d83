"""How PostgreSQL carries out the notifier's statements: by the indexes made for them, however much is pending for one endpoint."""

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store import delivery_queue
from tests.contract.store.plans.test_plans import plan
from tests.support.backends import only
from tests.support.worker.works import NOW

pytestmark = only("distributed")

_FILL = """
INSERT INTO webhook_deliveries (endpoint_id, event_id, event_type, body, status, created_at, retrying_since, due_at)
SELECT CASE WHEN n % 10 = 0 THEN 'whk_' || n % 500 ELSE 'whk_dead' END, 'event-' || n, 't', repeat('x', 500),
  CASE WHEN n % 2 = 0 THEN 'PENDING' ELSE 'DELIVERED' END, :now, :now,
  CASE WHEN n % 2 = 0 THEN CAST(:now AS timestamptz) + (n % 1000) * interval '1 second' END
FROM generate_series(1, 20000) AS n
"""


@pytest.fixture
def migrated_postgres_url(new_postgres_url: str) -> str:
    """What others left behind would be planned for."""
    return new_postgres_url


@pytest.fixture(params=[pytest.param("never analyzed", marks=pytest.mark.slow), "analyzed"])
async def full(engine: AsyncEngine, request: pytest.FixtureRequest) -> AsyncEngine:
    """20,000 deliveries, half of them pending, most of one endpoint."""
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE webhook_deliveries SET (autovacuum_enabled = off)"))
        await connection.execute(text(_FILL), {"now": NOW})
        if request.param == "analyzed":
            await connection.execute(text("ANALYZE webhook_deliveries"))
    return engine


async def test_what_is_due_for_an_endpoint_is_claimed_by_its_index(full: AsyncEngine) -> None:
    asked = {"endpoint": "whk_dead", "now": NOW, "until": NOW, "limit": 10}
    steps = await plan(full, delivery_queue.claim(), asked)
    assert "webhook_deliveries_due" in steps
    assert "Seq Scan on webhook_deliveries" not in steps


async def test_endpoints_are_found_one_step_each(full: AsyncEngine) -> None:
    steps = await plan(full, delivery_queue.endpoints_due(), {"now": NOW})
    assert "webhook_deliveries_due" in steps
    assert "Seq Scan on webhook_deliveries" not in steps

"""An engine on a migrated database of each backend, for the contracts of the store and of tenancy."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.engine import PostgresqlEngine, open_engine


@pytest.fixture(scope="session")
def _engines() -> dict[str, AsyncEngine]:
    """By URL. Nothing is open in them between two tests, but the statements that they have compiled are kept."""
    return {}


@pytest.fixture
async def engine(migrated_url: str, _engines: dict[str, AsyncEngine]) -> AsyncIterator[AsyncEngine]:
    """An engine on a migrated database of the backend."""
    fresh = open_engine(migrated_url)
    opened = _engines.setdefault(migrated_url, fresh)
    if isinstance(opened, PostgresqlEngine) and isinstance(fresh, PostgresqlEngine):
        opened.sessions = fresh.sessions  # whoever waits for one waits in this test's event loop
    yield opened
    await opened.dispose()

"""A migrated database of each backend, for the contracts of the store and of tenancy."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.engine import open_engine
from forwarder.store.migrate import migrate


@pytest.fixture
async def migrated_url(database_url: str) -> str:
    """The URL of a database with every table and no rows."""
    await migrate(database_url)
    return database_url


@pytest.fixture
async def engine(migrated_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on that database."""
    opened = open_engine(migrated_url)
    yield opened
    await opened.dispose()

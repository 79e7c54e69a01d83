"""An engine on a migrated database of each backend, for the contracts of the store and of tenancy."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.database import open_engine


@pytest.fixture
async def engine(migrated_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on a migrated database of the backend."""
    opened = open_engine(migrated_url)
    yield opened
    await opened.dispose()

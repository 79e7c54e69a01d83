"""A PostgreSQL that the tests of a module may stop, kill and set up as they like, and databases on it."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from forwarder.store.migrate import migrate
from tests.support.backends import missing
from tools.servers.ladder import Unavailable
from tools.servers.postgres.process import PostgresServer
from tools.servers.real_servers import RealServers

DATABASE = "bookings"
_TEMPLATE = "migrated"


@pytest.fixture(scope="module")
def _server(real_servers: RealServers) -> Iterator[PostgresServer]:
    try:
        own = PostgresServer(real_servers.reaper)
    except Unavailable as reason:
        missing(reason)
    own.start()
    asyncio.run(_execute(own, f"CREATE DATABASE {_TEMPLATE}"))
    asyncio.run(migrate(_on(own, _TEMPLATE)))
    yield own
    own.stop()


@pytest.fixture
def server(_server: PostgresServer) -> PostgresServer:
    """A server that is this module's own, running, whatever the test before did to it."""
    _server.start()
    return _server


@pytest.fixture
async def own_url(server: PostgresServer) -> AsyncIterator[str]:
    """A new database on it, with every table and no rows. Its name is always the same."""
    await _execute(server, f"CREATE DATABASE {DATABASE} TEMPLATE {_TEMPLATE}")
    yield _on(server, DATABASE)
    server.start()
    await _execute(server, f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")


def _on(server: PostgresServer, database: str) -> str:
    return server.url.replace("/postgres", f"/{database}")


async def _execute(server: PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()

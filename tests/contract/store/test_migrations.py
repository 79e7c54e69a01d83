"""Migrations make the tables that the code is written for, on every backend, once, whoever runs them and however often."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, MetaData, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store import tables as store_tables
from forwarder.store.engine import UnusableDatabase, open_engine
from forwarder.store.migrate import (
    HEAD,
    NotMigrated,
    is_current,
    known_revisions,
    migrate,
    require_current,
)
from forwarder.store.migrations import versions
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.sql import database
from tests.support.store.release_0_1 import make_tables_of_0_1
from tests.support.store.stored import NOBODY_LISTENS
from tools.servers.postgres.databases import new_database

REVISIONS = sorted(file.name[:4] for file in Path(versions.__path__[0]).glob("[0-9]*.py"))


@pytest.fixture
async def bare(database_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on a database without tables."""
    opened = open_engine(database_url)
    yield opened
    await opened.dispose()


def all_tables() -> MetaData:
    whole = MetaData()
    for metadata in (store_tables.metadata, database.metadata):
        for table in metadata.sorted_tables:
            table.to_metadata(whole)
    return whole


@pytest.fixture
async def upgraded(bare: AsyncEngine, database_url: str) -> AsyncEngine:
    """An engine on a database that release 0.1 made."""
    async with bare.begin() as connection:
        await connection.run_sync(make_tables_of_0_1)
    assert await migrate(database_url) == REVISIONS[1:]
    return bare


# On SQLite neither SQLAlchemy nor Alembic reads an index over an expression back; the next test does.
@pytest.mark.filterwarnings("ignore:.*expression-based index '?reservations_(updated|recognised|identifiable)")
async def test_the_migrated_schema_is_the_one_the_code_is_written_for(upgraded: AsyncEngine) -> None:
    def differences(connection: Connection) -> list[object]:
        # On SQLite Alembic takes the identity of an id, which SQLite has no word for, for a default.
        options = {
            "compare_type": True,
            "compare_server_default": connection.dialect.name == "postgresql",
            # Alembic compares the texts of expressions, and PostgreSQL puts more brackets into this one. The next test looks at it.
            "include_object": lambda _object, name, *_others: name != "reservations_identifiable",
        }
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), all_tables()))

    async with upgraded.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_partial_indexes_and_storage_are_as_declared(upgraded: AsyncEngine) -> None:
    """What Alembic's comparison passes over: made once by the migration and once from the tables, and described by the database."""

    def described(connection: Connection) -> dict[str, object]:
        if connection.dialect.name == "sqlite":
            kept = text("SELECT name, sql FROM sqlite_schema WHERE tbl_name = 'reservations' AND type = 'index'")
        else:
            kept = text(
                "SELECT indexname, regexp_replace(indexdef, '\\w+\\.reservations', 'reservations') "
                "FROM pg_indexes WHERE tablename = 'reservations' AND schemaname = current_schema() UNION ALL "
                "SELECT relname, array_to_string(reloptions, ',') FROM pg_class "
                "WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname != 'alembic_version'"
            )
        return {row[0]: row[1] for row in connection.execute(kept)}

    async with upgraded.begin() as connection:
        migrated = await connection.run_sync(described)
        await connection.run_sync(all_tables().drop_all)
        await connection.run_sync(all_tables().create_all)
        assert migrated == await connection.run_sync(described)
        assert any("leased_by IS NULL" in str(definition) for definition in migrated.values())


def test_the_newest_revision_is_the_one_that_a_start_looks_for() -> None:
    assert REVISIONS[-1] == HEAD
    assert known_revisions() == set(REVISIONS)


async def test_revisions_are_applied_once(bare: AsyncEngine, database_url: str) -> None:
    assert not await is_current(bare)
    with pytest.raises(NotMigrated, match="forwarder migrate"):
        await require_current(bare)
    assert await migrate(database_url) == [HEAD]
    assert await is_current(bare)
    await require_current(bare)
    assert await migrate(database_url) == []


async def test_several_at_once_take_turns(bare: AsyncEngine, database_url: str) -> None:
    applied = await asyncio.gather(*(migrate(database_url) for _ in range(4)))
    assert sorted(applied) == [[], [], [], [HEAD]]
    assert await is_current(bare)


async def test_a_migration_that_fails_leaves_nothing_behind(bare: AsyncEngine, database_url: str) -> None:
    async with bare.begin() as connection:
        await connection.execute(text("CREATE TABLE deployment_secrets (name TEXT)"))
    with pytest.raises(Exception, match="deployment_secrets"):
        await migrate(database_url)
    async with bare.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    assert names == ["deployment_secrets"]


async def test_a_database_that_a_newer_version_migrated_will_do(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert await is_current(engine)


async def test_a_database_that_is_away_is_an_outage() -> None:
    with pytest.raises(StoreUnavailable):
        await migrate(NOBODY_LISTENS)


async def test_a_database_that_cannot_hold_every_name_gets_no_tables(postgres_url: str) -> None:
    async with new_database(postgres_url, encoding="SQL_ASCII") as url:
        with pytest.raises(UnusableDatabase, match=r"must be UTF8, and is SQL_ASCII.*createdb --encoding=UTF8"):
            await migrate(url)
        bare = open_engine(url)
        assert not await is_current(bare)
        await bare.dispose()

"""Brings a database to the tables that this version needs, by Alembic's revisions in `migrations/`; tells whether it has them."""

from functools import cache
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.on_demand import load
from forwarder.store.database import Database, outages_translated
from forwarder.store.engine import open_engine

HEAD: Final = "0008"
"""The newest revision in `migrations/`."""

_TURN_TO_MIGRATE = 0x6D696772
"""The number of a lock: any that nobody else takes."""


class NotMigrated(RuntimeError):
    """The database has not the tables that this version needs."""


async def migrate(database_url: str | Path) -> list[str]:
    """Bring the database up to date; the revisions applied, in order, none when it was. All of them or none.

    Safe to run again and by several processes at once: they take turns. Raises `StoreUnavailable`, `UnusableDatabase`.
    """
    engine = open_engine(database_url, pool_size=1, command_seconds=None, application_name="forwarder-migrate")
    try:
        with outages_translated():
            async with engine.begin() as connection:
                return await connection.run_sync(_upgrade)
    finally:
        await engine.dispose()


async def is_current(engine: AsyncEngine) -> bool:
    """Whether the database has what this version needs. So has one that a newer version migrated. Raises `StoreUnavailable`."""
    async with Database(engine).transaction() as connection:
        applied = await connection.run_sync(_applied)
    return bool(applied) and (HEAD in applied or not applied <= _known())


async def require_current(engine: AsyncEngine) -> None:
    """Raise `NotMigrated` with what to do about it, where `is_current` is false. Raises `StoreUnavailable`."""
    if not await is_current(engine):
        raise NotMigrated("The database has not the tables that this version needs: run `forwarder migrate`.")


def _upgrade(connection: Connection) -> list[str]:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": _TURN_TO_MIGRATE})
    if HEAD in _applied(connection):
        return []
    applied: list[str] = load("forwarder.store.upgrade:upgrade")(connection)
    return applied


def _applied(connection: Connection) -> set[str]:
    """What Alembic has noted in the database."""
    if not inspect(connection).has_table("alembic_version"):
        return set()
    return set(connection.scalars(text("SELECT version_num FROM alembic_version")))


@cache
def _known() -> frozenset[str]:
    known: frozenset[str] = load("forwarder.store.upgrade:known_revisions")()
    return known

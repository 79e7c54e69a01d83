"""Brings a database to the tables that this version needs, by Alembic's revisions in `migrations/`; tells whether it has them."""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.database import Database, outages_translated
from forwarder.store.engine import open_engine

_SCRIPTS = Path(__file__).parent / "migrations"
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
    return bool(applied) and (_head() in applied or not applied <= _known())


async def require_current(engine: AsyncEngine) -> None:
    """Raise `NotMigrated` with what to do about it, where `is_current` is false. Raises `StoreUnavailable`."""
    if not await is_current(engine):
        raise NotMigrated("The database has not the tables that this version needs: run `forwarder migrate`.")


def _upgrade(connection: Connection) -> list[str]:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": _TURN_TO_MIGRATE})
    applied: list[str] = []
    config = _config()
    config.attributes |= {"connection": connection, "applied": applied}
    command.upgrade(config, "head")
    return applied


def _applied(connection: Connection) -> set[str]:
    return set(MigrationContext.configure(connection).get_current_heads())


@cache
def _head() -> str:
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None, "migrations/versions is part of the package"  # noqa: S101
    return head


@cache
def _known() -> frozenset[str]:
    return frozenset(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config

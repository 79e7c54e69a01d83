"""Creates the tables that this version needs, brings those of an older version up to date by Alembic's revisions in `migrations/`,
and checks them.

Alembic is imported only if there is a migration to run: the import takes a tenth of the start-up time.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, MetaData, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.loading import load
from forwarder.store.database import Database, outages_translated
from forwarder.store.engine import UnusableDatabase, open_engine
from forwarder.store.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

HEAD: Final = "0012"
"""The newest revision in `migrations/`."""

_SCRIPTS: Final = Path(__file__).parent / "migrations"
_MIGRATION_LOCK: Final = 0x6D696772
"""The number of a PostgreSQL advisory lock that nothing else uses."""


class NotMigrated(RuntimeError):
    """The database lacks the tables that this version needs."""


async def migrate(database_url: str | Path) -> list[str]:
    """Bring the database up to date; the revisions applied, in order: none when it was, only the newest in an empty database. All
    of them or none.

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
    """Whether the database has the tables that this version needs; true too if a newer version migrated it. Raises
    `StoreUnavailable`."""
    async with Database(engine).transaction() as connection:
        applied = await connection.run_sync(_applied)
    return bool(applied) and (HEAD in applied or not applied <= known_revisions())


async def applied_revisions(engine: AsyncEngine) -> list[str]:
    """The revisions applied to the database. Raises `StoreUnavailable`."""
    async with Database(engine).transaction() as connection:
        return sorted(await connection.run_sync(_applied))


async def require_current(engine: AsyncEngine) -> None:
    """Raise `NotMigrated` with what to do about it, where `is_current` is false. Raises `StoreUnavailable`."""
    if not await is_current(engine):
        raise NotMigrated("The database lacks the tables that this version needs: run `forwarder migrate`.")


def alembic_config() -> "Config":
    """Alembic's configuration: where the revisions are."""
    config: Config = load("alembic.config:Config")()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@cache
def known_revisions() -> frozenset[str]:
    """Every revision that this version has."""
    scripts = load("alembic.script:ScriptDirectory").from_config(alembic_config())
    return frozenset(script.revision for script in scripts.walk_revisions())


def create_tables(connection: Connection) -> None:
    """Creates all tables in an empty database. Those of tenancy are in the same database, though no room imports the other."""
    of_tenancy: MetaData = load("forwarder.tenancy.sql.database:metadata")
    for tables in (metadata, of_tenancy):
        tables.create_all(connection, checkfirst=False)


def _upgrade(connection: Connection) -> list[str]:
    """Apply the revisions that are missing, in the transaction of `connection`; which they were, in order."""
    if connection.dialect.name == "postgresql":
        encoding = connection.scalar(text("SHOW server_encoding"))
        if (
            encoding != "UTF8"
        ):  # set up without a locale, PostgreSQL makes databases in SQL_ASCII: no guest may have an accent
            raise UnusableDatabase(
                f"The database's encoding must be UTF8, and is {encoding}. Make another one: "
                "createdb --encoding=UTF8 --template=template0 NAME"
            )
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
    known, applied = _applied(connection), list[str]()
    if HEAD not in known:
        config = alembic_config()
        config.attributes |= {"connection": connection, "applied": applied}
        if not known:
            create_tables(connection)
        load("alembic.command:upgrade" if known else "alembic.command:stamp")(config, "head")
    return applied


def _applied(connection: Connection) -> set[str]:
    if not inspect(connection).has_table("alembic_version"):
        return set()
    return set(connection.scalars(text("SELECT version_num FROM alembic_version")))

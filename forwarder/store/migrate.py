"""Sets the database up, as the owner of its tables: creates those that this version needs, brings those of an older version up to
date by Alembic's revisions in `migrations/`, and checks them; and makes PostgreSQL roles, one per stage, with minimal privileges on
each table, as listed below.

Roles cannot log in: the operator creates a user for each process, as a member of the stage's role. Alembic is imported only if
there is a migration to run: the import takes a tenth of the start-up time."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, MetaData, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.loading import load
from forwarder.store.database import Database, NotPermitted, outages_translated
from forwarder.store.engine import UnusableDatabase, open_engine
from forwarder.store.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

HEAD: Final = "0012"  # the newest revision in `migrations/`
_OF_TENANCY: Final[MetaData] = load("forwarder.tenancy.sql.database:metadata")
"""The tables of tenancy, which are in the same database, though no room imports the other."""


class NotMigrated(RuntimeError):
    """The database lacks the tables that this version needs."""


async def migrate(database_url: str | Path) -> list[str]:
    """Brings the database up to date, all at once or not at all; returns the revisions applied, in order: only the newest in an
    empty database. Safe to run again, and by several processes at once. Raises `StoreUnavailable`, `UnusableDatabase`."""

    def upgrade(connection: Connection) -> list[str]:
        if connection.dialect.name == "postgresql":
            encoding = connection.scalar(text("SHOW server_encoding"))
            # Set up without a locale, PostgreSQL makes databases in SQL_ASCII: no guest may have an accent.
            if encoding != "UTF8":
                raise UnusableDatabase(
                    f"The database's encoding must be UTF8, and is {encoding}. Make another one: "
                    "createdb --encoding=UTF8 --template=template0 NAME"
                )
            # An advisory lock that nothing else uses.
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": 0x6D696772})
        known, applied = _applied(connection), list[str]()
        if HEAD not in known:
            config = alembic_config()
            config.attributes |= {"connection": connection, "applied": applied}
            if not known:
                create_tables(connection)
            load("alembic.command:upgrade" if known else "alembic.command:stamp")(config, "head")
        return applied

    return await _as_owner(database_url, upgrade)


async def _as_owner(database_url: str | Path, change: Callable[[Connection], list[str]]) -> list[str]:
    engine = open_engine(database_url, pool_size=1, command_seconds=None, application_name="forwarder-migrate")
    try:
        with outages_translated():
            async with engine.begin() as connection:
                return await connection.run_sync(change)
    finally:
        await engine.dispose()


async def is_current(engine: AsyncEngine) -> bool:
    """Whether the database has the tables of this version, or of a newer one. Raises `StoreUnavailable`."""
    applied = {*await applied_revisions(engine)}
    return bool(applied) and (HEAD in applied or not applied <= known_revisions())


async def applied_revisions(engine: AsyncEngine) -> list[str]:
    """Raises `StoreUnavailable`."""
    async with Database(engine).transaction() as connection:
        return sorted(await connection.run_sync(_applied))


async def require_current(engine: AsyncEngine) -> None:
    """Raises `NotMigrated` if not `is_current`, and `StoreUnavailable`."""
    if not await is_current(engine):
        raise NotMigrated("The database lacks the tables that this version needs: run `forwarder migrate`.")


def alembic_config() -> "Config":
    config: Config = load("alembic.config:Config")()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@cache
def known_revisions() -> frozenset[str]:
    scripts = load("alembic.script:ScriptDirectory").from_config(alembic_config())
    return frozenset(script.revision for script in scripts.walk_revisions())


def create_tables(connection: Connection) -> None:
    for tables in (metadata, _OF_TENANCY):
        tables.create_all(connection, checkfirst=False)


def _applied(connection: Connection) -> set[str]:
    there = inspect(connection).has_table("alembic_version")
    return set(connection.scalars(text("SELECT version_num FROM alembic_version"))) if there else set()


_READ: Final = ("SELECT",)
_CHANGE: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
_COUNT: Final = ("SELECT", "INSERT", "UPDATE")
_APPEND: Final = ("SELECT", "INSERT")


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _of(columns: str) -> Sequence[str]:
    """The privilege to read only these columns. Quoted, because one may have a reserved name, such as `similar`."""
    return ("SELECT ({})".format(", ".join(map(_quoted, columns.split()))),)


_RECORDS: Final = _of(
    "id record_id request_id account_id status property_id arrival_date departure_date pms_reservation_id request record problem "
    "attempts fingerprint revision accepted_at created_at updated_at cancelled_at cancel_requested_at cancel_reason cancel_problem "
    "partition similar_to conflicting_at stay_key same_key evidence"
)
"""What responses to callers need: no card, and only the keyed hashes that distinguish similar submissions from repeats."""
_ACCOUNTS: Final = _of(
    "id workspace_id kind base_url concurrency rate_per_second deadline_seconds paused options duplicate_window_seconds similar "
    "skipped_checks"
)
"""The columns of accounts that serving callers needs: no PMS credentials."""
_LIMITS: Final = _of("id limit_requests limit_seconds")

_EVERY_STAGE: Final[dict[str, Sequence[str]]] = {
    "alembic_version": _READ,
    "secrets": _READ,
    # Each process reports itself there.
    "processes": _CHANGE,
}
_CALLED_OVER_HTTP: Final[dict[str, Sequence[str]]] = _EVERY_STAGE | {
    "api_keys": _of(
        "id workspace_id token_hash revoked_at test limit_requests limit_seconds scopes expires_at networks"
    ),
    "workspaces": _LIMITS,
    "deployment_secrets": _READ,
    # The time of a key's last use is the only thing that a reading stage writes.
    "key_uses": _COUNT,
}
_AUDITED: Final[dict[str, Sequence[str]]] = _CALLED_OVER_HTTP | {"audit": ("INSERT",), "audit_head": _COUNT}

ROLES: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "ingress": _AUDITED
    | {
        "integration_accounts": _ACCOUNTS,
        "reservations": _RECORDS,
        "duplicates": _READ,
        "key_usage": _COUNT,
        "sealing_keys": _of("key_id public_key not_before not_after verify_key signature"),
    },
    "worker": _EVERY_STAGE
    | {
        **dict.fromkeys(
            "reservations duplicates parked_cancellations workers outbox suspects grants card_keys sealing_keys".split(),
            _CHANGE,
        ),
        # The key that request ids are checked with; which results on the topics the store may lack.
        **dict.fromkeys(("integration_accounts", "deployment_secrets", "purges"), _READ),
        # To say to all workers what the store or a topic lost.
        **dict.fromkeys(("recoveries", "log_gaps"), _APPEND),
        **dict.fromkeys(("rate_buckets", "set_aside"), _COUNT),
        # For housekeeping, which has the worker's user.
        "api_keys": _of("id revoked_at expires_at"),
        "workspaces": _of("id reservation_days delivery_days dead_letter_days"),
        "webhook_endpoints": _of("id workspace_id"),
        "webhook_deliveries": (*_of("id endpoint_id event_id created_at due_at ended_at"), "DELETE"),
    },
    "query": _CALLED_OVER_HTTP | {"integration_accounts": _ACCOUNTS, "reservations": _RECORDS, "duplicates": _READ},
    "notifier": _AUDITED
    | {
        **dict.fromkeys(("webhook_endpoints", "webhook_secrets", "webhook_deliveries"), _CHANGE),
        "log_gaps": _APPEND,
        "key_usage": _COUNT,
        # Whether a webhook selects accounts of its own workspace.
        "integration_accounts": _of("id workspace_id"),
        # To lock the row of a workspace while its endpoints are counted.
        "workspaces": (*_LIMITS, "UPDATE (created_at)"),
        # Whether the database answers.
        "reservations": _of("id"),
    },
    "operator": {
        **dict.fromkeys([*metadata.tables, *_OF_TENANCY.tables], _CHANGE),
        "alembic_version": _READ,
        "audit": _APPEND,
        "audit_head": _COUNT,
    },
}
"""Privileges by stage and table. `operator` is for those who type `forwarder` commands."""


_WHAT_WOULD: Final = """run `forwarder migrate --roles` as the owner of the tables, who may create roles (CREATEROLE), or have the \
roles created first."""


class CannotMakeRoles(ValueError):
    """This database, or its user, cannot create roles. The message says what would work."""


async def make_roles(database_url: str | Path) -> list[str]:
    """Gives each role exactly its privileges, and makes missing ones; their names. Raises `CannotMakeRoles`, `StoreUnavailable`."""
    if isinstance(database_url, Path):
        raise CannotMakeRoles("Roles are PostgreSQL's: embedded, one process reads and writes all files.")

    def make(connection: Connection) -> list[str]:
        of_others = """SELECT bool_or(NOT pg_has_role(relowner, 'USAGE')) FROM pg_class
            WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"""
        if connection.scalar(text(of_others)):  # PostgreSQL would only warn that it grants nothing
            raise CannotMakeRoles(f"This user does not own the tables: {_WHAT_WOULD}")
        database, schema = connection.execute(text("SELECT current_database(), current_schema()")).one()
        there = set(connection.scalars(text("SELECT rolname FROM pg_roles")))
        names = {stage: f"{database}_{stage}" for stage in ROLES}
        for stage, name in names.items():
            role, here = _quoted(name), _quoted(schema)
            if name not in there:
                connection.execute(text(f"CREATE ROLE {role} NOLOGIN"))
            # Whatever it had before, it has exactly these privileges from now on.
            connection.execute(text(f"GRANT USAGE ON SCHEMA {here} TO {role}"))
            connection.execute(text(f"REVOKE ALL ON ALL TABLES IN SCHEMA {here} FROM {role}"))
            for table, privileges in ROLES[stage].items():
                connection.execute(text(f"GRANT {', '.join(privileges)} ON {here}.{table} TO {role}"))
        return list(names.values())

    try:
        return await _as_owner(database_url, make)
    except NotPermitted:
        raise CannotMakeRoles(f"This user may not create roles: {_WHAT_WOULD}") from None

"""PostgreSQL roles, one per stage, with minimal privileges on each table, as listed below.

Roles cannot log in. The operator creates a user for each process, as a member of the stage's role, and manages passwords and
certificates.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text

from forwarder.process.loading import load
from forwarder.store.database import NotPermitted, outages_translated
from forwarder.store.engine import open_engine
from forwarder.store.tables import metadata

_READ: Final = ("SELECT",)
_CHANGE: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
_COUNT: Final = ("SELECT", "INSERT", "UPDATE")
_APPEND: Final = ("SELECT", "INSERT")


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _of(columns: str) -> Sequence[str]:
    """The privilege to read only these columns, separated by spaces. Quoted, because one may have a reserved name, such as
    `similar`."""
    return ("SELECT ({})".format(", ".join(map(_quoted, columns.split()))),)


_RECORDS: Final = _of(
    "id record_id request_id account_id status property_id arrival_date departure_date pms_reservation_id request record problem "
    "attempts fingerprint revision accepted_at created_at updated_at cancelled_at cancel_requested_at cancel_reason cancel_problem "
    "partition similar_to conflicting_at stay_key same_key evidence"
)
"""The columns that responses to callers need: no card, and only the keyed hashes that distinguish similar submissions from
repeats."""
_ACCOUNTS: Final = _of(
    "id workspace_id kind base_url concurrency rate_per_second deadline_seconds paused options duplicate_window_seconds similar "
    "skipped_checks"
)
"""The columns of accounts that serving callers needs: no PMS credentials."""
_KEYS: Final = _of("id workspace_id token_hash revoked_at test limit_requests limit_seconds scopes expires_at networks")
_LIMITS: Final = _of("id limit_requests limit_seconds")

_AUDITS: Final[dict[str, Sequence[str]]] = {"audit": ("INSERT",), "audit_head": _COUNT}
_CALLED_OVER_HTTP: Final[dict[str, Sequence[str]]] = {
    "api_keys": _KEYS,
    "workspaces": _LIMITS,
    "deployment_secrets": _READ,
    # The time of a key's last use is the only thing that a reading stage writes.
    "key_uses": _COUNT,
}
_EVERY_STAGE: Final[dict[str, Sequence[str]]] = {
    "alembic_version": _READ,
    "secrets": _READ,
    # Each process reports itself there.
    "processes": _CHANGE,
}

_TABLES: Final = frozenset({*metadata.tables, *load("forwarder.tenancy.sql.database:metadata").tables})

ROLES: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "ingress": _EVERY_STAGE
    | _CALLED_OVER_HTTP
    | _AUDITS
    | {
        "integration_accounts": _ACCOUNTS,
        "reservations": _RECORDS,
        "duplicates": _READ,
        "key_usage": _COUNT,
        "sealing_keys": _of("key_id public_key not_before not_after verify_key signature"),
    },
    "worker": _EVERY_STAGE
    | {
        "integration_accounts": _READ,
        # The key that request ids are checked with.
        "deployment_secrets": _READ,
        "reservations": _CHANGE,
        "duplicates": _CHANGE,
        "parked_cancellations": _CHANGE,
        "workers": _CHANGE,
        "outbox": _CHANGE,
        "suspects": _CHANGE,
        "rate_buckets": _COUNT,
        "grants": _CHANGE,
        "card_keys": _CHANGE,
        "sealing_keys": _CHANGE,
        # To know which results on the topics the store may lack, and to say so to all workers.
        "purges": _READ,
        "recoveries": _APPEND,
        "log_gaps": _APPEND,
        "set_aside": _COUNT,
        # For housekeeping, which has the worker's user.
        "api_keys": _of("id revoked_at expires_at"),
        "workspaces": _of("id reservation_days delivery_days dead_letter_days"),
        "webhook_endpoints": _of("id workspace_id"),
        "webhook_deliveries": (*_of("id endpoint_id event_id created_at due_at ended_at"), "DELETE"),
    },
    "query": _EVERY_STAGE
    | _CALLED_OVER_HTTP
    | {"integration_accounts": _ACCOUNTS, "reservations": _RECORDS, "duplicates": _READ},
    "notifier": _EVERY_STAGE
    | _CALLED_OVER_HTTP
    | _AUDITS
    | {
        "webhook_endpoints": _CHANGE,
        "webhook_secrets": _CHANGE,
        "webhook_deliveries": _CHANGE,
        "log_gaps": ("SELECT", "INSERT"),
        "key_usage": _COUNT,
        # Whether a webhook selects accounts of its own workspace.
        "integration_accounts": _of("id workspace_id"),
        # To lock the row of a workspace while its endpoints are counted.
        "workspaces": (*_LIMITS, "UPDATE (created_at)"),
        # Whether the database answers.
        "reservations": _of("id"),
    },
    "operator": {
        **dict.fromkeys(_TABLES, _CHANGE),
        "alembic_version": _READ,
        "audit": _APPEND,
        "audit_head": _COUNT,
    },
}
"""Privileges by stage and table. `operator` is for those who type `forwarder` commands."""


_WHAT_WOULD: Final = (
    "run `forwarder migrate --roles` as the owner of the tables, who may create roles (CREATEROLE), or have the roles created "
    "first."
)
_NOT_OURS: Final = text(
    "SELECT bool_or(NOT pg_has_role(relowner, 'USAGE')) FROM pg_class "
    "WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
)


class CannotMakeRoles(ValueError):
    """This database, or its user, cannot create roles. The message says what would work."""


async def make_roles(database_url: str | Path) -> list[str]:
    """Creates missing roles, grants each exactly its privileges, and returns their names. Safe to repeat. Raises
    `CannotMakeRoles`, `StoreUnavailable`."""
    if isinstance(database_url, Path):
        raise CannotMakeRoles("Roles are PostgreSQL's: embedded, one process reads and writes all files.")
    engine = open_engine(database_url, pool_size=1, command_seconds=None, application_name="forwarder-migrate")
    try:
        with outages_translated():
            async with engine.begin() as connection:
                return await connection.run_sync(_make)
    except NotPermitted:
        raise CannotMakeRoles(f"This user may not create roles: {_WHAT_WOULD}") from None
    finally:
        await engine.dispose()


def _make(connection: Connection) -> list[str]:
    if connection.scalar(_NOT_OURS):  # PostgreSQL would only warn that it grants nothing
        raise CannotMakeRoles(f"This user does not own the tables: {_WHAT_WOULD}")
    database, schema = connection.execute(text("SELECT current_database(), current_schema()")).one()
    there = set(connection.scalars(text("SELECT rolname FROM pg_roles")))
    names = {stage: f"{database}_{stage}" for stage in ROLES}
    for stage, name in names.items():
        if name not in there:
            connection.execute(text(f"CREATE ROLE {_quoted(name)} NOLOGIN"))
        # Whatever it had before, it has exactly these privileges from now on.
        role, here = _quoted(name), _quoted(schema)
        connection.execute(text(f"GRANT USAGE ON SCHEMA {here} TO {role}"))
        connection.execute(text(f"REVOKE ALL ON ALL TABLES IN SCHEMA {here} FROM {role}"))
        for table, privileges in ROLES[stage].items():
            connection.execute(text(f"GRANT {', '.join(privileges)} ON {here}.{table} TO {role}"))
    return list(names.values())

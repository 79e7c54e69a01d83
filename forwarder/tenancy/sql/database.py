"""The tables of tenancy, transactions on them, and the keys that the processes of a deployment share.

Here, and nowhere else in tenancy, drivers' errors become `TenancyUnavailable`."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.enlistment import to_be_written
from forwarder.tenancy.port import TenancyUnavailable

metadata = sa.MetaData()
_MOMENT = sa.DateTime(timezone=True)
_DOCUMENT = sa.JSON().with_variant(JSONB(), "postgresql")
_LIST = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def _columns(kind: Any, names: str) -> list[sa.Column[Any]]:
    """A column for each name; those with a question mark may be null."""
    return [sa.Column(name.removesuffix("?"), kind, nullable=name.endswith("?")) for name in names.split()]


def _with_default(name: str, kind: Any, default: str) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, server_default=sa.text(default))


def _created_at() -> sa.Column[Any]:
    return sa.Column("created_at", _MOMENT, nullable=False, server_default=sa.func.current_timestamp())


def _of_workspace() -> sa.Column[Any]:
    return sa.Column("workspace_id", sa.Text, sa.ForeignKey("workspaces.id"), nullable=False)


workspaces = sa.Table(
    "workspaces",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _created_at(),
    *_columns(sa.Integer, "reservation_days? delivery_days? dead_letter_days? limit_requests? limit_seconds?"),
)
"""The days are those of `RetentionPolicy`; the limit is the one that the workspace's keys share."""

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _of_workspace(),
    sa.Column("token_hash", sa.Text, nullable=False, unique=True),
    _created_at(),
    *_columns(_MOMENT, "revoked_at?"),
    _with_default("test", sa.Boolean, "false"),
    *_columns(sa.Integer, "limit_requests? limit_seconds?"),
    *_columns(sa.Text, "scopes"),
    *_columns(_MOMENT, "expires_at?"),
    _with_default("networks", sa.Text, "''"),
    *_columns(sa.Text, "name?"),
)
"""Only the SHA-256 of a token is stored; with 32 random bytes, no slower hash is needed. `test` is for operators; a caller's mode
is read from the token itself. Both columns of a limit are set, or neither. `scopes` and `networks` are separated by spaces; no
network means anywhere."""

key_uses = sa.Table("key_uses", metadata, sa.Column("key_id", sa.Text, primary_key=True), *_columns(_MOMENT, "used_at"))
"""When a key was last used, to the minute. A separate table, so that the stages that write it need no privilege to change keys."""

key_usage = sa.Table(
    "key_usage",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    *_columns(sa.Double, "used"),
    *_columns(sa.Integer, "window_seconds"),
    *_columns(sa.Double, "counted_at"),
)
"""The share of a key's quota that was used at `counted_at` (seconds since 1970, by the database's clock) by all processes
together. A whole quota comes back in `window_seconds`. A workspace's quota is under `workspace:` and its id."""

integration_accounts = sa.Table(
    "integration_accounts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _of_workspace(),
    *_columns(sa.Text, "kind base_url credential"),
    *_columns(sa.Integer, "concurrency"),
    *_columns(sa.Double, "rate_per_second?"),
    *_columns(sa.Integer, "deadline_seconds"),
    *_columns(sa.Boolean, "paused"),
    _with_default("options", _DOCUMENT, "'{}'"),
    _with_default("duplicate_window_seconds", sa.Integer, "300"),
    _with_default("similar", sa.Text, "'allow'"),
    _with_default("skipped_checks", _DOCUMENT, "'[]'"),
    *_columns(sa.Text, "authorities? client_certificate? client_key?"),
    *_columns(sa.Double, "settles_seconds?"),
    *_columns(_MOMENT, "same_pms_before?"),
    _created_at(),
)
"""`credential` and `client_key` are sealed."""

grants = sa.Table(
    "grants",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("credential", sa.Text, primary_key=True),
    *_columns(sa.BigInteger, "version"),
    *_columns(sa.Text, "claim? content?"),
)
"""Grants of authorization servers. `credential`: a digest of the credential used to obtain it; `version` counts renewals; `claim`:
the process that is renewing it; `content` is sealed, null before the first grant."""

webhook_endpoints = sa.Table(
    "webhook_endpoints",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _of_workspace(),
    *_columns(sa.Text, "url"),
    *_columns(_LIST, "types?"),
    *_columns(sa.Text, "description"),
    *_columns(sa.Boolean, "enabled"),
    *_columns(sa.Text, "disabled_reason?"),
    *_columns(_MOMENT, "disabled_at?"),
    *_columns(sa.Text, "secret previous_secret?"),
    *_columns(_MOMENT, "previous_until? created_at"),
    *_columns(_LIST, "account_ids? property_ids? header_names?"),
    *_columns(sa.Text, "headers?"),
    _with_default("asymmetric", sa.Boolean, "false"),
    sa.Index("webhook_endpoints_workspace", "workspace_id"),
)
"""Customers' webhook endpoints. Both secrets and `headers` are sealed; `types`, `account_ids` and `property_ids` null mean all."""

webhook_secrets = sa.Table(
    "webhook_secrets",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("secret", sa.Text, primary_key=True),
    *_columns(_MOMENT, "until"),
)
"""An endpoint's sealed secrets older than the previous one, and until when each of them signs."""

secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    *_columns(sa.Text, "state verify_key accounts_key webhooks_key signature"),
    _created_at(),
    *_columns(_MOMENT, "activated_at?"),
)
"""The secrets that this deployment knows: their public keys in hexadecimal, which each has signed, and a `SecretState`."""
_ACTIVE = sa.text("state = 'active'")
sa.Index("secrets_active", secrets.c.state, unique=True, postgresql_where=_ACTIVE, sqlite_where=_ACTIVE)

sealing_keys = sa.Table(
    "sealing_keys",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    *_columns(sa.Text, "public_key"),
    sa.Column("not_before", sa.BigInteger, nullable=False, unique=True),
    *_columns(sa.BigInteger, "not_after"),
    *_columns(sa.Text, "secret_id verify_key signature private_key ends?"),
)
"""Short-lived keys that cards are sealed to on the topic, from `not_before` until `not_after` (seconds since 1970). `private_key`
is wrapped by the secret; deleting the row destroys it. `ends`: the end offsets of the topic's partitions after `not_after` (JSON):
once the workers have committed these, the key is no longer needed. Exclude this table from backups."""

deployment_secrets = sa.Table(
    "deployment_secrets", metadata, sa.Column("name", sa.Text, primary_key=True), *_columns(sa.Text, "value")
)
"""Generated secrets that all processes of a deployment share, in hexadecimal; not configured."""
_LIMIT_SECONDS = 15.0
_WRONG_VALUES = ("21", "22", "23")
"""The SQLSTATE classes for wrong values. All others say that the database cannot do our work now, be it for want of a privilege."""


@asynccontextmanager
async def transaction(engine: AsyncEngine, *, writes: bool, enlists: bool = True) -> AsyncIterator[AsyncConnection]:
    """A transaction, committed when the block ends, rolled back if it raises; bounded in time. A writing one includes enlisted
    rows, unless `enlists` is false because it is not part of the change. Raises `TenancyUnavailable`."""
    enlisted = to_be_written() if writes and enlists else None
    if not writes:
        engine = engine.execution_options(postgresql_readonly=True)
    try:
        async with asyncio.timeout(_LIMIT_SECONDS), engine.begin() as connection:
            yield connection
            if enlisted is not None:
                await enlisted.write(connection)
    except (PoolExhausted, OSError) as error:  # OSError is also every TimeoutError and ConnectionError
        raise TenancyUnavailable(_described(error)) from error
    except DBAPIError as error:
        sqlstate: str = getattr(error.orig, "sqlstate", None) or ""
        ours = sqlstate.startswith(_WRONG_VALUES) or (
            not sqlstate and isinstance(error, IntegrityError | ProgrammingError)
        )
        if ours and not error.connection_invalidated:
            raise
        raise TenancyUnavailable(_described(error.orig or error)) from error
    if enlisted is not None:
        enlisted.written = True


async def read(engine: AsyncEngine, statement: sa.Executable) -> Sequence[sa.Row[Any]]:
    """The rows of one read-only statement. Raises `TenancyUnavailable`."""
    async with transaction(engine, writes=False) as connection:
        return (await connection.execute(statement)).all()


def insert_into(engine: AsyncEngine, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that can say ON CONFLICT."""
    return postgresql.insert(table) if engine.dialect.name == "postgresql" else sqlite.insert(table)


def in_utc(moment: datetime) -> datetime:
    """Adds the time zone, which SQLite does not store."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


SharedKey = Literal["request-id-key", "message-key", "token-key"]
"""What authenticates request ids; what signs messages on the topics; the MAC key of API tokens."""


async def shared_keys(engine: AsyncEngine) -> Mapping[str, str]:
    """Those keys that the database has, by name. Raises `TenancyUnavailable`."""
    return {row.name: row.value for row in await read(engine, sa.select(deployment_secrets))}


async def shared_key(engine: AsyncEngine, name: SharedKey) -> bytes:
    """32 random bytes, created by the first caller and constant from then on. Raises `TenancyUnavailable`."""
    kept = sa.select(deployment_secrets.c.value).where(deployment_secrets.c.name == name)
    if rows := await read(engine, kept):
        return bytes.fromhex(rows[0].value)
    new = insert_into(engine, deployment_secrets).values(name=name, value=token_hex(32))
    async with transaction(engine, writes=True, enlists=False) as connection:
        # If two insert at once, the second waits for the first in its INSERT, and then reads the first one's value.
        await connection.execute(new.on_conflict_do_nothing(index_elements=["name"]))
        return bytes.fromhex((await connection.execute(kept)).scalar_one())

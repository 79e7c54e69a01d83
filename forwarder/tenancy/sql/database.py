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


def _created_at() -> sa.Column[object]:
    return sa.Column(
        "created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.current_timestamp()
    )


def _list() -> sa.types.TypeEngine[Any]:
    return sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


workspaces = sa.Table(
    "workspaces",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _created_at(),
    sa.Column("reservation_days", sa.Integer),
    sa.Column("delivery_days", sa.Integer),
    sa.Column("dead_letter_days", sa.Integer),
    sa.Column("limit_requests", sa.Integer),
    sa.Column("limit_seconds", sa.Integer),
)
"""The days are those of `RetentionPolicy`; the limit is the one that the workspace's keys share."""

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.Text, sa.ForeignKey("workspaces.id"), nullable=False),
    sa.Column("token_hash", sa.Text, nullable=False, unique=True),
    _created_at(),
    sa.Column("revoked_at", sa.DateTime(timezone=True)),
    sa.Column("test", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("limit_requests", sa.Integer),
    sa.Column("limit_seconds", sa.Integer),
    sa.Column("scopes", sa.Text, nullable=False),
    sa.Column("expires_at", sa.DateTime(timezone=True)),
    sa.Column("networks", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("name", sa.Text),
)
"""Only the SHA-256 of a token is stored; with 32 random bytes, no slower hash is needed. `test` is for operators; a caller's mode
is read from the token itself. Both columns of a limit are set, or neither. `scopes` and `networks` are separated by spaces; no
network means anywhere."""

key_uses = sa.Table(
    "key_uses",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("used_at", sa.DateTime(timezone=True), nullable=False),
)
"""When a key was last used, to the minute. A separate table, so that the stages that write it need no privilege to change keys."""

key_usage = sa.Table(
    "key_usage",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("used", sa.Double, nullable=False),
    sa.Column("window_seconds", sa.Integer, nullable=False),
    sa.Column("counted_at", sa.Double, nullable=False),
)
"""The share of a key's quota that was used at `counted_at` (seconds since 1970, by the database's clock) by all processes
together. A whole quota comes back in `window_seconds`. A workspace's quota is under `workspace:` and its id."""

integration_accounts = sa.Table(
    "integration_accounts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.Text, sa.ForeignKey("workspaces.id"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("base_url", sa.Text, nullable=False),
    sa.Column("credential", sa.Text, nullable=False),
    sa.Column("concurrency", sa.Integer, nullable=False),
    sa.Column("rate_per_second", sa.Double),
    sa.Column("deadline_seconds", sa.Integer, nullable=False),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("options", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False, server_default=sa.text("'{}'")),
    sa.Column("duplicate_window_seconds", sa.Integer, nullable=False, server_default=sa.text("300")),
    sa.Column("similar", sa.Text, nullable=False, server_default=sa.text("'allow'")),
    sa.Column(
        "skipped_checks", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False, server_default=sa.text("'[]'")
    ),
    sa.Column("authorities", sa.Text),
    sa.Column("client_certificate", sa.Text),
    sa.Column("client_key", sa.Text),
    sa.Column("settles_seconds", sa.Double),
    sa.Column("same_pms_before", sa.DateTime(timezone=True)),
    _created_at(),
)
"""`credential` and `client_key` are sealed."""

grants = sa.Table(
    "grants",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("credential", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("claim", sa.Text),
    sa.Column("content", sa.Text),
)
"""Grants of authorization servers. `credential`: a digest of the credential used to obtain it; `version` counts renewals; `claim`:
the process that is renewing it; `content` is sealed, null before the first grant."""

webhook_endpoints = sa.Table(
    "webhook_endpoints",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.Text, sa.ForeignKey("workspaces.id"), nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("types", _list()),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("disabled_reason", sa.Text),
    sa.Column("disabled_at", sa.DateTime(timezone=True)),
    sa.Column("secret", sa.Text, nullable=False),
    sa.Column("previous_secret", sa.Text),
    sa.Column("previous_until", sa.DateTime(timezone=True)),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("account_ids", _list()),
    sa.Column("property_ids", _list()),
    sa.Column("header_names", _list()),
    sa.Column("headers", sa.Text),
    sa.Column("asymmetric", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Index("webhook_endpoints_workspace", "workspace_id"),
)
"""Customers' webhook endpoints. Both secrets and `headers` are sealed; `types`, `account_ids` and `property_ids` null mean all."""

webhook_secrets = sa.Table(
    "webhook_secrets",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("secret", sa.Text, primary_key=True),
    sa.Column("until", sa.DateTime(timezone=True), nullable=False),
)
"""An endpoint's sealed secrets older than the previous one, and until when each of them signs."""

secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("verify_key", sa.Text, nullable=False),
    sa.Column("accounts_key", sa.Text, nullable=False),
    sa.Column("webhooks_key", sa.Text, nullable=False),
    sa.Column("signature", sa.Text, nullable=False),
    _created_at(),
    sa.Column("activated_at", sa.DateTime(timezone=True)),
)
"""The secrets that this deployment knows: their public keys in hexadecimal, which each has signed, and a `SecretState`."""

sa.Index(
    "secrets_active",
    secrets.c.state,
    unique=True,
    postgresql_where=sa.text("state = 'active'"),
    sqlite_where=sa.text("state = 'active'"),
)

sealing_keys = sa.Table(
    "sealing_keys",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("public_key", sa.Text, nullable=False),
    sa.Column("not_before", sa.BigInteger, nullable=False, unique=True),
    sa.Column("not_after", sa.BigInteger, nullable=False),
    sa.Column("secret_id", sa.Text, nullable=False),
    sa.Column("verify_key", sa.Text, nullable=False),
    sa.Column("signature", sa.Text, nullable=False),
    sa.Column("private_key", sa.Text, nullable=False),
    sa.Column("ends", sa.Text),
)
"""Short-lived keys that cards are sealed to on the topic, from `not_before` until `not_after` (seconds since 1970). `private_key`
is wrapped by the secret; deleting the row destroys it. `ends`: the end offsets of the topic's partitions after `not_after` (JSON):
once the workers have committed these, the key is no longer needed. Exclude this table from backups."""

deployment_secrets = sa.Table(
    "deployment_secrets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
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
        rows: Sequence[sa.Row[Any]] = (await connection.execute(statement)).all()
        return rows


def insert_into(engine: AsyncEngine, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that can say ON CONFLICT."""
    return postgresql.insert(table) if engine.dialect.name == "postgresql" else sqlite.insert(table)


def in_utc(moment: datetime) -> datetime:
    """Adds the time zone, which SQLite does not store."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


SharedKey = Literal["request-id-key", "message-key", "token-key"]
"""What authenticates request ids; what messages on the topics are signed with; and the MAC key of API tokens, which distinguishes
tokens from guesses."""

_KEY_BYTES = 32


async def shared_keys(engine: AsyncEngine) -> Mapping[str, str]:
    """Those keys that the database has, by name. Raises `TenancyUnavailable`."""
    return {row.name: row.value for row in await read(engine, sa.select(deployment_secrets))}


async def shared_key(engine: AsyncEngine, name: SharedKey) -> bytes:
    """32 random bytes, created by the first caller and constant from then on. Once they exist, nothing is written. Raises
    `TenancyUnavailable`."""
    kept = sa.select(deployment_secrets.c.value).where(deployment_secrets.c.name == name)
    async with transaction(engine, writes=False) as connection:
        value = (await connection.execute(kept)).scalar_one_or_none()
    if value is not None:
        return bytes.fromhex(value)
    new = insert_into(engine, deployment_secrets).values(name=name, value=token_hex(_KEY_BYTES))
    async with transaction(engine, writes=True, enlists=False) as connection:
        # If two insert at once, the second waits for the first in its INSERT, and then reads the first one's value.
        await connection.execute(new.on_conflict_do_nothing(index_elements=["name"]))
        return bytes.fromhex((await connection.execute(kept)).scalar_one())

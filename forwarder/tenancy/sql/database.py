"""The tables of tenancy, transactions on them, and the keys that the processes of a deployment share.

Here, and nowhere else in tenancy, drivers' errors become `TenancyUnavailable`."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC
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
_KINDS: Mapping[str, Any] = {
    "text": sa.Text,
    "integer": sa.Integer,
    "bigint": sa.BigInteger,
    "double": sa.Double,
    "boolean": sa.Boolean,
    "moment": _MOMENT,
    "texts": sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql"),
}


def _table(name: str, *columns: sa.schema.SchemaItem, **kinds: str) -> sa.Table:
    """`kinds`: names of columns by `_KINDS`; those with a question mark may be null, those with an exclamation mark are the key."""
    named = [(kind, each.rstrip("?!"), each[-1]) for kind, names in kinds.items() for each in names.split()]
    keys = [sa.Column(each, _KINDS[kind], primary_key=True) for kind, each, mark in named if mark == "!"]
    others = [sa.Column(each, _KINDS[kind], nullable=mark == "?") for kind, each, mark in named if mark != "!"]
    return sa.Table(name, metadata, *keys, *columns, *others)


def _with_default(name: str, kind: Any, default: str) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, server_default=sa.text(default))


def _created_at() -> sa.Column[Any]:
    return sa.Column("created_at", _MOMENT, nullable=False, server_default=sa.func.current_timestamp())


def _of_workspace() -> sa.Column[Any]:
    return sa.Column("workspace_id", sa.Text, sa.ForeignKey("workspaces.id"), nullable=False)


workspaces = _table(
    "workspaces",
    _created_at(),
    text="id!",
    integer="reservation_days? delivery_days? dead_letter_days? limit_requests? limit_seconds?",
)
"""The days are those of `RetentionPolicy`; the limit is the one that the workspace's keys share."""

api_keys = _table(
    "api_keys",
    _of_workspace(),
    sa.Column("token_hash", sa.Text, nullable=False, unique=True),
    _created_at(),
    _with_default("test", sa.Boolean, "false"),
    _with_default("networks", sa.Text, "''"),
    text="id! scopes name?",
    integer="limit_requests? limit_seconds?",
    moment="revoked_at? expires_at?",
)
"""Only the SHA-256 of a token is stored; with 32 random bytes, no slower hash is needed. `test` is for operators; a caller's mode
is read from the token itself. `scopes` and `networks` are separated by spaces; no network means anywhere."""

key_uses = _table("key_uses", text="key_id!", moment="used_at")
"""When a key was last used, to the minute. A separate table, so that the stages that write it need no privilege to change keys."""

key_usage = _table("key_usage", text="key_id!", double="used counted_at", integer="window_seconds")
"""The share of a key's quota that was used at `counted_at` (seconds since 1970, by the database's clock) by all processes
together. A whole quota comes back in `window_seconds`. A workspace's quota is under `workspace:` and its id."""

integration_accounts = _table(
    "integration_accounts",
    _of_workspace(),
    _with_default("options", _DOCUMENT, "'{}'"),
    _with_default("duplicate_window_seconds", sa.Integer, "300"),
    _with_default("similar", sa.Text, "'allow'"),
    _with_default("skipped_checks", _DOCUMENT, "'[]'"),
    _created_at(),
    text="id! kind base_url credential authorities? client_certificate? client_key?",
    integer="concurrency deadline_seconds",
    double="rate_per_second? settles_seconds?",
    boolean="paused",
    moment="same_pms_before?",
)
"""`credential` and `client_key` are sealed."""

grants = _table("grants", text="account_id! credential! claim? content?", bigint="version")
"""Grants of authorization servers. `credential`: a digest of the credential used to obtain it; `version` counts renewals; `claim`:
the process that is renewing it; `content` is sealed, null before the first grant."""

webhook_endpoints = _table(
    "webhook_endpoints",
    _of_workspace(),
    _with_default("asymmetric", sa.Boolean, "false"),
    sa.Index("webhook_endpoints_workspace", "workspace_id"),
    text="id! url description disabled_reason? secret previous_secret? headers?",
    texts="types? account_ids? property_ids? header_names?",
    boolean="enabled",
    moment="disabled_at? previous_until? created_at",
)
"""Customers' webhook endpoints. Both secrets and `headers` are sealed; `types`, `account_ids` and `property_ids` null mean all."""

webhook_secrets = _table(
    "webhook_secrets",
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("secret", sa.Text, primary_key=True),
    moment="until",
)
"""An endpoint's sealed secrets older than the previous one, and until when each of them signs."""

secrets = _table(
    "secrets", _created_at(), text="id! state verify_key accounts_key webhooks_key signature", moment="activated_at?"
)
"""The secrets that this deployment knows: their public keys in hexadecimal, which each has signed, and a `SecretState`."""
_ACTIVE = sa.text("state = 'active'")
sa.Index("secrets_active", secrets.c.state, unique=True, postgresql_where=_ACTIVE, sqlite_where=_ACTIVE)

sealing_keys = _table(
    "sealing_keys",
    sa.Column("not_before", sa.BigInteger, nullable=False, unique=True),
    text="key_id! public_key secret_id verify_key signature private_key ends?",
    bigint="not_after",
)
"""Short-lived keys that cards are sealed to on the topic, from `not_before` until `not_after` (seconds since 1970). `private_key`
is wrapped by the secret; deleting the row destroys it. `ends`: the end offsets of the topic's partitions after `not_after` (JSON):
once the workers have committed these, the key is no longer needed. Exclude this table from backups."""

deployment_secrets = _table("deployment_secrets", text="name! value")
"""Generated secrets that all processes of a deployment share, in hexadecimal; not configured."""


@asynccontextmanager
async def transaction(engine: AsyncEngine, *, writes: bool, enlists: bool = True) -> AsyncIterator[AsyncConnection]:
    """A transaction, committed when the block ends, rolled back if it raises; bounded in time. A writing one includes enlisted
    rows, unless `enlists` is false because it is not part of the change. Raises `TenancyUnavailable`."""
    enlisted = to_be_written() if writes and enlists else None
    if not writes:
        engine = engine.execution_options(postgresql_readonly=True)
    try:
        async with asyncio.timeout(15), engine.begin() as connection:
            yield connection
            if enlisted is not None:
                await enlisted.write(connection, enlisted.facts)
    except (PoolExhausted, OSError) as error:  # OSError is also every TimeoutError and ConnectionError
        raise TenancyUnavailable(_described(error)) from error
    except DBAPIError as error:
        # The classes for wrong values. All others say that the database cannot do our work now, be it for want of a privilege.
        sqlstate: str = getattr(error.orig, "sqlstate", None) or ""
        ours = sqlstate.startswith(("21", "22", "23"))
        if not sqlstate:
            ours = isinstance(error, IntegrityError | ProgrammingError)
        if ours and not error.connection_invalidated:
            raise
        raise TenancyUnavailable(_described(error.orig or error)) from error
    if enlisted is not None:
        enlisted.written = True


async def read(engine: AsyncEngine, statement: sa.Executable) -> Sequence[sa.Row[Any]]:
    """The rows of one read-only statement. Raises `TenancyUnavailable`."""
    async with transaction(engine, writes=False) as connection:
        return (await connection.execute(statement)).all()


async def write(engine: AsyncEngine, statement: sa.Executable, rows: Any = None) -> int:
    """How many rows one statement changed, in a transaction of its own. Raises `TenancyUnavailable`."""
    async with transaction(engine, writes=True) as connection:
        return (await connection.execute(statement, rows)).rowcount


def insert_into(engine: AsyncEngine, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if engine.dialect.name == "postgresql" else sqlite.insert(table)


def in_utc(moment: Any) -> Any:
    """Adds the time zone, which SQLite does not store, to a moment or None."""
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


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

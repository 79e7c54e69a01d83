"""The tables of tenancy: workspaces, keys, accounts, webhook endpoints, and the keys of the deployment. No I/O."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData()


def _created_at() -> Column[object]:
    return Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.current_timestamp())


workspaces = Table(
    "workspaces",
    metadata,
    Column("id", Text, primary_key=True),
    _created_at(),
    Column("reservation_days", Integer),
    Column("delivery_days", Integer),
    Column("dead_letter_days", Integer),
)
"""The days are those of `RetentionPolicy`."""

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", Text, ForeignKey("workspaces.id"), nullable=False),
    Column("token_hash", Text, nullable=False, unique=True),
    _created_at(),
    Column("revoked_at", DateTime(timezone=True)),
    Column("test", Boolean, nullable=False, server_default=text("false")),
    Column("limit_requests", Integer),
    Column("limit_seconds", Integer),
    Column("scopes", Text, nullable=False),
    Column("expires_at", DateTime(timezone=True)),
    Column("networks", Text, nullable=False, server_default=text("''")),
)
"""Only the SHA-256 of a token is stored; with 32 random bytes, no slower hash is needed. `test` is for operators; a caller's mode
is read from the token itself. Both columns of a limit are set, or neither. `scopes` and `networks` are separated by spaces; no
network means anywhere."""

key_uses = Table(
    "key_uses",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("used_at", DateTime(timezone=True), nullable=False),
)
"""When a key was last used, to the minute. A separate table, so that the stages that write it need no privilege to change keys."""

key_usage = Table(
    "key_usage",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("used", Double, nullable=False),
    Column("window_seconds", Integer, nullable=False),
    Column("counted_at", Double, nullable=False),
)
"""The share of a key's quota that was used at `counted_at` (seconds since 1970, by the database's clock) by all processes
together. A whole quota comes back in `window_seconds`."""

integration_accounts = Table(
    "integration_accounts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", Text, ForeignKey("workspaces.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("base_url", Text, nullable=False),
    Column("credential", Text, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("rate_per_second", Double),
    Column("deadline_seconds", Integer, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("options", JSON().with_variant(JSONB(), "postgresql"), nullable=False, server_default=text("'{}'")),
    Column("duplicate_window_seconds", Integer, nullable=False, server_default=text("300")),
    Column("similar", Text, nullable=False, server_default=text("'allow'")),
    Column("skipped_checks", JSON().with_variant(JSONB(), "postgresql"), nullable=False, server_default=text("'[]'")),
    Column("authorities", Text),
    Column("client_certificate", Text),
    Column("client_key", Text),
    Column("settles_seconds", Double),
    Column("same_pms_before", DateTime(timezone=True)),
    _created_at(),
)
"""`credential` and `client_key` are sealed."""

grants = Table(
    "grants",
    metadata,
    Column("account_id", Text, primary_key=True),
    Column("credential", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("claim", Text),
    Column("content", Text),
)
"""Grants of authorization servers. `credential`: a digest of the credential used to obtain it; `version` counts renewals; `claim`:
the process that is renewing it; `content` is sealed, null before the first grant."""

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", Text, ForeignKey("workspaces.id"), nullable=False),
    Column("url", Text, nullable=False),
    Column("types", JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")),
    Column("description", Text, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("disabled_reason", Text),
    Column("disabled_at", DateTime(timezone=True)),
    Column("secret", Text, nullable=False),
    Column("previous_secret", Text),
    Column("previous_until", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index("webhook_endpoints_workspace", "workspace_id"),
)
"""Customers' webhook endpoints. Both secrets are sealed; `types` null means every event type."""

webhook_secrets = Table(
    "webhook_secrets",
    metadata,
    Column("endpoint_id", Text, ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), primary_key=True),
    Column("secret", Text, primary_key=True),
    Column("until", DateTime(timezone=True), nullable=False),
)
"""An endpoint's sealed secrets older than the previous one, and until when each of them signs."""

secrets = Table(
    "secrets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("verify_key", Text, nullable=False),
    Column("accounts_key", Text, nullable=False),
    Column("webhooks_key", Text, nullable=False),
    Column("signature", Text, nullable=False),
    _created_at(),
    Column("activated_at", DateTime(timezone=True)),
)
"""The secrets that this deployment knows: their public keys in hexadecimal, which each has signed, and a `SecretState`."""

Index(
    "secrets_active",
    secrets.c.state,
    unique=True,
    postgresql_where=text("state = 'active'"),
    sqlite_where=text("state = 'active'"),
)

sealing_keys = Table(
    "sealing_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("public_key", Text, nullable=False),
    Column("not_before", BigInteger, nullable=False, unique=True),
    Column("not_after", BigInteger, nullable=False),
    Column("secret_id", Text, nullable=False),
    Column("verify_key", Text, nullable=False),
    Column("signature", Text, nullable=False),
    Column("private_key", Text, nullable=False),
    Column("ends", Text),
)
"""Short-lived keys that cards are sealed to on the topic, from `not_before` until `not_after` (seconds since 1970). `private_key`
is wrapped by the secret; deleting the row destroys it. `ends`: the end offsets of the topic's partitions after `not_after` (JSON):
once the workers have committed these, the key is no longer needed. Exclude this table from backups."""

deployment_secrets = Table(
    "deployment_secrets", metadata, Column("name", Text, primary_key=True), Column("value", Text, nullable=False)
)
"""Generated secrets that all processes of a deployment share, in hexadecimal; not configured."""

"""Every table of the store and of tenancy.

Revision ID: 0001
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create them, and their indexes."""
    _reservations()
    _reservation_indexes()
    _workers_and_outbox()
    _webhook_deliveries()
    _tenants()
    _endpoints_and_grants()
    _secrets()
    _audit()


def _created_at() -> sa.Column[Any]:
    return sa.Column(
        "created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.current_timestamp()
    )


def _partial_index(name: str, table: str, columns: list[Any], rows: str) -> None:
    op.create_index(name, table, columns, postgresql_where=sa.text(rows), sqlite_where=sa.text(rows))


def _reservations() -> None:
    op.create_table(
        "reservations",
        sa.Column("id", _ROW_ID, sa.Identity(always=True), primary_key=True),
        sa.Column("request_id", _KEY, nullable=False),
        sa.Column("record_id", sa.BigInteger, nullable=False),
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("account_id", _KEY, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("log_offset", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("log_timestamp_ms", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("operation", sa.Text, nullable=False),
        sa.Column("property_id", sa.Text, nullable=False),
        sa.Column("room_id", sa.Text, nullable=False),
        sa.Column("arrival_date", sa.Date, nullable=False),
        sa.Column("departure_date", sa.Date, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("card", sa.Text),
        sa.Column("accepted_at", _MOMENT, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.Column("cancelled_at", _MOMENT),
        sa.Column("deadline_at", _MOMENT, nullable=False),
        sa.Column("due_at", _MOMENT),
        sa.Column("leased_by", _KEY),
        sa.Column("pushing", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("possibly_sent", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("safeguards", sa.Text),
        sa.Column("sent_safeguards", sa.Text),
        sa.Column("takeovers", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("attempts", sa.Text, nullable=False, server_default=sa.text("'[]'")),
        sa.Column("tries", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("revision", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("pms_reservation_id", sa.Text),
        sa.Column("record", sa.Text),
        sa.Column("problem", sa.Text),
        sa.Column("trace", sa.Text),
        sa.Column("cancel_requested_at", _MOMENT),
        sa.Column("cancel_reason", sa.Text),
        sa.Column("cancel_problem", sa.Text),
        sa.Column("natural_key", _KEY),
        sa.Column("transaction_key", _KEY),
        sa.Column("keyed", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("transaction_of", sa.Text),
        sa.Column("anonymized_at", _MOMENT),
        sa.Column("failure_class", sa.Text),
        sqlite_autoincrement=True,
        postgresql_with={"toast_tuple_target": 8160, "autovacuum_vacuum_scale_factor": 0.05},
    )
    op.create_table(
        "parked_cancellations",
        sa.Column("request_id", _KEY, primary_key=True),
        sa.Column("account_id", _KEY, nullable=False),
        sa.Column("requested_at", _MOMENT, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("trace", sa.Text),
    )
    op.create_table(
        "purges",
        sa.Column("finished_before", sa.Date, primary_key=True),
        sa.Column("purged_at", _MOMENT, nullable=False),
    )
    op.create_table(
        "duplicates",
        sa.Column("request_id", _KEY, primary_key=True),
        sa.Column("account_id", _KEY, nullable=False),
        sa.Column("duplicate_of", _KEY, nullable=False),
        sa.Column("accepted_at", _MOMENT, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
    )


def _reservation_indexes() -> None:
    updated_day = "CAST(timezone('UTC', updated_at) AS DATE)"
    if op.get_bind().dialect.name == "sqlite":
        updated_day = "substr(updated_at, 1, 10)"
    op.create_index("reservations_request_id", "reservations", ["request_id"], unique=True)
    op.create_index("reservations_record_id", "reservations", ["record_id"], unique=True)
    _partial_index(
        "reservations_listed", "reservations", ["account_id", "id"], "(status NOT IN ('FAILED', 'REJECTED'))"
    )
    op.create_index("reservations_status", "reservations", ["account_id", "status", "id"])
    op.create_index("reservations_property", "reservations", ["account_id", "property_id", "id"])
    op.create_index("reservations_arrival", "reservations", ["account_id", "arrival_date", "id"])
    op.create_index("reservations_departure", "reservations", ["account_id", "departure_date", "id"])
    op.create_index("reservations_updated", "reservations", ["account_id", sa.text(updated_day), "id", "updated_at"])
    _partial_index(
        "reservations_pms_id", "reservations", ["pms_reservation_id", "id"], "pms_reservation_id IS NOT NULL"
    )
    _partial_index(
        "reservations_due",
        "reservations",
        ["account_id", "due_at", "id", "partition"],
        "due_at IS NOT NULL AND leased_by IS NULL",
    )
    _partial_index(
        "reservations_deadline",
        "reservations",
        ["deadline_at", "id", "partition"],
        "status <> 'IN_DOUBT' AND due_at IS NOT NULL AND leased_by IS NULL",
    )
    _partial_index("reservations_leased", "reservations", ["leased_by"], "leased_by IS NOT NULL")
    _partial_index(
        "reservations_failed",
        "reservations",
        ["account_id", "failure_class"],
        "status = 'FAILED' AND anonymized_at IS NULL",
    )
    possible = "status IN ('PENDING', 'IN_DOUBT', 'CONFIRMED', 'CANCELLED')"
    recognised_by = [sa.text("coalesce(transaction_key, natural_key)"), "id"]
    _partial_index("reservations_recognised", "reservations", recognised_by, f"natural_key IS NOT NULL AND {possible}")
    departed_later = f"(status = 'CONFIRMED' AND departure_date > {updated_day})"
    finished_day = f"coalesce(CASE WHEN {departed_later} THEN departure_date END, {updated_day})"
    _partial_index(
        "reservations_identifiable",
        "reservations",
        ["workspace_id", "status", sa.text(finished_day), "id"],
        "anonymized_at IS NULL AND due_at IS NULL AND leased_by IS NULL AND status <> 'IN_DOUBT'",
    )


def _workers_and_outbox() -> None:
    op.create_table(
        "workers",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("lease_seconds", sa.Double, nullable=False),
        postgresql_with={"fillfactor": 50},
    )
    op.create_table(
        "processes",
        sa.Column("id", _KEY, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("role", "version", "revision", "host")),
        sa.Column("started_at", _MOMENT, nullable=False),
        sa.Column("seen_at", _MOMENT, nullable=False),
        sa.Column("throttles", sa.Text, nullable=False),
        postgresql_with={"fillfactor": 50},
    )
    op.create_table(
        "outbox",
        sa.Column("id", _ROW_ID, sa.Identity(always=True), primary_key=True),
        sa.Column("reservation_id", sa.BigInteger, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("occurred_at", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("trace", sa.Text),
        sa.Column("dead_letter", sa.Text),
        sa.Column("publish_attempted_at", _MOMENT, nullable=False),
        sqlite_autoincrement=True,
        postgresql_with={
            "toast_tuple_target": 8160,
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 5000,
        },
    )


def _webhook_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", _ROW_ID, sa.Identity(always=True), primary_key=True),
        sa.Column("endpoint_id", _KEY, nullable=False),
        sa.Column("event_id", _KEY, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("trace", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("retrying_since", _MOMENT, nullable=False),
        sa.Column("due_at", _MOMENT),
        sa.Column("ended_at", _MOMENT),
        sa.Column("claims", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("tries", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("attempts", sa.Text, nullable=False, server_default=sa.text("'[]'")),
        sqlite_autoincrement=True,
    )
    op.create_index("webhook_deliveries_event", "webhook_deliveries", ["endpoint_id", "event_id"], unique=True)
    _partial_index("webhook_deliveries_due", "webhook_deliveries", ["endpoint_id", "due_at"], "due_at IS NOT NULL")
    op.create_index("webhook_deliveries_endpoint", "webhook_deliveries", ["endpoint_id", "id"])


def _tenants() -> None:
    op.create_table(
        "workspaces",
        sa.Column("id", sa.Text, primary_key=True),
        _created_at(),
        sa.Column("reservation_days", sa.Integer),
        sa.Column("delivery_days", sa.Integer),
        sa.Column("dead_letter_days", sa.Integer),
    )
    op.create_table(
        "api_keys",
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
    )
    op.create_table(
        "key_uses",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "key_usage",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("used", sa.Double, nullable=False),
        sa.Column("window_seconds", sa.Integer, nullable=False),
        sa.Column("counted_at", sa.Double, nullable=False),
    )
    op.create_table(
        "integration_accounts",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.Text, sa.ForeignKey("workspaces.id"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("base_url", sa.Text, nullable=False),
        sa.Column("credential", sa.Text, nullable=False),
        sa.Column("concurrency", sa.Integer, nullable=False),
        sa.Column("rate_per_second", sa.Double),
        sa.Column("deadline_seconds", sa.Integer, nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column(
            "options", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False, server_default=sa.text("'{}'")
        ),
        sa.Column("duplicate_window_seconds", sa.Integer, nullable=False, server_default=sa.text("300")),
        sa.Column(
            "skipped_checks",
            sa.JSON().with_variant(JSONB(), "postgresql"),
            nullable=False,
            server_default=sa.text("'[]'"),
        ),
        sa.Column("authorities", sa.Text),
        sa.Column("client_certificate", sa.Text),
        sa.Column("client_key", sa.Text),
        _created_at(),
    )


def _endpoints_and_grants() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.Text, sa.ForeignKey("workspaces.id"), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("types", sa.JSON().with_variant(JSONB(), "postgresql")),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.Text),
        sa.Column("disabled_at", sa.DateTime(timezone=True)),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("previous_secret", sa.Text),
        sa.Column("previous_until", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("webhook_endpoints_workspace", "webhook_endpoints", ["workspace_id"])
    op.create_table(
        "grants",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("credential", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("claim", sa.Text),
        sa.Column("content", sa.Text),
    )


def _secrets() -> None:
    op.create_table(
        "secrets",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("verify_key", sa.Text, nullable=False),
        sa.Column("accounts_key", sa.Text, nullable=False),
        sa.Column("webhooks_key", sa.Text, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
        _created_at(),
        sa.Column("activated_at", sa.DateTime(timezone=True)),
    )
    only_one = sa.text("state = 'active'")
    op.create_index(
        "secrets_active", "secrets", ["state"], unique=True, postgresql_where=only_one, sqlite_where=only_one
    )
    op.create_table(
        "sealing_keys",
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
    op.create_table(
        "card_keys",
        sa.Column("request_id", _KEY, primary_key=True),
        sa.Column("secret_id", sa.Text, nullable=False),
        sa.Column("number_key", sa.Text, nullable=False),
        sa.Column("code_key", sa.Text),
        sa.Column("expires_at", _MOMENT, nullable=False),
        sa.Column("sealing_key", _KEY),
    )
    op.create_table(
        "deployment_secrets",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("actor_kind", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("workspace_id", sa.Text),
        sa.Column("target", sa.Text),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("previous_hash", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_no_{change.lower()} BEFORE {change} ON audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )

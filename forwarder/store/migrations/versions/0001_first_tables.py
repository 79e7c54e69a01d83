"""The tables of the store and of tenancy.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make them, and their indexes."""
    _reservations()
    _workers_and_outbox()
    _tenants()
    _secrets()


def downgrade() -> None:
    """Drop everything."""
    for table in (
        "deployment_secrets",
        "sealing_keys",
        "integration_accounts",
        "api_keys",
        "workspaces",
        "outbox",
        "workers",
        "reservations",
    ):
        op.drop_table(table)


def _reservations() -> None:
    op.create_table(
        "reservations",
        sa.Column("id", _ROW_ID, sa.Identity(always=True), primary_key=True),
        sa.Column("request_id", _KEY, nullable=False),
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("account_id", _KEY, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
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
        sa.Column("doubtful", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("attempts", sa.Text, nullable=False, server_default=sa.text("'[]'")),
        sa.Column("revision", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("pms_reservation_id", sa.Text),
        sa.Column("record", sa.Text),
        sa.Column("problem", sa.Text),
        sa.Column("traceparent", sa.Text),
        sqlite_autoincrement=True,
        postgresql_with={"toast_tuple_target": 8160, "autovacuum_vacuum_scale_factor": 0.05},
    )
    waiting = sa.text("status = 'PENDING' AND leased_by IS NULL")
    leased = sa.text("leased_by IS NOT NULL")
    op.create_index("reservations_request_id", "reservations", ["request_id"], unique=True)
    op.create_index("reservations_account", "reservations", ["account_id", "id"])
    op.create_index(
        "reservations_due",
        "reservations",
        ["account_id", "due_at", "id", "partition"],
        postgresql_where=waiting,
        sqlite_where=waiting,
    )
    op.create_index("reservations_leased", "reservations", ["leased_by"], postgresql_where=leased, sqlite_where=leased)


def _workers_and_outbox() -> None:
    op.create_table(
        "workers",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("lease_until", _MOMENT, nullable=False),
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
        sa.Column("traceparent", sa.Text),
        sa.Column("created_at", _MOMENT, nullable=False),
        sqlite_autoincrement=True,
        postgresql_with={
            "toast_tuple_target": 8160,
            "autovacuum_vacuum_scale_factor": 0,
            "autovacuum_vacuum_threshold": 5000,
        },
    )


def _tenants() -> None:
    now = sa.func.current_timestamp()
    op.create_table(
        "workspaces",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=now),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.Text, sa.ForeignKey("workspaces.id"), nullable=False),
        sa.Column("token_hash", sa.Text, nullable=False, unique=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=now),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
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
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=now),
    )


def _secrets() -> None:
    op.create_table(
        "sealing_keys",
        sa.Column("id", _ROW_ID, sa.Identity(always=True), primary_key=True),
        sa.Column("key_id", sa.Text, nullable=False, unique=True),
        sa.Column("public_key", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.current_timestamp()),
    )
    op.create_table(
        "deployment_secrets",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )

"""Webhooks: the endpoints of workspaces, and what is to be delivered to them.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TYPES = sa.JSON().with_variant(JSONB(), "postgresql")
_PENDING = sa.text("due_at IS NOT NULL")


def upgrade() -> None:
    """There were none before."""
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.Text, sa.ForeignKey("workspaces.id"), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("types", _TYPES),
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
        "webhook_deliveries",
        sa.Column("id", _ROW_ID, sa.Identity(always=True), primary_key=True),
        sa.Column("endpoint_id", _KEY, nullable=False),
        sa.Column("event_id", _KEY, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("began_at", _MOMENT, nullable=False),
        sa.Column("due_at", _MOMENT),
        sa.Column("ended_at", _MOMENT),
        sa.Column("claims", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("tries", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("attempts", sa.Text, nullable=False, server_default=sa.text("'[]'")),
        sqlite_autoincrement=True,
    )
    op.create_index("webhook_deliveries_once", "webhook_deliveries", ["endpoint_id", "event_id"], unique=True)
    op.create_index(
        "webhook_deliveries_due",
        "webhook_deliveries",
        ["endpoint_id", "due_at"],
        postgresql_where=_PENDING,
        sqlite_where=_PENDING,
    )
    op.create_index("webhook_deliveries_of", "webhook_deliveries", ["endpoint_id", "id"])


def downgrade() -> None:
    """Endpoints, their secrets, and what was not delivered yet are lost."""
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_endpoints")

"""Webhooks of chosen accounts and properties, with headers of the customer's own, and `v1a` signatures on request.

Only columns that may be empty or have a default are added: processes of the release before run alongside those of this one.

Revision ID: 0010
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_LISTS = ("account_ids", "property_ids", "header_names")


def upgrade() -> None:
    """Add them."""
    for name in _LISTS:
        op.add_column("webhook_endpoints", sa.Column(name, sa.JSON().with_variant(JSONB(), "postgresql")))
    op.add_column("webhook_endpoints", sa.Column("headers", sa.Text))
    op.add_column(
        "webhook_endpoints", sa.Column("asymmetric", sa.Boolean, nullable=False, server_default=sa.text("false"))
    )


def downgrade() -> None:
    """Drop them."""
    for name in (*_LISTS, "headers", "asymmetric"):
        op.drop_column("webhook_endpoints", name)

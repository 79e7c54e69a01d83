"""Rate limits of API keys, what was used of them, and which keys are test keys.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Keys of before have the deployment's default; none of them is a test key."""
    op.add_column("api_keys", sa.Column("test", sa.Boolean, nullable=False, server_default=sa.text("false")))
    op.add_column("api_keys", sa.Column("limit_requests", sa.Integer))
    op.add_column("api_keys", sa.Column("limit_seconds", sa.Integer))
    op.create_table(
        "key_usage",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("used", sa.Double, nullable=False),
        sa.Column("window_seconds", sa.Integer, nullable=False),
        sa.Column("counted_at", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Limits are lost: the deployment's default, if it has one, holds for every key."""
    op.drop_table("key_usage")
    op.drop_column("api_keys", "limit_seconds")
    op.drop_column("api_keys", "limit_requests")
    op.drop_column("api_keys", "test")

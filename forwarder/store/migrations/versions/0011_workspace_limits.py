"""The rate limit that the keys of a workspace share.

Only columns that may be empty are added: processes of the release before run alongside those of this one.

Revision ID: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them."""
    op.add_column("workspaces", sa.Column("limit_requests", sa.Integer))
    op.add_column("workspaces", sa.Column("limit_seconds", sa.Integer))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("workspaces", "limit_seconds")
    op.drop_column("workspaces", "limit_requests")

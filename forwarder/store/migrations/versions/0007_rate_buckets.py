"""The token buckets that all workers share: an account's rate holds for the deployment, not for each worker.

Only a table is added. During an upgrade, workers of the release before run alongside those of this one and keep their
own buckets.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create it."""
    op.create_table(
        "rate_buckets",
        sa.Column("name", _KEY, primary_key=True),
        sa.Column("full_at", sa.Double, nullable=False),
        postgresql_with={"fillfactor": 50},
    )


def downgrade() -> None:
    """Drop it: each worker has buckets of its own again."""
    op.drop_table("rate_buckets")

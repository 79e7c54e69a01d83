"""The secrets of a webhook endpoint before its previous one, each until the time it was promised.

Only a table is added: processes of the release before, which know one previous secret, run alongside those of this one.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create it."""
    endpoint = sa.ForeignKey("webhook_endpoints.id", ondelete="CASCADE")
    op.create_table(
        "webhook_secrets",
        sa.Column("endpoint_id", sa.Text, endpoint, primary_key=True),
        sa.Column("secret", sa.Text, primary_key=True),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop it: each endpoint keeps its previous secret."""
    op.drop_table("webhook_secrets")

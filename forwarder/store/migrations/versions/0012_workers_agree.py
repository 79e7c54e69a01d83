"""Which database each worker last found whole, so that after a failover none pushes before all have looked.

Only a column that may be empty is added: processes of the release before run alongside those of this one.

Revision ID: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it."""
    op.add_column("workers", sa.Column("checked", sa.Text))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("workers", "checked")

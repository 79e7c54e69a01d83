"""Options of accounts that only their kind of PMS has, and the grants of those whose tokens change.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Accounts of before have no options."""
    op.add_column("integration_accounts", sa.Column("options", sa.JSON, nullable=False, server_default=sa.text("'{}'")))


def downgrade() -> None:
    """Options are lost."""
    op.drop_column("integration_accounts", "options")

"""Options of accounts that only their kind of PMS has, and the grants of those whose tokens change.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Accounts of before have no options."""
    options = sa.JSON().with_variant(JSONB(), "postgresql")
    op.add_column("integration_accounts", sa.Column("options", options, nullable=False, server_default=sa.text("'{}'")))
    op.create_table(
        "grants",
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("credential", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("claim", sa.Text),
        sa.Column("content", sa.Text),
        sa.PrimaryKeyConstraint("account_id", "credential"),
    )


def downgrade() -> None:
    """Options are lost, and so are grants: where refresh tokens change at every use, accounts need new credentials."""
    op.drop_table("grants")
    op.drop_column("integration_accounts", "options")

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

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Accounts of before have no options."""
    options = sa.Column("options", _JSON, nullable=False, server_default=sa.text("'{}'"))
    op.add_column("integration_accounts", options)


def downgrade() -> None:
    """Options are lost."""
    op.drop_column("integration_accounts", "options")

"""For the status that operators see: the failing checks of each process, and how many messages were set aside and not acknowledged.

Adds a column with a default, and a table: processes of the release before run alongside those of this one.

Revision ID: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    """Create them."""
    op.add_column("processes", sa.Column("failing", sa.Text, nullable=False, server_default="[]"))
    op.create_table(
        "set_aside",
        sa.Column("failure_class", _KEY, primary_key=True),
        sa.Column("messages", sa.BigInteger, nullable=False),
        sa.Column("first_at", _MOMENT, nullable=False),
        sa.Column("last_at", _MOMENT, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("set_aside")
    op.drop_column("processes", "failing")

"""When the store was brought up with the topics after a loss, and what topics lost.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "recoveries",
        sa.Column("began_at", _MOMENT, primary_key=True),
        sa.Column("since", _MOMENT),
        sa.Column("recovered_at", _MOMENT),
    )
    op.create_table(
        "log_gaps",
        sa.Column("topic", _KEY, primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("resumed_at", sa.BigInteger, nullable=False),
        sa.Column("noted_at", _MOMENT, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("log_gaps")
    op.drop_table("recoveries")

"""What a push carried that may have been made, and how often a row was taken over.

Revision ID: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What earlier pushes carried was not recorded: nothing is relied on of those that may have been made."""
    op.add_column("reservations", sa.Column("safeguards", sa.Text))
    op.add_column("reservations", sa.Column("doubt", sa.Text))
    op.add_column("reservations", sa.Column("takeovers", sa.Integer, nullable=False, server_default=sa.text("0")))
    op.execute("UPDATE reservations SET safeguards = 'unknown' WHERE leased_by IS NOT NULL")
    op.execute("UPDATE reservations SET doubt = 'unknown' WHERE doubtful")


def downgrade() -> None:
    """Whether an earlier push can be looked into is again judged by today's settings."""
    op.drop_column("reservations", "takeovers")
    op.drop_column("reservations", "doubt")
    op.drop_column("reservations", "safeguards")

"""Columns that identify a submission exactly and find similar ones, and the bodies that were not booked.

Only columns that may be NULL and an index are added: processes of the release before run alongside those of this one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_IS_RECOGNISED = "stay_key IS NOT NULL AND status IN ('PENDING', 'IN_DOUBT', 'CONFIRMED', 'CANCELLED')"


def upgrade() -> None:
    """Add them."""
    op.add_column("reservations", sa.Column("same_key", _KEY))
    op.add_column("reservations", sa.Column("stay_key", _KEY))
    op.add_column("reservations", sa.Column("similar_to", sa.Text))
    op.add_column("reservations", sa.Column("conflicting_at", _MOMENT))
    op.add_column(
        "integration_accounts", sa.Column("similar", sa.Text, nullable=False, server_default=sa.text("'allow'"))
    )
    op.create_index(
        "reservations_stay",
        "reservations",
        ["stay_key", "same_key", "id"],
        postgresql_where=sa.text(_IS_RECOGNISED),
        sqlite_where=sa.text(_IS_RECOGNISED),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_index("reservations_stay", "reservations")
    op.drop_column("integration_accounts", "similar")
    for column in ("same_key", "stay_key", "similar_to", "conflicting_at"):
        op.drop_column("reservations", column)

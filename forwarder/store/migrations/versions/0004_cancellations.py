"""Cancellations: asked for on the row, or parked until their submission is taken in; and a deadline of their own.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_PENDING = sa.text("status = 'PENDING' AND leased_by IS NULL")
_WITH_DEADLINE = sa.text("status <> 'IN_DOUBT' AND due_at IS NOT NULL AND leased_by IS NULL")


def upgrade() -> None:
    """Nothing was asked to be cancelled before."""
    op.add_column("reservations", sa.Column("cancel_requested_at", _MOMENT))
    op.add_column("reservations", sa.Column("cancel_reason", sa.Text))
    op.add_column("reservations", sa.Column("cancel_problem", sa.Text))
    op.create_table(
        "parked_cancellations",
        sa.Column("request_id", _KEY, primary_key=True),
        sa.Column("account_id", _KEY, nullable=False),
        sa.Column("requested_at", _MOMENT, nullable=False),
        sa.Column("reason", sa.Text),
    )
    _index_deadlines(_WITH_DEADLINE)


def downgrade() -> None:
    """Cancellations that were asked for and not carried out are lost."""
    _index_deadlines(_PENDING)
    op.drop_table("parked_cancellations")
    for name in ("cancel_problem", "cancel_reason", "cancel_requested_at"):
        op.drop_column("reservations", name)


def _index_deadlines(rows: sa.TextClause) -> None:
    op.drop_index("reservations_deadline", "reservations")
    op.create_index(
        "reservations_deadline",
        "reservations",
        ["deadline_at", "id", "partition"],
        postgresql_where=rows,
        sqlite_where=rows,
    )

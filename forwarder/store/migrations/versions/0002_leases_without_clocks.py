"""Leases that no clock decides, look-ups of what is in doubt, deadlines, and dead letters.

Revision ID: 0002
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NOUGHT = sa.text("0")
_PENDING = sa.text("status = 'PENDING' AND leased_by IS NULL")
_DUE = sa.text("due_at IS NOT NULL AND leased_by IS NULL")


def upgrade() -> None:
    """The workers of before hold nothing any more: they must have been stopped."""
    op.add_column("reservations", sa.Column("log_offset", sa.BigInteger, nullable=False, server_default=_NOUGHT))
    op.add_column("reservations", sa.Column("logged_ms", sa.BigInteger, nullable=False, server_default=_NOUGHT))
    op.add_column("reservations", sa.Column("tries", sa.Integer, nullable=False, server_default=_NOUGHT))
    _index_due(_DUE)
    op.create_index(
        "reservations_deadline",
        "reservations",
        ["deadline_at", "id", "partition"],
        postgresql_where=_PENDING,
        sqlite_where=_PENDING,
    )
    _make_workers(
        sa.Column("beat", sa.BigInteger, nullable=False), sa.Column("lease_seconds", sa.Double, nullable=False)
    )
    op.add_column("outbox", sa.Column("letter", sa.Text))
    op.execute("ALTER TABLE outbox RENAME COLUMN created_at TO offered_at")


def downgrade() -> None:
    """As it was. Dead letters that were not published yet are lost with their column: let the outbox run empty first."""
    op.execute("ALTER TABLE outbox RENAME COLUMN offered_at TO created_at")
    op.drop_column("outbox", "letter")
    _make_workers(sa.Column("lease_until", _MOMENT, nullable=False))
    op.drop_index("reservations_deadline", "reservations")
    _index_due(_PENDING)
    for name in ("tries", "logged_ms", "log_offset"):
        op.drop_column("reservations", name)


def _make_workers(*columns: sa.Column[Any]) -> None:
    # SQLite adds no column without a default; and whoever stands in the table holds nothing any more.
    op.drop_table("workers")
    op.create_table("workers", sa.Column("id", _KEY, primary_key=True), *columns, postgresql_with={"fillfactor": 50})


def _index_due(rows: sa.TextClause) -> None:
    op.drop_index("reservations_due", "reservations")
    op.create_index(
        "reservations_due",
        "reservations",
        ["account_id", "due_at", "id", "partition"],
        postgresql_where=rows,
        sqlite_where=rows,
    )

"""Events that cannot be published, and rows over which workers end.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add them."""
    op.add_column("outbox", sa.Column("faults", sa.Integer, nullable=False, server_default=sa.text("0")))
    op.add_column("outbox", sa.Column("error_id", sa.Text))
    set_aside = sa.text("faults > 0")
    op.create_index("outbox_set_aside", "outbox", ["id"], postgresql_where=set_aside, sqlite_where=set_aside)
    op.create_table(
        "suspects",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("worker_id", _KEY, nullable=False),
        sa.Column("deaths", sa.Integer, nullable=False, server_default=sa.text("0")),
    )


def downgrade() -> None:
    """Remove them."""
    op.drop_table("suspects")
    op.drop_index("outbox_set_aside", "outbox")
    op.drop_column("outbox", "error_id")
    op.drop_column("outbox", "faults")

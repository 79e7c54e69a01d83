"""With which API key a submission came, and what operators call a key.

Only columns that may be empty are added: processes of the release before run alongside those of this one.

Revision ID: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them."""
    op.add_column("reservations", sa.Column("api_key_id", sa.Text))
    op.add_column("api_keys", sa.Column("name", sa.Text))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("api_keys", "name")
    op.drop_column("reservations", "api_key_id")

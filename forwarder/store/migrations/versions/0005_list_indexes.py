"""What lists of reservations are filtered by: an index for each.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_KEYS = {"status": "status", "property": "property_id", "arrival": "arrival_date", "departure": "departure_date"}


def upgrade() -> None:
    """The table is locked against writes until they are made."""
    for name, key in _KEYS.items():
        op.create_index(f"reservations_{name}", "reservations", ["account_id", key, "id"])
    day = "CAST(timezone('UTC', updated_at) AS DATE)"
    if op.get_bind().dialect.name == "sqlite":
        day = "substr(updated_at, 1, 10)"
    op.create_index("reservations_updated", "reservations", ["account_id", sa.text(day), "id", "updated_at"])


def downgrade() -> None:
    """Lists are then not filtered any more: the processes of this version must have been stopped."""
    for name in ("updated", *reversed(_KEYS)):
        op.drop_index(f"reservations_{name}", "reservations")

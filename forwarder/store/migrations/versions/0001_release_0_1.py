"""The tables of 0.1. A new database gets the newest tables at once (`forwarder.store.migrate`), so nothing remains to be done here.

Revision ID: 0001
"""

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing: a database that has no later revision was made by 0.1."""

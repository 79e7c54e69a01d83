"""Everything that 0.2 adds to the tables of 0.1.

All but the columns of pushes only adds tables, indexes and columns that may be empty or have a default, so that ingress, query and
notifier processes of 0.1 run alongside those of 0.2. Workers of 0.1 do not: two of their columns are replaced.

Revision ID: 0012
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0012"
down_revision = "0001"
branch_labels = None
depends_on = None

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_LIST = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Add it all."""
    for name, kind in (("same_key", _KEY), ("stay_key", _KEY), ("similar_to", sa.Text()), ("conflicting_at", _MOMENT)):
        op.add_column("reservations", sa.Column(name, kind))
    recognised = "stay_key IS NOT NULL AND status IN ('PENDING', 'IN_DOUBT', 'CONFIRMED', 'CANCELLED')"
    _partial_index("reservations_stay", "reservations", ["stay_key", "same_key", "id"], recognised)
    op.add_column("reservations", sa.Column("api_key_id", sa.Text))
    # What was noted of the last push becomes its evidence. Its credential was not noted, and so matches any.
    for name in ("target", "evidence", "doubles"):
        op.add_column("reservations", sa.Column(name, sa.Text))
    run = op.get_bind().exec_driver_sql
    run(f"UPDATE reservations SET target = {_target('safeguards')} WHERE safeguards IS NOT NULL")  # noqa: S608
    push = """'{"type":"push","at":"","to":' || """ + _target("sent_safeguards", nothing="{}")
    push += """ || ',"came":"ambiguous","reason":"not_noted"}'"""
    run(f"UPDATE reservations SET evidence = {push} WHERE possibly_sent")  # noqa: S608
    op.drop_column("reservations", "safeguards")
    op.drop_column("reservations", "sent_safeguards")
    _partial_index("reservations_doubles", "reservations", ["id"], "doubles IS NOT NULL")
    op.add_column("outbox", sa.Column("faults", sa.Integer, nullable=False, server_default=sa.text("0")))
    op.add_column("outbox", sa.Column("error_id", sa.Text))
    _partial_index("outbox_set_aside", "outbox", ["id"], "faults > 0")
    op.add_column("workers", sa.Column("checked", sa.Text))
    op.add_column("processes", sa.Column("failing", sa.Text, nullable=False, server_default="[]"))
    op.create_table(
        "suspects",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("worker_id", _KEY, nullable=False),
        sa.Column("deaths", sa.Integer, nullable=False, server_default=sa.text("0")),
    )
    op.create_table(
        "set_aside",
        sa.Column("failure_class", _KEY, primary_key=True),
        sa.Column("messages", sa.BigInteger, nullable=False),
        sa.Column("first_at", _MOMENT, nullable=False),
        sa.Column("last_at", _MOMENT, nullable=False),
    )
    op.create_table(
        "rate_buckets",
        sa.Column("name", _KEY, primary_key=True),
        sa.Column("full_at", sa.Double, nullable=False),
        postgresql_with={"fillfactor": 50},
    )
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
    similar = sa.Column("similar", sa.Text, nullable=False, server_default=sa.text("'allow'"))
    op.add_column("integration_accounts", similar)
    op.add_column("integration_accounts", sa.Column("settles_seconds", sa.Double))
    op.add_column("integration_accounts", sa.Column("same_pms_before", sa.DateTime(timezone=True)))
    op.add_column("api_keys", sa.Column("name", sa.Text))
    op.add_column("workspaces", sa.Column("limit_requests", sa.Integer))
    op.add_column("workspaces", sa.Column("limit_seconds", sa.Integer))
    endpoint = sa.ForeignKey("webhook_endpoints.id", ondelete="CASCADE")
    op.create_table(
        "webhook_secrets",
        sa.Column("endpoint_id", sa.Text, endpoint, primary_key=True),
        sa.Column("secret", sa.Text, primary_key=True),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
    )
    for name in ("account_ids", "property_ids", "header_names"):
        op.add_column("webhook_endpoints", sa.Column(name, _LIST))
    op.add_column("webhook_endpoints", sa.Column("headers", sa.Text))
    asymmetric = sa.Column("asymmetric", sa.Boolean, nullable=False, server_default=sa.text("false"))
    op.add_column("webhook_endpoints", asymmetric)


def _target(column: str, nothing: str = "") -> str:
    """As SQL: the target that was written as `ENDPOINT key reference`, with both words or one of them."""
    whole = (
        ("% key reference", ',"reference":"id","key":true'),
        ("% key", ',"key":true'),
        ("% reference", ',"reference":"id"'),
    )
    cases = " ".join(
        f"""WHEN {column} LIKE '{pattern}' THEN '{{"pms":"' || substr({column}, 1, 16) || '"{rest}}}'"""
        for pattern, rest in whole
    )
    return f"""(CASE {cases} WHEN COALESCE({column}, '') = '' THEN '{nothing}' ELSE '{{}}' END)"""


def _partial_index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, postgresql_where=where, sqlite_where=where)

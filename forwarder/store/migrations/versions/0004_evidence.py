"""Each row carries the evidence of its pushes, in place of what the last one that was left in doubt carried."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_ROW = "reservations"


def upgrade() -> None:
    """What was noted of a push becomes its evidence. Its credential was not noted, and so matches any."""
    for name in ("target", "evidence", "doubles"):
        op.add_column(_ROW, sa.Column(name, sa.Text))
    run = op.get_bind().exec_driver_sql
    run(f"UPDATE {_ROW} SET target = {_target('safeguards')} WHERE safeguards IS NOT NULL")  # noqa: S608
    push = """'{"type":"push","at":"","to":' || """ + _target("sent_safeguards", nothing="{}")
    push += """ || ',"came":"ambiguous","reason":"not_noted"}'"""
    run(f"UPDATE {_ROW} SET evidence = {push} WHERE possibly_sent")  # noqa: S608
    op.drop_column(_ROW, "safeguards")
    op.drop_column(_ROW, "sent_safeguards")
    op.add_column("integration_accounts", sa.Column("settles_seconds", sa.Double))
    op.add_column("integration_accounts", sa.Column("same_pms_before", sa.DateTime(timezone=True)))
    where = sa.text("doubles IS NOT NULL")
    op.create_index("reservations_doubles", _ROW, ["id"], postgresql_where=where, sqlite_where=where)


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


def downgrade() -> None:
    """What was noted of pushes is lost: what is in doubt then waits for an operator."""
    op.drop_index("reservations_doubles", _ROW)
    for name in ("settles_seconds", "same_pms_before"):
        op.drop_column("integration_accounts", name)
    for name in ("target", "evidence", "doubles"):
        op.drop_column(_ROW, name)
    for name in ("safeguards", "sent_safeguards"):
        op.add_column(_ROW, sa.Column(name, sa.Text))

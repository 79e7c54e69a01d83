"""What statements are made of: inserts that mind conflicts, rows picked under lock, distinct values, rows of each. No I/O."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    CTE,
    Column,
    FromClause,
    ScalarSelect,
    Select,
    Table,
    Update,
    and_,
    literal_column,
    select,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import ColumnElement

from forwarder.store.database import Dialect
from forwarder.store.submissions.keyed import key_among
from forwarder.store.tables import reservations


def insert_into(dialect: Dialect, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that can say ON CONFLICT."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


def locked(rows: Any) -> CTE:
    """The ids that `rows` selects, locked; those that another has locked are passed over."""
    # A CTE, because a subquery may be run more than once, and would then pick more rows than it should.
    picked: CTE = rows.with_for_update(skip_locked=True).cte("picked")
    return picked


def update_of(picked: CTE) -> Update:
    """An update of the picked rows."""
    return update(reservations).where(key_among(reservations.c.id, select(picked.c.id)))


def distinct(among: ColumnElement[bool], *order: Column[Any]) -> CTE:
    """The distinct values of a column, each found by one step through the index on `order`, which begins with it; and NULL.

    More of the order than the first column is named where another index begins with the same one: that one would lead through
    every row of the table.
    """
    value = order[0]
    found = select(_first(among, order).label("value")).cte("found", recursive=True)
    following = _first(and_(among, value > found.c.value), order)
    return found.union_all(select(following).select_from(found).where(found.c.value.is_not(None)))


def _first(among: ColumnElement[bool], order: Sequence[Column[Any]]) -> ScalarSelect[Any]:
    return select(order[0]).where(among).order_by(*order).limit(literal_column("1")).scalar_subquery()


def of_each(dialect: Dialect, outer: FromClause, rows: Select[Any]) -> Select[Any]:
    """What `rows`, a limited query of reservations that is correlated to `outer`, selects for each row of it."""
    if dialect == "postgresql":
        inner = rows.lateral("inner")
        return select(*inner.c).select_from(outer.join(inner, true()))
    # SQLite knows no LATERAL. It looks such a list of ids up anew for each row of what stands before it.
    ids = rows.with_only_columns(reservations.c.id)
    return select(*rows.selected_columns).select_from(outer.join(reservations, reservations.c.id.in_(ids)))

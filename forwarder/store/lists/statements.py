"""The statements that read a list page by page, filtered or not, ascending or descending by id.

An index on (account, key, id) holds the ids of one account and key in order: a run. A page is merged from the runs of the
leading filter: the first ids of each run from the cursor on, and then the first of all of these. That takes as many index steps
as there are runs (statuses, or days with any rows) times the size of a page, however many rows there are.

A scan without an end is expensive: PostgreSQL reads all entries on an index page from there on, some eighty rows. As there are many
days, their scans are given an end (in `_ids`)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from forwarder.store.batches import batch_of, of_each
from forwarder.store.lists.port import Filter, ListShape
from forwarder.store.sql import ONE, ZERO, DialectName, Moment, utc_day
from forwarder.store.tables import IS_LISTED, reservations

_row = reservations.c
_account = sa.bindparam("account_id", type_=_row.account_id.type)
_cursor = sa.bindparam("cursor", type_=_row.id.type)
_max_rows = sa.bindparam("max_rows", type_=sa.Integer)
_since = sa.bindparam("updated_since", type_=Moment())
_KEYS: Final[dict[Filter, sa.ColumnElement[Any]]] = {
    "property": _row.property_id,
    "status": _row.status,
    "arrival": _row.arrival_date,
    "departure": _row.departure_date,
    "updated": utc_day(_row.updated_at),
}


@cache
def onward(dialect: DialectName, shape: ListShape, columns: tuple[sa.ColumnElement[Any], ...]) -> sa.Select[Any]:
    """These columns, including the id, of the rows from the cursor on, in the list's order."""
    if shape.lead == "listed":
        return _listed(dialect, shape, columns)
    ids = _ids(dialect, shape).subquery("page")
    # By bounds, which only the primary key serves: for an equality, any index with the id looks as cheap in an empty table.
    one = sa.select(*columns).where(_row.id >= ids.c.id, _row.id <= ids.c.id).order_by(_row.id).limit(ONE)
    rows = of_each(dialect, ids, one.correlate(ids))
    return rows.order_by(_sorted(rows, shape))


@cache
def around(
    dialect: DialectName, shape: ListShape, columns: tuple[sa.ColumnElement[Any], ...]
) -> sa.CompoundSelect[Any]:
    """The same, and as many ids of the rows before the cursor. Unordered."""
    here = onward(dialect, shape, columns).subquery("onward")
    there = _ids(dialect, replace(shape, descending=not shape.descending)).subquery("before")
    nothing = [sa.null().label(column.name) for column in columns if column is not _row.id]
    return sa.select(here).union_all(sa.select(there.c.id, *nothing))


def _ids(dialect: DialectName, shape: ListShape) -> sa.Select[Any]:
    """The ids of the rows from the cursor on, in order."""
    if shape.lead == "listed":
        return _listed(dialect, shape, [_row.id])
    runs = _values(dialect, shape.lead, every_day=shape.every_day).subquery("runs")
    key, value = _KEYS[shape.lead], runs.c.value
    # The account's rows that the filters select, except the leading one.
    rows = sa.select(_row.id).correlate(runs).where(_row.account_id == _account)
    if shape.lead == "updated":
        # Only a part of the first day matches. Hide it from the planner, which would misjudge all other days.
        rows = rows.where(_row.updated_at >= sa.select(_since).scalar_subquery())
    if others := [_matches(dialect, name) for name in shape.given if name != shape.lead]:
        # A CASE, which no index serves, and which the planner does not find so selective that it sorts the whole run.
        rows = rows.where(sa.case((sa.and_(*others), sa.true()), else_=sa.false()))
    found = of_each(dialect, runs, _in_order(dialect, shape, rows, key, value).limit(_max_rows))
    if dialect == "sqlite" or shape.lead not in {"arrival", "departure"}:
        return _first(found, shape)
    # Of many days, a few runs are read first: if they fill the page, no other day's run is read beyond its end.
    is_sample = runs.c.number % sa.literal_column("11") == ZERO
    sampled = _first(found.where(is_sample), shape).cte("downward_sample" if shape.descending else "upward_sample")
    last = sa.func.min(sampled.c.id) if shape.descending else sa.func.max(sampled.c.id)
    known = sa.select(sa.case((sa.func.count() == _max_rows, last))).select_from(sampled).scalar_subquery()
    # With an equality PostgreSQL stops at the last id, which it does not with bounds on the key (see `_in_order`). But for
    # equalities the planner may choose other indexes. Two redundant conditions make it estimate that this index finds the fewest
    # rows, independently of statistics: bounds next to the equality seem to select one row in two hundred; and the account next to
    # the last id hides that it and the cursor form a range, which would seem equally selective in any index.
    rest = rows.where(key == value, key >= value, key <= value, _from_cursor(shape))
    place = sa.tuple_(_row.id, _row.account_id)
    if shape.descending:
        rest = rest.where(place >= sa.tuple_(sa.func.coalesce(known, ZERO), _account))
    else:
        rest = rest.where(place <= sa.tuple_(sa.func.coalesce(known, sa.literal_column(str(2**63 - 1))), _account))
    unsampled = of_each(dialect, runs, rest.order_by(_sorted(rest, shape)).limit(_max_rows)).where(~is_sample)
    merged = sa.union_all(sa.select(sampled.c.id), unsampled).subquery("merged")
    return _first(sa.select(merged.c.id), shape)


def _listed(dialect: DialectName, shape: ListShape, columns: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    """The default list: one run of a partial index on its rows alone, so that others are not even skipped."""
    rows = sa.select(*columns).where(IS_LISTED)
    return _in_order(dialect, shape, rows, _row.account_id, _account).limit(_max_rows)


def _first(page: sa.Select[Any], shape: ListShape) -> sa.Select[Any]:
    return page.order_by(_sorted(page, shape)).limit(_max_rows)


def _in_order(
    dialect: DialectName,
    shape: ListShape,
    rows: sa.Select[Any],
    key: sa.ColumnElement[Any],
    value: sa.ColumnElement[Any],
) -> sa.Select[Any]:
    """The rows of `rows` whose `key` has this value, from the cursor on, in order: ascending including it, descending excluding it.

    On PostgreSQL the key is a bound on the order, not an equality, so that the planner can only use the key's index. Otherwise it
    may scan all accounts' rows by id, expecting to find a page of these soon. At the end the bound is on the key alone: PostgreSQL
    (15, for one) does not stop at a row-value bound."""
    if dialect == "sqlite":
        # SQLite uses no index for bounds on expressions; with equalities it uses the index that covers most of them.
        return rows.where(key == value, _from_cursor(shape)).order_by(_sorted(rows, shape))
    place, cursor = sa.tuple_(key, _row.id), sa.tuple_(value, _cursor)
    if shape.descending:
        return rows.where(place < cursor, key >= value).order_by(key.desc(), _row.id.desc())
    return rows.where(place >= cursor, key <= value).order_by(key, _row.id)


def _from_cursor(shape: ListShape) -> sa.ColumnElement[bool]:
    return _row.id < _cursor if shape.descending else _row.id >= _cursor


@cache  # one object for both sides of a cursor, so that it is executed once
def _values(dialect: DialectName, lead: Filter, *, every_day: bool) -> sa.Select[Any]:
    """The keys of the runs: the given statuses or property, or days, numbered from 0."""
    if lead in {"property", "status"}:
        return sa.select(batch_of(sa.column("value", sa.Text())).c.value)
    first, last = (sa.bindparam(f"{lead}_{end}", type_=sa.Date) for end in ("first", "last"))
    if dialect == "postgresql" and every_day:
        number = sa.func.generate_series(ZERO, last - first).column_valued("number")
        days = sa.select((first + number).label("value"), number).cte("days")
        return sa.select(days.c.value, days.c.number)
    # The days with any rows, each found by one index step.
    key = _KEYS[lead]
    among = sa.and_(_row.account_id == _account, key <= last)
    start = sa.select(key).where(among, key >= first).order_by(key).limit(ONE).scalar_subquery()
    found = sa.select(start.label("value"), ZERO.label("number")).cte("found", recursive=True)
    following = sa.select(key).where(among, key > found.c.value).order_by(key).limit(ONE)
    step = sa.select(following.correlate(found).scalar_subquery(), found.c.number + ONE).select_from(found)
    found = found.union_all(step.where(found.c.value.is_not(None)))
    return sa.select(found.c.value, found.c.number).where(found.c.value.is_not(None))


def _matches(dialect: DialectName, name: Filter) -> sa.ColumnElement[bool]:
    """The filter as a condition on a row of another filter's run."""
    match name:
        case "property":
            return _row.property_id == sa.bindparam("property")
        case "status":
            if dialect == "postgresql":  # one text, however many there are
                return _row.status == sa.any_(sa.bindparam("statuses", type_=sa.ARRAY(sa.Text)))
            return _row.status.in_(sa.bindparam("statuses", expanding=True))
        case "listed":
            return IS_LISTED
        case "updated":
            return _row.updated_at >= _since
        case "arrival" | "departure":
            first, last = (sa.bindparam(f"{name}_{end}", type_=sa.Date) for end in ("first", "last"))
            return _KEYS[name].between(first, last)


def _sorted(rows: sa.Select[Any], shape: ListShape) -> sa.ColumnElement[Any]:
    ids: sa.ColumnElement[Any] = rows.selected_columns.id
    return ids.desc() if shape.descending else ids.asc()

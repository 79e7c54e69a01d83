"""The statements that read a list page by page, filtered or not, ascending or descending by id.

An index on (account, key, id) holds the ids of one account and key in order: a run. A page is merged from the runs of the
leading filter: the first ids of each run from the cursor on, and then the first of all of these. That takes as many index steps
as there are runs (statuses, or days with any rows) times the size of a page, however many rows there are.

A scan without an end is expensive: PostgreSQL reads all entries on an index page from there on, some eighty rows. As there are many
days, their scans are given an end (`_ids_by_day`)."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from forwarder.store.batches import batch_of
from forwarder.store.lists.port import Filter, ListShape
from forwarder.store.sql import ONE, ZERO, DialectName, Moment, utc_day
from forwarder.store.tables import IS_LISTED, reservations

_row = reservations.c
_account = sa.bindparam("account_id", type_=_row.account_id.type)
_cursor = sa.bindparam("cursor", type_=_row.id.type)
_max_rows = sa.bindparam("max_rows", type_=sa.Integer)
_since = sa.bindparam("updated_since", type_=Moment())
_SAMPLED: Final[sa.ColumnElement[int]] = sa.literal_column("11")  # of so many days one
_LARGEST_ID: Final[sa.ColumnElement[int]] = sa.literal_column("9223372036854775807")
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
    upward = not shape.descending
    if shape.lead == "listed":
        return _listed(dialect, columns, upward=upward)
    ids = _ids(dialect, shape, upward=upward).subquery("page")
    rows = of_each(dialect, ids, with_id(sa.select(*columns), ids.c.id).correlate(ids))
    return rows.order_by(_sorted(rows, upward=upward))


@cache
def around(
    dialect: DialectName, shape: ListShape, columns: tuple[sa.ColumnElement[Any], ...]
) -> sa.CompoundSelect[Any]:
    """The same, and as many ids of the rows before the cursor. Unordered."""
    here = onward(dialect, shape, columns).subquery("onward")
    there = _ids(dialect, shape, upward=shape.descending).subquery("before")
    nothing = [sa.null().label(column.name) for column in columns if column is not _row.id]
    return sa.select(here).union_all(sa.select(there.c.id, *nothing))


def _ids(dialect: DialectName, shape: ListShape, *, upward: bool) -> sa.Select[Any]:
    """The ids of the rows from the cursor on, in order."""
    if shape.lead == "listed":
        return _listed(dialect, [_row.id], upward=upward)
    runs = _values(dialect, shape).subquery("runs")
    if dialect == "postgresql" and shape.lead in {"arrival", "departure"}:
        return _ids_by_day(shape, runs, upward=upward)
    return _first(of_each(dialect, runs, _run(dialect, shape, runs, upward=upward).limit(_max_rows)), upward=upward)


def _listed(dialect: DialectName, columns: Sequence[sa.ColumnElement[Any]], *, upward: bool) -> sa.Select[Any]:
    """The default list: one run of a partial index on these rows alone, so that submissions that ended without a reservation
    are not even skipped."""
    rows = sa.select(*columns).where(IS_LISTED)
    return _in_order(dialect, rows, _row.account_id, _account, upward=upward).limit(_max_rows)


def _ids_by_day(shape: ListShape, days: sa.FromClause, *, upward: bool) -> sa.Select[Any]:
    """Like `_ids`, merged from the runs of many days, on PostgreSQL. Reads the runs of a few days first: if they fill the page, it
    ends there at the latest, and no other day's run is read beyond that."""
    is_sample = days.c.number % _SAMPLED == ZERO
    run = _run("postgresql", shape, days, upward=upward).limit(_max_rows)
    sample = _first(of_each("postgresql", days, run).where(is_sample), upward=upward)
    sampled = sample.cte("upward_sample" if upward else "downward_sample")
    end = sa.func.max(sampled.c.id) if upward else sa.func.min(sampled.c.id)
    known = sa.select(sa.case((sa.func.count() == _max_rows, end))).select_from(sampled).scalar_subquery()
    rest = _run_up_to(known, shape, days, upward=upward).limit(_max_rows)
    others = of_each("postgresql", days, rest).where(~is_sample)
    merged = sa.union_all(sa.select(sampled.c.id), others).subquery("merged")
    return _first(sa.select(merged.c.id), upward=upward)


def _first(page: sa.Select[Any], *, upward: bool) -> sa.Select[Any]:
    return page.order_by(_sorted(page, upward=upward)).limit(_max_rows)


def _run(dialect: DialectName, shape: ListShape, runs: sa.FromClause, *, upward: bool) -> sa.Select[Any]:
    """The ids of one run that the other filters select, from the cursor on: ascending including it, descending excluding it."""
    return _in_order(dialect, _filtered(dialect, shape, runs), _KEYS[shape.lead], runs.c.value, upward=upward)


def _in_order(
    dialect: DialectName,
    rows: sa.Select[Any],
    key: sa.ColumnElement[Any],
    value: sa.ColumnElement[Any],
    *,
    upward: bool,
) -> sa.Select[Any]:
    """The rows of `rows` whose `key` has this value, from the cursor on, in order.

    On PostgreSQL the key is a bound on the order, not an equality, so that the planner can only use the key's index. Otherwise it
    may scan all accounts' rows by id, expecting to find a page of these soon. At the end the bound is on the key alone: PostgreSQL
    (15, for one) does not stop at a row-value bound."""
    if dialect == "sqlite":
        # SQLite uses no index for bounds on expressions; with equalities it uses the index that covers most of them.
        return rows.where(key == value, _from_cursor(upward=upward)).order_by(_sorted(rows, upward=upward))
    place, cursor = sa.tuple_(key, _row.id), sa.tuple_(value, _cursor)
    if upward:
        return rows.where(place >= cursor, key <= value).order_by(key, _row.id)
    return rows.where(place < cursor, key >= value).order_by(key.desc(), _row.id.desc())


def _run_up_to(end: sa.ColumnElement[int], shape: ListShape, runs: sa.FromClause, *, upward: bool) -> sa.Select[Any]:
    """Like `_run`, up to and including this id; the whole run if it is NULL.

    With an equality PostgreSQL stops at the last id, which it does not with bounds on the key (see `_in_order`). But for equalities
    the planner may choose other indexes. Two redundant conditions make it estimate that this index finds the fewest rows,
    independently of statistics: bounds next to the equality seem to select one row in two hundred; and the account next to the
    last id hides that it and the cursor form a range, which would seem equally selective in any index."""
    key, value, rows = _KEYS[shape.lead], runs.c.value, _filtered("postgresql", shape, runs)
    rows = rows.where(key == value, key >= value, key <= value, _from_cursor(upward=upward))
    place = sa.tuple_(_row.id, _row.account_id)
    if upward:
        rows = rows.where(place <= sa.tuple_(sa.func.coalesce(end, _LARGEST_ID), _account))
    else:
        rows = rows.where(place >= sa.tuple_(sa.func.coalesce(end, ZERO), _account))
    return rows.order_by(_sorted(rows, upward=upward))


def _from_cursor(*, upward: bool) -> sa.ColumnElement[bool]:
    return _row.id >= _cursor if upward else _row.id < _cursor


def _filtered(dialect: DialectName, shape: ListShape, runs: sa.FromClause) -> sa.Select[Any]:
    """The ids of the account's rows that the filters select, except the leading one."""
    lead = shape.lead
    others = [_matches(dialect, name) for name in shape.given if name != lead]
    rows = sa.select(_row.id).correlate(runs).where(_row.account_id == _account)
    if lead == "updated":
        # Only a part of the first day matches. Hide it from the planner, which would misjudge all other days.
        rows = rows.where(_row.updated_at >= sa.select(_since).scalar_subquery())
    if others:
        # A CASE, which no index serves, and which the planner does not find so selective that it sorts the whole run.
        rows = rows.where(sa.case((sa.and_(*others), sa.true()), else_=sa.false()))
    return rows


def with_id(rows: sa.Select[Any], wanted: sa.ColumnElement[int]) -> sa.Select[Any]:
    """The one of `rows` that has this id. By bounds on the order, which only the primary key serves: any index with the id
    serves an equality, and in an empty table they all look equally cheap."""
    return rows.where(_row.id >= wanted, _row.id <= wanted).order_by(_row.id).limit(ONE)


@cache  # one object for both sides of a cursor, so that it is executed once
def _values(dialect: DialectName, shape: ListShape) -> sa.Select[Any]:
    """The keys of the runs: the given statuses or property, or days, numbered from 0."""
    if shape.lead in {"property", "status"}:
        return sa.select(batch_of(sa.column("value", sa.Text())).c.value)
    lead = shape.lead
    first, last = (sa.bindparam(f"{lead}_{end}", type_=sa.Date) for end in ("first", "last"))
    if dialect == "postgresql" and shape.every_day:
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


def of_each(dialect: DialectName, outer: sa.FromClause, rows: sa.Select[Any]) -> sa.Select[Any]:
    """The rows that `rows`, a limited query correlated to `outer`, selects for each row of `outer`."""
    if dialect == "postgresql":
        inner = rows.lateral("inner")
        return sa.select(*inner.c).select_from(outer.join(inner, sa.true()))
    # SQLite has no LATERAL, but evaluates such a list of ids for each row of `outer`.
    ids = rows.with_only_columns(_row.id)
    return sa.select(*rows.selected_columns).select_from(outer.join(reservations, _row.id.in_(ids)))


def _sorted(rows: sa.Select[Any], *, upward: bool) -> sa.ColumnElement[Any]:
    ids: sa.ColumnElement[Any] = rows.selected_columns.id
    return ids.asc() if upward else ids.desc()

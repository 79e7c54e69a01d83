"""The statements that read a list page by page, filtered or not, in either order of ids. No I/O.

An index on (account, key, id) holds the ids of one account and key in their order: a run. A page is merged from the runs of the
filter that leads: the first few of each from the cursor on, and of these the first few. It takes as many steps through the index as
there are runs (statuses, or days on which there is anything), times the size of a page, however many rows there are.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, cast

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    CompoundSelect,
    Date,
    FromClause,
    Integer,
    Select,
    Text,
    and_,
    any_,
    bindparam,
    case,
    column,
    false,
    literal_column,
    null,
    select,
    true,
    tuple_,
)

from forwarder.store.batch import batch_of
from forwarder.store.database import Dialect
from forwarder.store.listing import Filter, Shape
from forwarder.store.picking import of_each
from forwarder.store.tables import Moment, reservations, utc_day

_row = reservations.c
_account = bindparam("account_id", type_=_row.account_id.type)
_cursor = bindparam("cursor", type_=_row.id.type)
_at_most = bindparam("at_most", type_=Integer)
_since = bindparam("updated_since", type_=Moment())
_ONE: Final[ColumnElement[int]] = literal_column("1")
_KEYS: Final[dict[Filter, ColumnElement[Any]]] = {
    "property": _row.property_id,
    "status": _row.status,
    "arrival": _row.arrival_date,
    "departure": _row.departure_date,
    "updated": utc_day(_row.updated_at),
}


@cache
def onward(dialect: Dialect, shape: Shape, columns: tuple[ColumnElement[Any], ...]) -> Select[Any]:
    """These columns, the id among them, of the rows from the cursor on, in the list's order."""
    return _rows(dialect, shape, columns, upward=not shape.descending)


@cache
def around(dialect: Dialect, shape: Shape, columns: tuple[ColumnElement[Any], ...]) -> CompoundSelect[Any]:
    """What `onward` has and, of the rows before the cursor, as many ids: nothing else of these. In no order."""
    here = onward(dialect, shape, columns).subquery("onward")
    there = _ids(dialect, shape, upward=shape.descending).subquery("before")
    nothing = [null().label(column.name) for column in columns if column is not _row.id]
    return select(here).union_all(select(there.c.id, *nothing))


def _rows(dialect: Dialect, shape: Shape, columns: Sequence[ColumnElement[Any]], *, upward: bool) -> Select[Any]:
    if shape.lead is None:
        return _range(select(*columns), _row.account_id, _account, upward=upward).limit(_at_most)
    ids = _ids(dialect, shape, upward=upward).subquery("page")
    rows = of_each(dialect, ids, with_id(select(*columns), ids.c.id).correlate(ids))
    return rows.order_by(_sorted(rows, upward=upward))


def _ids(dialect: Dialect, shape: Shape, *, upward: bool) -> Select[Any]:
    """The ids of the rows from the cursor on, in order."""
    if shape.lead is None:
        return _range(select(_row.id), _row.account_id, _account, upward=upward).limit(_at_most)
    runs = _values(shape.lead).subquery("runs")
    page = of_each(dialect, runs, _run(dialect, shape, runs, upward=upward).limit(_at_most))
    return page.order_by(_sorted(page, upward=upward)).limit(_at_most)


def _run(dialect: Dialect, shape: Shape, runs: FromClause, *, upward: bool) -> Select[Any]:
    """The ids of one run that the other filters let through, from the cursor on: upwards with it, downwards without."""
    lead = cast("Filter", shape.lead)
    key, value, others = _KEYS[lead], runs.c.value, [_matches(dialect, name) for name in shape.given if name != lead]
    rows = select(_row.id).correlate(runs).where(_row.account_id == _account)
    if lead == "updated":
        # Of the first day only a part. The planner is not to know how large a part: it would be wrong about all the other days.
        rows = rows.where(_row.updated_at >= select(_since).scalar_subquery())
    if others:
        # As a CASE no index serves them, and no planner thinks that they let so little through that it sorted the whole run.
        rows = rows.where(case((and_(*others), true()), else_=false()))
    if dialect == "postgresql":
        return _range(rows, key, value, upward=upward)
    # SQLite knows no bounds over expressions; it takes the index that most of the equalities are in.
    from_cursor = _row.id >= _cursor if upward else _row.id < _cursor
    return rows.where(key == value, from_cursor).order_by(_sorted(rows, upward=upward))


def _range(rows: Select[Any], key: ColumnElement[Any], value: ColumnElement[Any], *, upward: bool) -> Select[Any]:
    """Those of `rows` whose `key` has this value, from the cursor on, in order.

    The key is a bound of the order, not an equality, which leaves a planner nothing but the index that it is part of. Else it may
    go through everybody's rows by id, in the hope of meeting a page's worth of these soon. And where it ends, the bound is of the
    key alone: at that of a whole row PostgreSQL (15, for one) does not stop.
    """
    place, cursor = tuple_(key, _row.id), tuple_(value, _cursor)
    if upward:
        return rows.where(place >= cursor, key <= value).order_by(key, _row.id)
    return rows.where(place < cursor, key >= value).order_by(key.desc(), _row.id.desc())


def with_id(rows: Select[Any], wanted: ColumnElement[int]) -> Select[Any]:
    """The one of `rows` that has this id. As bounds of the order, which the primary key alone has: an equality any index serves
    that has the id in it, and in an empty table none looks dearer than another."""
    return rows.where(_row.id >= wanted, _row.id <= wanted).order_by(_row.id).limit(_ONE)


@cache  # one and the same for both sides of a cursor: it is carried out once
def _values(lead: Filter) -> Select[Any]:
    """The keys of the runs: the statuses or the property that were named, or the days on which there is anything, each found by one
    step through the index."""
    if lead in {"property", "status"}:
        return select(batch_of(column("value", Text())).c.value)
    key = _KEYS[lead]
    first, last = (bindparam(f"{lead}_{end}", type_=Date) for end in ("first", "last"))
    among = and_(_row.account_id == _account, key <= last)
    start = select(key).where(among, key >= first).order_by(key).limit(_ONE).scalar_subquery()
    found = select(start.label("value")).cte("found", recursive=True)
    following = (
        select(key).where(among, key > found.c.value).order_by(key).limit(_ONE).correlate(found).scalar_subquery()
    )
    found = found.union_all(select(following).select_from(found).where(found.c.value.is_not(None)))
    return select(found.c.value).where(found.c.value.is_not(None))


def _matches(dialect: Dialect, name: Filter) -> ColumnElement[bool]:
    """The filter, as a condition on a row of another one's run."""
    match name:
        case "property":
            return _row.property_id == bindparam("property")
        case "status":
            if dialect == "postgresql":  # one text, however many there are
                return _row.status == any_(bindparam("statuses", type_=ARRAY(Text)))
            return _row.status.in_(bindparam("statuses", expanding=True))
        case "updated":
            return _row.updated_at >= _since
        case "arrival" | "departure":
            first, last = (bindparam(f"{name}_{end}", type_=Date) for end in ("first", "last"))
            return _KEYS[name].between(first, last)


def _sorted(rows: Select[Any], *, upward: bool) -> ColumnElement[Any]:
    ids: ColumnElement[Any] = rows.selected_columns.id
    return ids.asc() if upward else ids.desc()

"""Callers' reads in SQL: submissions and pages of one integration account.

An index on (account, key, id) holds the ids of one account and key in order: a run. A page is merged from the runs of the
leading filter: the first ids of each run from the cursor on, and then the first of all of these. That takes as many index steps
as there are runs (statuses, or days with any rows) times the size of a page, however many rows there are.

A scan without an end is expensive: PostgreSQL reads all entries on an index page from there on, some eighty rows. As there are many
days, their scans are given an end (in `_ids`)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import from_json, to_json
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import iso
from forwarder.reservation.evidence import read_evidence
from forwarder.reservation.outcome import Cancellation, Status, cancellation_status
from forwarder.reservation.record import SubmissionState, compose_record
from forwarder.reservation.submission import MAX_SIMILAR
from forwarder.store.batches import BATCH, batch_of, key_batch, of_each, same_key
from forwarder.store.database import Database, Lookup
from forwarder.store.lists.port import (
    DEFAULT_FILTERS,
    FIRST,
    MAX_PAGE_BYTES,
    Filter,
    Filters,
    ListShape,
    Order,
    Page,
    SimilarSubmission,
    StoredSubmission,
    fitting,
    neighbours,
    shape_of,
    sides,
)
from forwarder.store.sql import ONE, ZERO, DialectName, Moment, columns_of, octets, utc_day
from forwarder.store.submissions.duplicates import fingerprint_of, original_of
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.rows import attempts_of
from forwarder.store.tables import IS_LISTED, POSSIBLE_STATUSES, reservations

_row = reservations.c
_account = sa.bindparam("account_id", type_=_row.account_id.type)
_SHOWN: Final = "record_id request_id status created_at updated_at cancelled_at pms_reservation_id problem"
_LARGEST_SIZE: Final = 2**31 - 1
_size: sa.ColumnElement[int] = sa.func.coalesce(octets(_row.record), octets(_row.request))


def _unless_recorded(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """Read only without a stored record, which contains them all."""
    return sa.case((_row.record.is_(None), column)).label(column.name)


def _unless_large(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """The value for rows of at most `whole_up_to` bytes, so that a larger value is not even read."""
    return sa.case((_size <= sa.bindparam("whole_up_to", type_=sa.Integer), column)).label(column.name)


LISTED: Final = (
    _row.id,
    _unless_large(_row.record),
    _unless_large(_unless_recorded(_row.request)),
    *map(_unless_recorded, columns_of(reservations, _SHOWN)),
    _size.label("size"),
)
"""The columns of a record in a list: first the id and the record, last its size."""

_STATE: Final = "accepted_at attempts property_id revision cancel_requested_at cancel_reason cancel_problem partition"
_ABOUT: Final = (_row.id, *columns_of(reservations, f"{_SHOWN} {_STATE} similar_to conflicting_at evidence"))

# A CASE, which no index serves: in an empty table an account's index looks as cheap as the intended one, and plans are cached.
_OF_ACCOUNT = sa.case((_row.account_id == _account, sa.true()), else_=sa.false())


def _by_request_ids() -> sa.Select[Any]:
    """Finds a batch of submissions, each by its own request id, or by that of a duplicate, which has its own fingerprint."""
    named = batch_of(_row.request_id).c.request_id
    asked = sa.select(
        named.label("asked_as"), original_of(named).label("original"), fingerprint_of(named).label("fingerprint")
    ).subquery("asked")
    fingerprint = sa.func.coalesce(asked.c.fingerprint, _row.fingerprint).label("fingerprint")
    found = asked.join(reservations, same_key(_row.request_id, asked.c.original))
    large = (_unless_large(_row.record), _unless_large(_unless_recorded(_row.request)))
    return sa.select(asked.c.asked_as, *_ABOUT, *large, fingerprint).select_from(found).where(_OF_ACCOUNT)


_BY_REQUEST_IDS: Final = _by_request_ids()
SUBMISSION: Final = (*_ABOUT, _row.record, _unless_recorded(_row.request), _row.fingerprint)
_id = sa.bindparam("id", type_=_row.record_id.type)
_BY_ID: Final = sa.select(*SUBMISSION).where(_OF_ACCOUNT, _row.record_id == _id)


class Reader:
    """Reads one integration account at a time. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self._by_request_ids = self._database.lookup(_BY_REQUEST_IDS)
        self._by_id = self._database.lookup(_BY_ID)
        of_the_stay = _row.stay_key == sa.bindparam("stay_key", type_=_row.stay_key.type)
        indexed = (_row.stay_key.is_not(None), _row.status.in_(POSSIBLE_STATUSES))  # literally the index's condition
        compared = "request_id status accepted_at cancel_requested_at cancel_problem request same_key"
        similar = sa.select(*columns_of(reservations, compared)).where(_OF_ACCOUNT, of_the_stay, *indexed)
        self._similar = self._database.lookup(similar.limit(sa.literal_column(str(MAX_SIMILAR))))
        self._probe = self._database.lookup(sa.select(ONE).select_from(reservations).limit(ONE))
        self._pages: dict[tuple[ListShape, bool], Lookup] = {}

    async def submission(self, account_id: str, request_id: str) -> StoredSubmission | None:
        """The submission with that request id; or the original of a duplicate, with the duplicate's own fingerprint."""
        return (await self.submissions(account_id, [request_id])).get(request_id)

    async def submissions(self, account_id: str, request_ids: Collection[str]) -> Mapping[str, StoredSubmission]:
        """Those that are known, as `submission` returns them, in one read. Records larger than their share of a MiB are empty."""
        whole_up_to = MAX_PAGE_BYTES // len(request_ids) if len(request_ids) > 1 else _LARGEST_SIZE
        named = {"account_id": account_id, "whole_up_to": whole_up_to, BATCH: key_batch("request_id", request_ids)}
        return {row.asked_as: _stored(row) for row in await self._by_request_ids(named)}

    async def similar(self, account_id: str, stay_key: str) -> Sequence[SimilarSubmission]:
        """Some of the account's submissions for that stay and guest (`NaturalKey.stay`) that have or may have a reservation."""
        return [
            SimilarSubmission(
                row.request_id,
                Status(row.status),
                row.accepted_at,
                row.request.encode(),
                row.same_key,
                row.cancel_requested_at,
                cancellation_failed=row.cancel_problem is not None,
            )
            for row in await self._similar({"account_id": account_id, "stay_key": stay_key})
        ]

    async def reservation(self, account_id: str, reservation_id: int) -> StoredSubmission | None:
        rows = await self._by_id({"account_id": account_id, "id": reservation_id})
        return _stored(rows[0]) if rows else None

    async def page(
        self, account_id: str, *, cursor: int, limit: int, filters: Filters = DEFAULT_FILTERS, order: Order = "asc"
    ) -> Page:
        """The page of `limit` records that starts at `cursor` (1 for the first page), among those that `filters` select. It ends
        early, with `next` set, before it would exceed a MiB; the first record is always on it. Following `next` shows each record
        that matched from the first page to the last exactly once, even if records are added or changed meanwhile. A record that
        starts to match behind the reader is not shown, because its status changes."""
        # Rows that may make the page too large come without their large values. Few pages have any: these are read again, and
        # no more of them than fit, with the next one, as others may no longer match.
        shape, whole_up_to, is_first = shape_of(filters, order), MAX_PAGE_BYTES // limit, cursor == FIRST
        asked = {"account_id": account_id, "max_rows": limit + 1, "whole_up_to": whole_up_to}
        parameters = {**parameters_of(filters, shape, cursor), **asked}
        read = self._pages.get((shape, is_first))
        if read is None:
            statement = page_statement(self._database.dialect, shape, is_first=is_first)
            read = self._pages[shape, is_first] = self._database.lookup(statement)
        found = {row[0]: row for row in await read(parameters)}  # by id
        before, onward = sides(found, parameters["cursor"], descending=shape.descending)
        wanted = onward[:limit]
        if any(found[each].size > whole_up_to for each in wanted):
            count = fitting(found[each].size for each in wanted)
            large = {**parameters, "max_rows": count + 1, "whole_up_to": _LARGEST_SIZE}
            found = {row[0]: row for row in await read(large)}
            _, onward = sides(found, parameters["cursor"], descending=shape.descending)
            wanted = onward[:count]
        records = [found[each][1] or _record(found[each]) for each in wanted]
        shown = fitting(len(each) if each.isascii() else len(each.encode()) for each in records)
        others = neighbours(before, onward, limit, shown=shown, descending=shape.descending)
        return Page(records[:shown], cursor, *others)

    async def ready(self) -> bool:
        """Whether a read would probably succeed now. Never raises."""
        try:
            await self._probe({})
        except StoreUnavailable:
            return False
        return True


def parameters_of(filters: Filters, shape: ListShape, cursor: int) -> dict[str, Any]:
    """The parameters of a list's statements, except its account and size."""
    since, statuses = filters.updated_since, sorted(filters.statuses)
    keys = [filters.property_id] if shape.lead == "property" else statuses if shape.lead == "status" else []
    return {
        "whole_up_to": _LARGEST_SIZE,
        # Above every id: descending, the first page has the ids below that.
        "cursor": 2**63 - 1 if shape.descending and cursor == FIRST else cursor,
        "property": filters.property_id,
        "statuses": statuses,
        "arrival_first": filters.arrival.first or date.min,
        "arrival_last": filters.arrival.last or date.max,
        "departure_first": filters.departure.first or date.min,
        "departure_last": filters.departure.last or date.max,
        "updated_since": since,
        "updated_first": since and since.astimezone(UTC).date(),
        "updated_last": date.max,
        BATCH: key_batch("value", keys) if keys else "[]",
    }


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


def page_statement(dialect: DialectName, shape: ListShape, *, is_first: bool) -> sa.Executable:
    """The statement that reads a page and the ids before it; the first page has none before it."""
    return (onward if is_first else around)(dialect, shape, LISTED)


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


def _stored(row: sa.Row[Any]) -> StoredSubmission:
    cancellation = None
    if row.cancel_requested_at is not None:
        problem = row.cancel_problem and from_json(row.cancel_problem)
        status = cancellation_status(Status(row.status), problem)
        cancellation = Cancellation(status, iso(row.cancel_requested_at), row.cancel_reason, problem)
    return StoredSubmission(
        id=row.record_id,
        request_id=row.request_id,
        status=Status(row.status),
        accepted_at=iso(row.accepted_at),
        updated_at=iso(row.updated_at),
        fingerprint=row.fingerprint,
        record=_record(row),
        attempts=attempts_of(row.attempts),
        problem=None if row.problem is None else from_json(row.problem),
        property_id=row.property_id,
        revision=row.revision,
        cancellation=cancellation,
        partition=row.partition,
        similar_to=tuple(from_json(row.similar_to or "[]")),
        conflicting_at=row.conflicting_at and iso(row.conflicting_at),
        evidence=read_evidence(row.evidence or ""),
    )


def _record(row: sa.Row[Any]) -> str:
    """The record stored with the outcome; for a submission without an outcome, a record of the present state."""
    text: str | None = row.record
    if text is not None:
        return text
    if row.request is None:  # too large for where it is shown
        return ""
    standing = SubmissionState(
        id=row.record_id,
        request_id=row.request_id,
        status=Status(row.status),
        created_at=iso(row.created_at),
        updated_at=iso(row.updated_at),
        cancelled_at="" if row.cancelled_at is None else iso(row.cancelled_at),
        pms_reservation_id=row.pms_reservation_id,
        problem=None if row.problem is None else from_json(row.problem),
    )
    return to_json(compose_record(from_json(row.request), standing)).decode()

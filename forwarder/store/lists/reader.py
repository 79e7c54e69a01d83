"""Callers' reads in SQL: submissions and pages of one integration account."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import from_json, to_json
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import iso
from forwarder.reservation.evidence import read_evidence
from forwarder.reservation.outcome import Cancellation, Status, cancellation_status
from forwarder.reservation.record import SubmissionState, compose_record
from forwarder.reservation.submission import MAX_SIMILAR
from forwarder.store.batches import BATCH, batch_of, key_batch, same_key
from forwarder.store.database import Database, Lookup
from forwarder.store.lists import statements
from forwarder.store.lists.port import (
    DEFAULT_FILTERS,
    FIRST,
    MAX_PAGE_BYTES,
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
from forwarder.store.sql import ONE, DialectName, columns_of, octets
from forwarder.store.submissions.duplicates import fingerprint_of, original_of
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.rows import attempts_of
from forwarder.store.tables import POSSIBLE_STATUSES, reservations

_row = reservations.c
_account = sa.bindparam("account_id", type_=_row.account_id.type)
_SHOWN: Final = "record_id request_id status created_at updated_at cancelled_at pms_reservation_id problem"
_LARGEST_SIZE: Final = 2**31 - 1
_whole_up_to = sa.bindparam("whole_up_to", type_=sa.Integer)
_size: sa.ColumnElement[int] = sa.func.coalesce(octets(_row.record), octets(_row.request))


def _unless_recorded(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """Read only without a stored record, which contains them all."""
    return sa.case((_row.record.is_(None), column)).label(column.name)


def _unless_large(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """The value for rows of at most `whole_up_to` bytes, so that a larger value is not even read."""
    return sa.case((_size <= _whole_up_to, column)).label(column.name)


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


def page_statement(dialect: DialectName, shape: ListShape, *, is_first: bool) -> sa.Executable:
    """The statement that reads a page and the ids before it; the first page has none before it."""
    return statements.onward(dialect, shape, LISTED) if is_first else statements.around(dialect, shape, LISTED)


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

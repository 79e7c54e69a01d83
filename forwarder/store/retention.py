"""Removes guests' data: anonymizes finished submissions, erases one guest, and purges rows that were finished long ago.

Each short transaction reads and locks rows, skipping those that others have locked. A confirmed row that is purged stays among the
duplicates, as a duplicate of itself: if its message is delivered again, or its key used again, it is not booked again."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import StrEnum
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import from_json, to_json
from sqlalchemy.ext.asyncio import AsyncConnection

from forwarder.reservation.evidence import read_evidence
from forwarder.reservation.outcome import Status
from forwarder.reservation.record import anonymous_data, anonymous_problem, anonymous_record, anonymous_request
from forwarder.store.batches import BATCH, as_batch, batch_of, in_batch, key_among, key_batch, same_key
from forwarder.store.database import OnDatabase
from forwarder.store.delivery_queue import about, endpoints
from forwarder.store.sql import Moment, columns_of, insert_into
from forwarder.store.submissions.duplicates import originals_of_batch
from forwarder.store.submissions.recorder import unpublished_of
from forwarder.store.tables import (
    CONFIRMED,
    FINISHED_DAY,
    IS_IDENTIFIABLE,
    duplicates,
    parked_cancellations,
    purges,
    reservations,
    webhook_deliveries,
)

_row = reservations.c
_delivery = webhook_deliveries.c
_parked = parked_cancellations.c
_limit = sa.bindparam("limit", type_=sa.Integer)
_GUESTS: Final = "request record problem attempts evidence cancel_problem"
_REWRITTEN: Final = columns_of(reservations, f"id {_GUESTS}")
_GUEST: Final = (
    *_REWRITTEN,
    *columns_of(reservations, "request_id workspace_id account_id status due_at leased_by anonymized_at cancel_reason"),
)
_OPEN = (Status.PENDING.value, Status.IN_DOUBT.value)

UNSORTED: Final = ("SET LOCAL enable_sort = off", "SET LOCAL enable_incremental_sort = off")
"""Otherwise PostgreSQL may read and sort all deliveries of an endpoint for the first few, if the table was never analyzed."""


class ErasureState(StrEnum):
    """Whether a submission's guest can be erased now: not if unfinished work, or a result event to be published, needs the data."""

    ERASABLE = "erasable"
    ERASED = "erased"
    UNFINISHED = "unfinished"
    UNPUBLISHED = "unpublished"


@dataclass(frozen=True, slots=True)
class GuestRecord:
    """A submission with a guest's data, in `request`, `record` and `others`: what callers and the PMS said besides."""

    id: int
    request_id: str
    workspace_id: str
    account_id: str
    status: Status
    standing: ErasureState
    request: dict[str, Any]
    record: dict[str, Any]
    others: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ParkedReason:
    """The caller's reason for cancelling a submission that was not ingested yet, or will never be."""

    request_id: str
    account_id: str
    reason: str


class GuestStore(OnDatabase):
    """Guests' data. Raises `StoreUnavailable`. A sweep's call is one short transaction, and skips rows that others have locked."""

    async def anonymize_finished(
        self, workspace_id: str, status: Status, *, until: date, now: datetime, limit: int
    ) -> int:
        """Anonymizes up to `limit` submissions of this status that finished on that day or before, oldest first; how many."""
        asked = {"workspace": workspace_id, "status": status.value, "until": until, "limit": limit}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(finished(), asked)).all()
            return len(await self._anonymize(connection, rows, now))

    async def forget_parked_reasons(self, account_ids: Collection[str], *, before: datetime, limit: int) -> int:
        """Erases up to `limit` reasons of cancellations that were requested before then, and never found their submissions."""
        old = (in_batch(_parked.account_id), _parked.requested_at < before, _parked.reason.is_not(None))
        named = sa.select(_parked.request_id).where(*old).limit(limit)
        return len(await self._forget_reasons(named, key_batch("account_id", account_ids)))

    async def endpoints_with_deliveries(self) -> Sequence[str]:
        """The ids of all endpoints that have deliveries, including removed endpoints."""
        return [row.value for row in await self._database.read(endpoints())]

    async def delete_deliveries(
        self, endpoint_id: str, *, ended_before: datetime, after: int, limit: int
    ) -> tuple[int | None, int]:
        """Deletes those of the next `limit` deliveries of the endpoint, with ids above `after`, that ended before then. Keeps
        pending ones. Returns the id of the last one read, None if no later one can have ended before; and how many were deleted."""
        async with self._database.transaction() as connection:
            if self._database.dialect == "postgresql":
                for setting in UNSORTED:
                    await connection.execute(sa.text(setting))
            asked = {"endpoint": endpoint_id, "after": after, "limit": limit}
            rows = (await connection.execute(next_deliveries(), asked)).all()
            # Ids are in about the order in which deliveries were queued.
            if not rows or rows[0].created_at >= ended_before:
                return None, 0
            old = [row.id for row in rows if row.ended_at is not None and row.ended_at < ended_before]
            ended = {"before": ended_before, BATCH: key_batch("id", old)}
            return rows[-1].id, len((await connection.execute(delete_ended(), ended)).all()) if old else 0

    async def submissions(self, request_ids: Collection[str]) -> Sequence[GuestRecord]:
        """The submissions with these request ids, or of which these are duplicates."""
        if not request_ids:
            return ()
        found = originals_of_batch(_GUEST).order_by(_row.id)
        return await self._records(await self._database.read(found, {BATCH: key_batch("request_id", request_ids)}))

    async def page(
        self, *, after: int, limit: int, workspace_id: str | None
    ) -> tuple[Sequence[GuestRecord], int | None]:
        """The submissions with a guest's data among the next `limit` ids above `after`; and the last id read, if any."""
        ids = sa.select(_row.id).where(_row.id > after).order_by(_row.id).limit(limit).subquery("ids")
        last: int | None = await self._database.scalar(sa.select(sa.func.max(ids.c.id)))
        if last is None:
            return (), None
        known = (_row.id > after, _row.id <= last, _row.anonymized_at.is_(None), *_in_workspace(workspace_id))
        return await self._records(await self._database.read(sa.select(*_GUEST).where(*known).order_by(_row.id))), last

    async def last_id(self) -> int:
        """The highest id of a submission; 0 if there is none."""
        return await self._database.scalar(sa.select(sa.func.max(_row.id))) or 0

    async def deliveries(self, request_id: str) -> int:
        return len(await self._database.read(about(request_id, _delivery.id)))

    async def erase(self, records: Collection[GuestRecord], *, now: datetime) -> Sequence[str]:
        """Erases the guest's data of those that can be erased, and of the webhook deliveries about them, in one transaction.
        Returns their request ids. Of those erased before, erases deliveries that were queued since."""
        ids = [each.id for each in records if each.standing is ErasureState.ERASABLE]
        async with self._database.transaction() as connection:
            locked: sa.Executable = sa.select(*_REWRITTEN).where(in_batch(_row.id), IS_IDENTIFIABLE).with_for_update()
            rows = (await connection.execute(locked, {BATCH: key_batch("id", ids)})).all()
            erased = await self._anonymize(connection, rows, now)
            for each in records:
                if each.id not in erased and each.standing is not ErasureState.ERASED:
                    continue
                theirs = about(each.request_id, _delivery.id, _delivery.body, _delivery.attempts).with_for_update()
                rewritten = []
                for row in await connection.execute(theirs):
                    event, attempts = from_json(row.body), _without_details(row.attempts)
                    data = event.get("data")
                    if isinstance(data, Mapping) and isinstance(data.get("reservation"), Mapping):
                        event = {**event, "data": anonymous_data(data)}
                    rewritten.append({"id": row.id, "body": _json(event), "attempts": attempts})
                if rewritten:
                    batch = batch_of(_delivery.id, _delivery.body, _delivery.attempts)
                    values = {"body": batch.c.body, "attempts": batch.c.attempts, "trace": sa.null()}
                    changed = sa.update(webhook_deliveries).where(same_key(_delivery.id, batch.c.id)).values(values)
                    await connection.execute(changed, {BATCH: as_batch(rewritten)})
        return [each.request_id for each in records if each.id in erased]

    async def parked_reasons(self) -> Sequence[ParkedReason]:
        found = sa.select(_parked.request_id, _parked.account_id, _parked.reason).where(_parked.reason.is_not(None))
        return [ParkedReason(*tuple(row)) for row in await self._database.read(found.order_by(_parked.request_id))]

    async def erase_parked_reasons(self, request_ids: Collection[str]) -> Sequence[str]:
        """Erases the reasons of these submissions' cancellations, which stay in force. Returns their request ids."""
        named = sa.select(batch_of(_parked.request_id).c.request_id)
        return await self._forget_reasons(named, key_batch("request_id", request_ids))

    async def _forget_reasons(self, named: sa.Select[Any], batch: str) -> Sequence[str]:
        them = (key_among(_parked.request_id, named), _parked.reason.is_not(None))
        removed = sa.update(parked_cancellations).where(*them).values(reason=sa.null(), trace=sa.null())
        rows = await self._database.run(removed.returning(_parked.request_id), {BATCH: batch})
        return [row.request_id for row in rows]

    async def _anonymize(self, connection: AsyncConnection, rows: Sequence[sa.Row[Any]], now: datetime) -> set[int]:
        """The ids of the anonymized ones among the locked `rows`; not those whose events are still to be published."""
        waiting = await unpublished_of(connection.execute, [row.id for row in rows])
        rewritten = [
            {
                "id": row.id,
                "request": _json(anonymous_request(from_json(row.request))),
                "record": None if row.record is None else _json(anonymous_record(from_json(row.record))),
                "problem": row.problem and _json(anonymous_problem(from_json(row.problem))),
                "attempts": _without_details(row.attempts),
                "evidence": row.evidence and read_evidence(row.evidence).anonymous.text,
                "cancel_problem": row.cancel_problem and _json(anonymous_problem(from_json(row.cancel_problem))),
            }
            for row in rows
            if row.id not in waiting
        ]
        if rewritten:
            batch = batch_of(*_REWRITTEN)
            # A caller may write anything into its tracestate.
            values = {"anonymized_at": now, "cancel_reason": sa.null(), "trace": sa.null()}
            values |= {name: batch.c[name] for name in _GUESTS.split()}
            changed = sa.update(reservations).where(same_key(_row.id, batch.c.id)).values(values)
            await connection.execute(changed, {BATCH: as_batch(rewritten)})
        return {row["id"] for row in rewritten}

    async def _records(self, rows: Sequence[sa.Row[Any]]) -> Sequence[GuestRecord]:
        waiting = await unpublished_of(self._database.read, [row.id for row in rows])
        records = list[GuestRecord]()
        for row in rows:
            standing = ErasureState.UNPUBLISHED if row.id in waiting else ErasureState.ERASABLE
            if row.anonymized_at is not None:
                standing = ErasureState.ERASED
            elif row.status in _OPEN or row.due_at is not None or row.leased_by is not None:
                standing = ErasureState.UNFINISHED
            said = map(from_json, filter(None, (row.problem, row.attempts, row.cancel_problem)))
            pushes = (line.problem for line in read_evidence(row.evidence or "").pushes)
            named, status = (row.id, row.request_id, row.workspace_id, row.account_id), Status(row.status)
            request, record = from_json(row.request), from_json(row.record or "{}")
            records.append(GuestRecord(*named, status, standing, request, record, (row.cancel_reason, *said, *pushes)))
        return records


@cache
def finished() -> sa.Executable:
    until = sa.bindparam("until", type_=sa.Date)
    wanted = (_row.workspace_id == sa.bindparam("workspace"), _row.status == sa.bindparam("status"))
    found = sa.select(*_REWRITTEN).where(*wanted, until >= FINISHED_DAY, IS_IDENTIFIABLE)
    oldest = found.order_by(_row.workspace_id, _row.status, FINISHED_DAY, _row.id)
    return oldest.limit(_limit).with_for_update(skip_locked=True)


@cache
def next_deliveries() -> sa.Executable:
    endpoint: sa.BindParameter[str] = sa.bindparam("endpoint")
    # Bounds on the order: with an equality the planner could walk all endpoints' deliveries by id.
    place, after = sa.tuple_(_delivery.endpoint_id, _delivery.id), sa.bindparam("after", type_=sa.BigInteger)
    some = sa.select(_delivery.id, _delivery.created_at, _delivery.ended_at)
    some = some.where(place > sa.tuple_(endpoint, after), _delivery.endpoint_id <= endpoint)
    return some.order_by(_delivery.endpoint_id, _delivery.id).limit(_limit)


@cache
def delete_ended() -> sa.Executable:
    """Deletes a batch of deliveries, but not those that are put back meanwhile."""
    ended = _delivery.ended_at < sa.bindparam("before", type_=Moment())
    return sa.delete(webhook_deliveries).where(in_batch(_delivery.id), ended).returning(_delivery.id)


def _without_details(attempts: str) -> str:
    """The attempts without their details: a PMS, or a customer's endpoint, may echo the request."""
    return _json([{**attempt, "detail": None} for attempt in from_json(attempts)])


def _json(value: Any) -> str:
    return to_json(value, inf_nan_mode="null").decode()


class Purger(OnDatabase):
    """Deletes submissions that finished before a day (see `FINISHED_DAY`), of one workspace or all. Raises `StoreUnavailable`."""

    async def count(self, before: date, workspace_id: str | None) -> int:
        found = sa.select(sa.func.count()).select_from(reservations).where(*_finished(before, workspace_id))
        return int(await self._database.scalar(found))

    async def delete_some(
        self, before: date, workspace_id: str | None, *, after: int, limit: int
    ) -> tuple[int | None, int]:
        """Deletes the finished ones among the next `limit` rows above `after`. Returns the last id read, if any, and how many."""
        # Ids follow the order of ingestion: once a row is too recent, all later ones are.
        following = sa.select(_row.id, _row.created_at).where(_row.id > after).order_by(_row.id).limit(limit)
        span = following.subquery("span")
        early = sa.select(sa.func.max(span.c.id)).where(span.c.created_at < _begin(before))
        last: int | None = await self._database.scalar(early)
        if last is None:
            return None, 0
        async with self._database.transaction() as connection:
            walked = sa.select(_row.id).where(_row.id > after, _row.id <= last, *_finished(before, workspace_id))
            ids = (await connection.scalars(walked.order_by(_row.id).with_for_update(skip_locked=True))).all()
            gone = {*ids} - await unpublished_of(connection.execute, ids)
            if gone:
                batch, itself = {BATCH: key_batch("id", gone)}, _row.request_id.label("duplicate_of")
                columns = (_row.request_id, _row.account_id, itself, _row.accepted_at, _row.fingerprint)
                confirmed = sa.select(*columns).where(in_batch(_row.id), _row.status == CONFIRMED)
                kept = sa.insert(duplicates).from_select([column.name for column in columns], confirmed)
                await connection.execute(kept, batch)
                await connection.execute(sa.delete(reservations).where(in_batch(_row.id)), batch)
        return last, len(gone)

    async def forget_repeats(self) -> None:
        """Deletes the names of repeats whose originals are gone and may be made again, which would be taken for repeats."""
        original, itself = duplicates.c.duplicate_of, duplicates.alias()
        has_row = sa.exists().where(_row.request_id == original)
        was_purged = sa.exists().where(itself.c.request_id == original)
        await self._database.run(sa.delete(duplicates).where(~has_row, ~was_purged))

    async def mark(self, before: date, *, now: datetime) -> None:
        """Records, before anything is deleted, that the store may lack submissions that finished before that day."""
        row = insert_into(self._database.dialect, purges).values(finished_before=before, purged_at=now)
        await self._database.run(row.on_conflict_do_update(index_elements=["finished_before"], set_={"purged_at": now}))

    async def purged_before(self) -> datetime | None:
        """Submissions accepted or finished before this time may have been deleted; None: none were."""
        latest = await self._database.scalar(sa.select(sa.func.max(purges.c.finished_before)))
        return None if latest is None else _begin(latest)


def _finished(before: date, workspace_id: str | None) -> Sequence[sa.ColumnElement[bool]]:
    nothing_left = (_row.status.not_in(_OPEN), _row.due_at.is_(None), _row.leased_by.is_(None))
    return (_row.created_at < _begin(before), before > FINISHED_DAY, *nothing_left, *_in_workspace(workspace_id))


def _in_workspace(workspace_id: str | None) -> Sequence[sa.ColumnElement[bool]]:
    return () if workspace_id is None else (_row.workspace_id == workspace_id,)


def _begin(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)

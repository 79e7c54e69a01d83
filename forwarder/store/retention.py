"""Removes guests' data: anonymizes finished submissions, erases one guest, and purges rows that were finished long ago.

Each short transaction reads and locks rows, skipping those that others have locked. A purge walks rows in order of ingestion. A
confirmed one leaves its request id among the duplicates, as a duplicate of itself: if its message is delivered again, or its key
used again, it is not booked again."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import from_json, to_json
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.clock import iso
from forwarder.reservation.anonymous import anonymous_data, anonymous_problem, anonymous_record, anonymous_request
from forwarder.reservation.evidence import read_evidence
from forwarder.reservation.outcome import Status
from forwarder.store.database import Database
from forwarder.store.delivery_queue import about, endpoints
from forwarder.store.sql import (
    BATCH,
    Moment,
    as_batch,
    batch_of,
    columns_of,
    insert_into,
    key_among,
    key_batch,
    same_key,
)
from forwarder.store.submissions.duplicates import original_of
from forwarder.store.submissions.port import ErasureState, GuestRecord, ParkedReason
from forwarder.store.submissions.recorder import unpublished_of
from forwarder.store.tables import (
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
_ANONYMOUS: Final = ("request", "record", "problem", "attempts", "evidence", "cancel_problem", "anonymized_at")
_REWRITTEN: Final = (_row.id, *(_row[name] for name in _ANONYMOUS[:-1]))

_GUEST: Final = (
    *_REWRITTEN,
    *columns_of(reservations, "request_id workspace_id account_id status due_at leased_by anonymized_at cancel_reason"),
)

UNSORTED: Final = ("SET LOCAL enable_sort = off", "SET LOCAL enable_incremental_sort = off")
"""Without this, PostgreSQL may read and sort all deliveries of an endpoint to find the first few, if the table was never
analyzed."""


class GuestStore:
    """Guests' data in the store. Every method may raise `StoreUnavailable`. While sweeping, each call is one short transaction, and
    skips rows that others have locked."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    # --- sweeping ---

    async def anonymize_finished(
        self, workspace_id: str, status: Status, *, until: date, now: datetime, limit: int
    ) -> int:
        """Erases the guest's data of up to `limit` submissions of this status that finished on that day or before, oldest
        first; returns how many. Fewer than `limit`: there are no more for now."""
        asked = {"workspace": workspace_id, "status": status.value, "until": until, "limit": limit}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(finished(), asked)).all()
            return len(await self._anonymize(connection, rows, now))

    async def forget_parked_reasons(self, account_ids: Collection[str], *, before: datetime, limit: int) -> int:
        """Erases the reasons of up to `limit` cancellations that were requested before that time and whose submissions never
        arrived; returns how many. The cancellations stay in force."""
        theirs = key_among(_parked.account_id, sa.select(batch_of(_parked.account_id).c.account_id))
        old = _parked.requested_at < sa.bindparam("before", type_=Moment())
        named = sa.select(_parked.request_id).where(theirs, old, _parked.reason.is_not(None)).limit(_limit)
        asked = {"before": before, "limit": limit, BATCH: key_batch("account_id", account_ids)}
        return len(await self._forget_reasons(named, asked))

    async def endpoints_with_deliveries(self) -> Sequence[str]:
        """The ids of all endpoints that have deliveries, including removed endpoints."""
        return [row.value for row in await self._database.read(endpoints())]

    async def delete_deliveries(
        self, endpoint_id: str, *, ended_before: datetime, after: int, limit: int
    ) -> tuple[int | None, int]:
        """Deletes those of the next `limit` deliveries of the endpoint, with ids above `after`, that ended before that time. Keeps
        pending ones, however old. Returns the id of the last one read, None if no later one can have ended before; and how many
        were deleted."""
        before = {"before": ended_before}
        async with self._database.transaction() as connection:
            if self._database.dialect == "postgresql":
                for setting in UNSORTED:
                    await connection.execute(sa.text(setting))
            asked = {"endpoint": endpoint_id, "after": after, "limit": limit}
            rows = (await connection.execute(next_deliveries(), asked)).all()
            if (
                not rows or rows[0].created_at >= ended_before
            ):  # ids are in about the order in which deliveries were queued
                return None, 0
            old = [row.id for row in rows if row.ended_at is not None and row.ended_at < ended_before]
            gone = await connection.execute(delete_ended(), before | {BATCH: key_batch("id", old)}) if old else None
            return rows[-1].id, 0 if gone is None else len(gone.all())

    # --- erasing ---

    async def submissions(self, request_ids: Collection[str]) -> Sequence[GuestRecord]:
        """The submissions with these request ids, or of which these are duplicates."""
        if not request_ids:
            return ()
        named = batch_of(_row.request_id).c.request_id
        asked = sa.select(original_of(named).label("original")).distinct().subquery("asked")
        found = sa.select(*_GUEST).select_from(asked.join(reservations, same_key(_row.request_id, asked.c.original)))
        batch = key_batch("request_id", request_ids)
        return await self._records(await self._database.read(found.order_by(_row.id), {BATCH: batch}))

    async def page(
        self, *, after: int, limit: int, workspace_id: str | None
    ) -> tuple[Sequence[GuestRecord], int | None]:
        """The submissions with a guest's data among the next `limit` ids above `after`, of one workspace if given; and the last id
        read, None if there was none."""
        ids = sa.select(_row.id).where(_row.id > after).order_by(_row.id).limit(limit).subquery("ids")
        ends = await self._database.read(sa.select(sa.func.max(ids.c.id).label("last")))
        last: int | None = ends[0].last
        if last is None:
            return (), None
        found = sa.select(*_GUEST).where(_row.id > after, _row.id <= last, _row.anonymized_at.is_(None))
        if workspace_id is not None:
            found = found.where(_row.workspace_id == workspace_id)
        return await self._records(await self._database.read(found.order_by(_row.id))), last

    async def last_id(self) -> int:
        """The highest id of a submission; 0 if there is none."""
        rows = await self._database.read(sa.select(sa.func.max(_row.id).label("last")))
        return rows[0].last or 0

    async def deliveries(self, request_id: str) -> int:
        return len(await self._database.read(about(request_id, _delivery.id)))

    async def erase(self, records: Collection[GuestRecord], *, now: datetime) -> Sequence[str]:
        """Erases the guest's data of those that can be erased, and of the webhook deliveries about them, in one transaction.
        Returns their request ids. Of those erased before, erases deliveries that were queued since."""
        ids = [{"id": each.id} for each in records if each.standing is ErasureState.ERASABLE]
        async with self._database.transaction() as connection:
            named = key_among(_row.id, sa.select(batch_of(_row.id).c.id))
            locked: sa.Executable = sa.select(*_REWRITTEN).where(named, IS_IDENTIFIABLE).with_for_update()
            rows = (await connection.execute(locked, {BATCH: as_batch(ids)})).all()
            erased = await self._anonymize(connection, rows, now)
            for each in records:
                if each.id not in erased and each.standing is not ErasureState.ERASED:
                    continue
                theirs = about(each.request_id, _delivery.id, _delivery.body, _delivery.attempts).with_for_update()
                rewritten = [anonymous_delivery(row) for row in await connection.execute(theirs)]
                if rewritten:
                    batch = batch_of(_delivery.id, _delivery.body, _delivery.attempts)
                    values = {"body": batch.c.body, "attempts": batch.c.attempts, "trace": sa.null()}
                    changed = sa.update(webhook_deliveries).where(same_key(_delivery.id, batch.c.id)).values(values)
                    await connection.execute(changed, {BATCH: as_batch(rewritten)})
        return [each.request_id for each in records if each.id in erased]

    async def parked_reasons(self) -> Sequence[ParkedReason]:
        found = sa.select(_parked.request_id, _parked.account_id, _parked.reason).where(_parked.reason.is_not(None))
        return [
            ParkedReason(row.request_id, row.account_id, row.reason)
            for row in await self._database.read(found.order_by(_parked.request_id))
        ]

    async def erase_parked_reasons(self, request_ids: Collection[str]) -> Sequence[str]:
        """Erases the reasons of these submissions' cancellations, which stay in force. Returns their request ids."""
        named = sa.select(batch_of(_parked.request_id).c.request_id)
        return await self._forget_reasons(named, {BATCH: key_batch("request_id", request_ids)})

    async def _forget_reasons(self, named: sa.Select[Any], asked: dict[str, Any]) -> Sequence[str]:
        forgotten = sa.update(parked_cancellations).where(
            key_among(_parked.request_id, named), _parked.reason.is_not(None)
        )
        async with self._database.transaction() as connection:
            removed = forgotten.values(reason=sa.null(), trace=sa.null())
            rows = await connection.execute(removed.returning(_parked.request_id), asked)
            return [row.request_id for row in rows]

    async def _anonymize(self, connection: AsyncConnection, rows: Sequence[sa.Row[Any]], now: datetime) -> set[int]:
        """The ids of the anonymized ones among the locked `rows`; not those whose events are still to be published."""
        if not rows:
            return set()
        ids = [{"reservation_id": row.id} for row in rows]
        waiting = {row[0] for row in await connection.execute(unpublished_of(), {BATCH: as_batch(ids)})}
        rewritten = [anonymous_row(row, now) for row in rows if row.id not in waiting]
        if rewritten:
            batch = batch_of(_row.id, *(_row[name] for name in _ANONYMOUS))
            # A caller may write anything into its tracestate.
            values = {name: batch.c[name] for name in _ANONYMOUS} | {"cancel_reason": sa.null(), "trace": sa.null()}
            changed = sa.update(reservations).where(same_key(_row.id, batch.c.id)).values(values)
            await connection.execute(changed, {BATCH: as_batch(rewritten)})
        return {row["id"] for row in rewritten}

    async def _records(self, rows: Sequence[sa.Row[Any]]) -> Sequence[GuestRecord]:
        ids = [{"reservation_id": row.id} for row in rows]
        unpublished = await self._database.read(unpublished_of(), {BATCH: as_batch(ids)}) if ids else ()
        waiting, records = {row[0] for row in unpublished}, list[GuestRecord]()
        for row in rows:
            if row.anonymized_at is not None:
                standing = ErasureState.ERASED
            elif row.status in _OPEN or row.due_at is not None or row.leased_by is not None:
                standing = ErasureState.UNFINISHED
            else:
                standing = ErasureState.UNPUBLISHED if row.id in waiting else ErasureState.ERASABLE
            record = GuestRecord(
                id=row.id,
                request_id=row.request_id,
                workspace_id=row.workspace_id,
                account_id=row.account_id,
                status=Status(row.status),
                standing=standing,
                request=from_json(row.request),
                record={} if row.record is None else from_json(row.record),
                others=(
                    row.cancel_reason,
                    *map(from_json, filter(None, (row.problem, row.attempts, row.cancel_problem))),
                    *(line.problem for line in read_evidence(row.evidence or "").pushes),
                ),
            )
            records.append(record)
        return records


@cache
def finished() -> sa.Executable:
    """Finished, identifiable submissions of one workspace and status, oldest first, locked."""
    until = sa.bindparam("until", type_=sa.Date)
    wanted = (
        _row.workspace_id == sa.bindparam("workspace"),
        _row.status == sa.bindparam("status"),
        until >= FINISHED_DAY,
    )
    oldest = (
        sa.select(*_REWRITTEN).where(*wanted, IS_IDENTIFIABLE).order_by(_row.workspace_id, _row.status, FINISHED_DAY)
    )
    return oldest.order_by(_row.id).limit(_limit).with_for_update(skip_locked=True)


@cache
def next_deliveries() -> sa.Executable:
    """The next deliveries of one endpoint, in the order of their ids."""
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
    named = key_among(_delivery.id, sa.select(batch_of(_delivery.id).c.id))
    return sa.delete(webhook_deliveries).where(named, ended).returning(_delivery.id)


def anonymous_row(row: sa.Row[Any], now: datetime) -> dict[str, Any]:
    """The columns of a finished submission to anonymize, for a batch."""
    return {
        "id": row.id,
        "request": _json(anonymous_request(from_json(row.request))),
        "record": None if row.record is None else _json(anonymous_record(from_json(row.record))),
        "problem": _problem(row.problem),
        "attempts": _without_details(row.attempts),
        "evidence": row.evidence and read_evidence(row.evidence).anonymous.text,
        "cancel_problem": _problem(row.cancel_problem),
        "anonymized_at": iso(now),
    }


def anonymous_delivery(row: sa.Row[Any]) -> dict[str, Any]:
    """The columns of a webhook delivery to anonymize."""
    event = from_json(row.body)
    data = event.get("data")
    if isinstance(data, Mapping) and isinstance(data.get("reservation"), Mapping):
        event = {**event, "data": anonymous_data(data)}
    return {"id": row.id, "body": _json(event), "attempts": _without_details(row.attempts)}


_OPEN = (Status.PENDING.value, Status.IN_DOUBT.value)


def _problem(text: str | None) -> str | None:
    return None if text is None else _json(anonymous_problem(from_json(text)))


def _without_details(attempts: str) -> str:
    """The attempts without their details: a PMS, or a customer's endpoint, may echo the request."""
    return _json([{**attempt, "detail": None} for attempt in from_json(attempts)])


def _json(value: Any) -> str:
    return to_json(value, inf_nan_mode="null").decode()


class Purger:
    """Deletes submissions that finished before the day `before` (see `FINISHED_DAY`), of one workspace, or of all if `workspace_id`
    is None. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def count(self, before: date, workspace_id: str | None) -> int:
        found = sa.select(sa.func.count()).select_from(reservations).where(*_finished(before, workspace_id))
        return int((await self._database.read(found))[0][0])

    async def delete_some(
        self, before: date, workspace_id: str | None, *, after: int, limit: int
    ) -> tuple[int | None, int]:
        """Deletes the finished ones among the next `limit` rows with ids above `after`. Returns the id of the last row read, None
        where there are no more, and how many were deleted."""
        # Ids follow the order of ingestion: once a row is too recent, all later ones are.
        span = (
            sa.select(_row.id, _row.created_at).where(_row.id > after).order_by(_row.id).limit(limit).subquery("span")
        )
        early = sa.select(sa.func.max(span.c.id).label("last")).where(span.c.created_at < _begin(before))
        ends = (await self._database.read(early))[0]
        if ends.last is None:
            return None, 0
        async with self._database.transaction() as connection:
            columns = (_row.id, _row.request_id, _row.account_id, _row.status, _row.accepted_at, _row.fingerprint)
            walked = sa.select(*columns).where(_row.id > after, _row.id <= ends.last, *_finished(before, workspace_id))
            rows = (await connection.execute(walked.order_by(_row.id).with_for_update(skip_locked=True))).all()
            ids = as_batch([{"reservation_id": row.id} for row in rows])
            waiting = {row[0] for row in await connection.execute(unpublished_of(), {BATCH: ids})} if rows else set()
            gone = [row for row in rows if row.id not in waiting]
            confirmed = [
                {
                    "request_id": row.request_id,
                    "account_id": row.account_id,
                    "duplicate_of": row.request_id,
                    "accepted_at": row.accepted_at,
                    "fingerprint": row.fingerprint,
                }
                for row in gone
                if row.status == Status.CONFIRMED
            ]
            if confirmed:
                await connection.execute(sa.insert(duplicates), confirmed)
            if gone:
                named = sa.delete(reservations).where(key_among(_row.id, sa.select(batch_of(_row.id).c.id)))
                await connection.execute(named, {BATCH: key_batch("id", [row.id for row in gone])})
        return ends.last, len(gone)

    async def forget_repeats(self) -> None:
        """Deletes the names of those that repeated submissions which are gone and may be made again. A name without a submission
        would swallow what is sent under it."""
        original, itself = duplicates.c.duplicate_of, duplicates.alias()
        there = sa.or_(
            sa.exists().where(_row.request_id == original), sa.exists().where(itself.c.request_id == original)
        )
        await self._database.run(sa.delete(duplicates).where(~there).returning(duplicates.c.request_id))

    async def mark(self, before: date, *, now: datetime) -> None:
        """Records, before anything is deleted, that the store may lack submissions that finished before that day."""
        values = {"finished_before": before, "purged_at": now}
        noted = insert_into(self._database.dialect, purges).values(values)
        again = noted.on_conflict_do_update(index_elements=["finished_before"], set_={"purged_at": now})
        await self._database.run(again.returning(purges.c.finished_before))

    async def purged_before(self) -> datetime | None:
        """Submissions accepted or finished before this time may have been deleted; None: none were."""
        rows = await self._database.read(sa.select(sa.func.max(purges.c.finished_before).label("latest")))
        return None if rows[0].latest is None else _begin(rows[0].latest)


def _finished(before: date, workspace_id: str | None) -> Sequence[sa.ColumnElement[bool]]:
    theirs = () if workspace_id is None else (_row.workspace_id == workspace_id,)
    nothing_left = (_row.status.not_in(_OPEN), _row.due_at.is_(None), _row.leased_by.is_(None))
    return (_row.created_at < _begin(before), before > FINISHED_DAY, *nothing_left, *theirs)


def _begin(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)

"""`SweptStore` and `GuestStore` in SQL.

Each short transaction reads and locks rows, skipping those that others have locked, rewrites and stores them.
"""

from collections.abc import Collection, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Date,
    Executable,
    Integer,
    Row,
    Select,
    bindparam,
    delete,
    func,
    literal_column,
    null,
    select,
    text,
    true,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.reservation.outcome import Status
from forwarder.store.database import Database
from forwarder.store.retention.port import GuestRecord, ParkedReason, Standing
from forwarder.store.retention.rows import anonymous_delivery, anonymous_row, guest_record
from forwarder.store.sql import BATCH, Moment, as_batch, batch_of, distinct, key_among, same_key
from forwarder.store.submissions.statements.duplicates import original_of
from forwarder.store.submissions.statements.outcomes import unpublished_of
from forwarder.store.tables import FINISHED_DAY, IS_IDENTIFIABLE, parked_cancellations, reservations, webhook_deliveries

_row = reservations.c
_delivery = webhook_deliveries.c
_parked = parked_cancellations.c
_limit = bindparam("limit", type_=Integer)
_ZERO: Final[ColumnElement[int]] = literal_column("0")

_REWRITTEN: Final = (_row.id, _row.request, _row.record, _row.problem, _row.attempts, _row.cancel_problem)
_GUEST: Final = (
    *_REWRITTEN,
    _row.request_id,
    _row.workspace_id,
    _row.account_id,
    _row.status,
    _row.due_at,
    _row.leased_by,
    _row.anonymized_at,
)

UNSORTED: Final = ("SET LOCAL enable_sort = off", "SET LOCAL enable_incremental_sort = off")
"""Without this, PostgreSQL may read and sort all deliveries of an endpoint to find the first few, if the table was never
analyzed."""


class SqlGuests:
    """On PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self._finished, self._rewrite, self._unpublished = finished(), _rewrite(), unpublished_of()

    # --- sweeping ---

    async def anonymize_finished(
        self, workspace_id: str, status: Status, *, until: date, now: datetime, limit: int
    ) -> int:
        asked = {"workspace": workspace_id, "status": status.value, "until": until, "limit": limit}
        async with self._database.transaction() as connection:
            rows = (await connection.execute(self._finished, asked)).all()
            return len(await self._anonymize(connection, rows, now))

    async def forget_parked_reasons(self, account_ids: Collection[str], *, before: datetime, limit: int) -> int:
        asked = {"before": before, "limit": limit, BATCH: as_batch([{"account_id": each} for each in account_ids])}
        return len(await self._forget_reasons(_old_reasons(), asked))

    async def endpoints_with_deliveries(self) -> Sequence[str]:
        endpoints = distinct(true(), _delivery.endpoint_id, _delivery.event_id)
        found = select(endpoints.c.value).where(endpoints.c.value.is_not(None))
        return [row.value for row in await self._database.read(found)]

    async def delete_deliveries(self, endpoint_id: str, *, ended_before: datetime, limit: int) -> int:
        asked = {"endpoint": endpoint_id, "before": ended_before, "limit": limit}
        async with self._database.transaction() as connection:
            if self._database.dialect == "postgresql":
                for setting in UNSORTED:
                    await connection.execute(text(setting))
            return len((await connection.execute(ended_deliveries(), asked)).all())

    # --- erasing ---

    async def submissions(self, request_ids: Collection[str]) -> Sequence[GuestRecord]:
        if not request_ids:
            return ()
        named = batch_of(_row.request_id).c.request_id
        asked = select(original_of(named).label("original")).distinct().subquery("asked")
        found = select(*_GUEST).select_from(asked.join(reservations, same_key(_row.request_id, asked.c.original)))
        batch = as_batch([{"request_id": each} for each in request_ids])
        return await self._records(await self._database.read(found.order_by(_row.id), {BATCH: batch}))

    async def page(
        self, *, after: int, limit: int, workspace_id: str | None
    ) -> tuple[Sequence[GuestRecord], int | None]:
        ids = select(_row.id).where(_row.id > after).order_by(_row.id).limit(limit).subquery("ids")
        ends = await self._database.read(select(func.max(ids.c.id).label("last")))
        last: int | None = ends[0].last
        if last is None:
            return (), None
        found = select(*_GUEST).where(_row.id > after, _row.id <= last, _row.anonymized_at.is_(None))
        if workspace_id is not None:
            found = found.where(_row.workspace_id == workspace_id)
        return await self._records(await self._database.read(found.order_by(_row.id))), last

    async def last_id(self) -> int:
        rows = await self._database.read(select(func.max(_row.id).label("last")))
        return rows[0].last or 0

    async def deliveries(self, request_id: str) -> int:
        endpoints = await self.endpoints_with_deliveries()
        return len(await self._database.read(_deliveries_about(endpoints, request_id)))

    async def erase(self, records: Collection[GuestRecord], *, now: datetime) -> Sequence[str]:
        ids = [{"id": each.id} for each in records if each.standing is Standing.ERASABLE]
        endpoints = await self.endpoints_with_deliveries()
        async with self._database.transaction() as connection:
            rows = (await connection.execute(_named(), {BATCH: as_batch(ids)})).all()
            erased = await self._anonymize(connection, rows, now)
            request_ids = [each.request_id for each in records if each.id in erased]
            for request_id in request_ids:
                await _anonymize_deliveries(connection, endpoints, request_id)
        return request_ids

    async def parked_reasons(self) -> Sequence[ParkedReason]:
        found = select(_parked.request_id, _parked.account_id, _parked.reason).where(_parked.reason.is_not(None))
        return [
            ParkedReason(row.request_id, row.account_id, row.reason)
            for row in await self._database.read(found.order_by(_parked.request_id))
        ]

    async def erase_parked_reasons(self, request_ids: Collection[str]) -> Sequence[str]:
        named = select(batch_of(_parked.request_id).c.request_id)
        return await self._forget_reasons(named, {BATCH: as_batch([{"request_id": each} for each in request_ids])})

    async def _forget_reasons(self, named: Select[Any], asked: dict[str, Any]) -> Sequence[str]:
        forgotten = update(parked_cancellations).where(
            key_among(_parked.request_id, named), _parked.reason.is_not(None)
        )
        async with self._database.transaction() as connection:
            rows = await connection.execute(forgotten.values(reason=null()).returning(_parked.request_id), asked)
            return [row.request_id for row in rows]

    async def _anonymize(self, connection: AsyncConnection, rows: Sequence[Row[Any]], now: datetime) -> set[int]:
        """The ids of the anonymized ones among the locked `rows`; not those whose events are still to be published."""
        if not rows:
            return set()
        ids = [{"reservation_id": row.id} for row in rows]
        waiting = {row[0] for row in await connection.execute(self._unpublished, {BATCH: as_batch(ids)})}
        rewritten = [anonymous_row(row, now) for row in rows if row.id not in waiting]
        if rewritten:
            await connection.execute(self._rewrite, {BATCH: as_batch(rewritten)})
        return {row["id"] for row in rewritten}

    async def _records(self, rows: Sequence[Row[Any]]) -> Sequence[GuestRecord]:
        ids = [{"reservation_id": row.id} for row in rows]
        unpublished = await self._database.read(self._unpublished, {BATCH: as_batch(ids)}) if ids else ()
        waiting = {row[0] for row in unpublished}
        return [guest_record(row, unpublished=row.id in waiting) for row in rows]


@cache
def finished() -> Executable:
    """Finished, identifiable submissions of one workspace and status, oldest first, locked."""
    until = bindparam("until", type_=Date)
    wanted = (_row.workspace_id == bindparam("workspace"), _row.status == bindparam("status"), until >= FINISHED_DAY)
    oldest = select(*_REWRITTEN).where(*wanted, IS_IDENTIFIABLE).order_by(_row.workspace_id, _row.status, FINISHED_DAY)
    return oldest.order_by(_row.id).limit(_limit).with_for_update(skip_locked=True)


@cache
def _named() -> Executable:
    """The finished, identifiable rows of a batch, locked."""
    batch = batch_of(_row.id)
    named = select(*_REWRITTEN).where(key_among(_row.id, select(batch.c.id)), IS_IDENTIFIABLE)
    return named.with_for_update()


@cache
def _rewrite() -> Executable:
    names = ("request", "record", "problem", "attempts", "cancel_problem", "anonymized_at")
    batch = batch_of(_row.id, *(_row[name] for name in names))
    # A caller may write anything into its tracestate.
    values = {name: batch.c[name] for name in names} | {"cancel_reason": null(), "trace": null()}
    return update(reservations).where(same_key(_row.id, batch.c.id)).values(values)


@cache
def _old_reasons() -> Select[Any]:
    """The request ids of parked cancellations of a batch of accounts, requested before some time."""
    theirs = key_among(_parked.account_id, select(batch_of(_parked.account_id).c.account_id))
    old = _parked.requested_at < bindparam("before", type_=Moment())
    return select(_parked.request_id).where(theirs, old, _parked.reason.is_not(None)).limit(_limit)


@cache
def ended_deliveries() -> Executable:
    """Deletes deliveries of one endpoint that ended before some time. Searches only among as many of its oldest, so that pending
    ones are not skipped again and again."""
    endpoint: BindParameter[str] = bindparam("endpoint")
    # Bounds on the order: with an equality the planner could walk all endpoints' deliveries by id.
    bounds = (tuple_(_delivery.endpoint_id, _delivery.id) >= tuple_(endpoint, _ZERO), _delivery.endpoint_id <= endpoint)
    first = select(_delivery.id, _delivery.ended_at).where(*bounds)
    some = first.order_by(_delivery.endpoint_id, _delivery.id).limit(_limit).subquery("some")
    before = bindparam("before", type_=Moment())
    old = select(some.c.id).where(some.c.ended_at < before)
    gone = delete(webhook_deliveries).where(key_among(_delivery.id, old), _delivery.ended_at < before)
    return gone.returning(_delivery.id)


def _deliveries_about(endpoints: Sequence[str], request_id: str) -> Select[Any]:
    """Deliveries about a submission, by each endpoint's index of events, whose ids are the request id, a dot and a number."""
    following = f"{request_id}/"  # what comes after the dot in ASCII
    about = (_delivery.event_id > f"{request_id}.", _delivery.event_id < following)
    found = select(_delivery.id, _delivery.body, _delivery.attempts)
    return found.where(_delivery.endpoint_id.in_(endpoints), *about)


async def _anonymize_deliveries(connection: AsyncConnection, endpoints: Sequence[str], request_id: str) -> None:
    rows = (await connection.execute(_deliveries_about(endpoints, request_id).with_for_update())).all()
    rewritten = [anonymous_delivery(row) for row in rows]
    if rewritten:
        batch = batch_of(_delivery.id, _delivery.body, _delivery.attempts)
        values = {"body": batch.c.body, "attempts": batch.c.attempts}
        changed = update(webhook_deliveries).where(same_key(_delivery.id, batch.c.id)).values(values)
        await connection.execute(changed, {BATCH: as_batch(rewritten)})

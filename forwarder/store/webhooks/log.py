"""The delivery log, in SQL: read by endpoint, newest first, and redelivered."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Update, insert, literal_column, null, select, true, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.database import Database
from forwarder.store.sql import distinct, key_among
from forwarder.store.tables import webhook_deliveries as table
from forwarder.store.webhooks.port import DeliveryEntry, DeliveryStatus, NewDelivery
from forwarder.store.webhooks.queue import ENTRY, entry_of, stop

_row = table.c
_NOT_DELIVERED = (DeliveryStatus.FAILED.value, DeliveryStatus.STOPPED.value)


class SqlDeliveryLog:
    """`DeliveryLog` and `SubmissionDeliveries` on PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def entries(
        self,
        endpoint_id: str,
        *,
        status: DeliveryStatus | None,
        before: int | None,
        limit: int,
        after: int | None = None,
        tried: bool = False,
    ) -> Sequence[DeliveryEntry]:
        wanted = select(*ENTRY).where(_row.endpoint_id == endpoint_id)
        if tried:
            wanted = wanted.where(_row.attempts != literal_column("'[]'"))
        if status is not None:
            wanted = wanted.where(_row.status == status.value)
        if before is not None:
            wanted = wanted.where(_row.id < before)
        if after is not None:
            next_newer = wanted.where(_row.id > after).order_by(_row.id).limit(limit)
            return [entry_of(row) for row in reversed(await self._database.read(next_newer))]
        return [entry_of(row) for row in await self._database.read(wanted.order_by(_row.id.desc()).limit(limit))]

    async def entry(self, endpoint_id: str, delivery_id: int) -> DeliveryEntry | None:
        wanted = select(*ENTRY).where(_row.endpoint_id == endpoint_id, _row.id == delivery_id)
        rows = await self._database.read(wanted)
        return entry_of(rows[0]) if rows else None

    async def about(self, request_id: str) -> Sequence[DeliveryEntry]:
        endpoints = distinct(true(), _row.endpoint_id, _row.event_id)
        known = select(endpoints.c.value).where(endpoints.c.value.is_not(None))
        # The ids of events are the request id, a dot and a number; in ASCII the dot is followed by the slash.
        events = (_row.event_id > f"{request_id}.", _row.event_id < f"{request_id}/")
        wanted = select(*ENTRY).where(key_among(_row.endpoint_id, known), *events).order_by(_row.id)
        return [entry_of(row) for row in await self._database.read(wanted)]

    async def add(self, delivery: NewDelivery, *, now: datetime) -> int:
        values = {
            "endpoint_id": delivery.endpoint_id,
            "event_id": delivery.event_id,
            "event_type": delivery.type,
            "body": delivery.body,
            "status": DeliveryStatus.PENDING.value,
            "created_at": now,
            "retrying_since": now,
            "due_at": now,
        }
        (row,) = await self._database.run(insert(table).values(values).returning(_row.id))
        delivery_id: int = row.id
        return delivery_id

    async def put_back(self, endpoint_id: str, delivery_ids: Collection[int], *, now: datetime) -> int:
        return await self._restart(now, _row.endpoint_id == endpoint_id, _row.id.in_(delivery_ids))

    async def put_back_ended(self, endpoint_id: str, *, since: datetime, now: datetime) -> int:
        ended = (_row.status.in_(_NOT_DELIVERED), _row.created_at >= since)
        return await self._restart(now, _row.endpoint_id == endpoint_id, *ended)

    async def stop(self, endpoint_id: str, *, now: datetime) -> int:
        return len(await self._database.run(stop(), {"endpoint": endpoint_id, "now": now}))

    async def _restart(self, now: datetime, *which: ColumnElement[bool]) -> int:
        return len(await self._database.run(_restarted(now).where(*which).returning(_row.id)))


def _restarted(now: datetime) -> Update:
    """Restarts a delivery with a new claim number, so that a post in flight does not end the new series."""
    values: dict[str, Any] = {
        "status": DeliveryStatus.PENDING.value,
        "retrying_since": now,
        "due_at": now,
        "ended_at": null(),
        "tries": literal_column("0"),
        "claims": _row.claims + 1,
    }
    return update(table).values(values)

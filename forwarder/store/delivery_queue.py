"""Deliveries to customers' endpoints in SQL: the notifier's queue, and the log that owners read and put back from. A claim
postpones the due time to its end, so deliveries of a dead process need no takeover. Times are those of the processes' own clocks,
which may differ. Everything may raise `StoreUnavailable`."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import from_json
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import iso
from forwarder.store.batches import BATCH, as_batch, batch_of, key_among, same_key
from forwarder.store.database import Database
from forwarder.store.deliveries import (
    DeliveryAttempt,
    DeliveryEntry,
    DeliveryStatus,
    DueDelivery,
    NewDelivery,
    TriedDelivery,
)
from forwarder.store.engine import identity_of
from forwarder.store.sql import ONE, ZERO, DialectName, Moment, columns_of, distinct, insert_into, literal, locked
from forwarder.store.tables import PENDING
from forwarder.store.tables import webhook_deliveries as table

_row = table.c
_now = sa.bindparam("now", type_=Moment())
_endpoint: sa.BindParameter[str] = sa.bindparam("endpoint")
_pending = _row.due_at.is_not(None)
_due = sa.and_(_pending, _row.due_at <= _now)
_DELIVERED: Final = literal("DELIVERED")
_TYPE = _row.event_type.label("type")
ENTRY = (*columns_of(table, "id endpoint_id event_id status created_at due_at ended_at tries attempts"), _TYPE)


class Deliveries:
    """The deliveries of all endpoints, shared by any number of notifiers. A claimed one belongs to its claimant until the claim
    expires; then it is due again, and may be posted twice, which receivers recognise by the event's id."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self.identity = identity_of(engine)

    async def queue(self, deliveries: Sequence[NewDelivery], *, now: datetime) -> Sequence[int]:
        """Store each, due at once, unless its endpoint already has a delivery of that event; the ids of the new ones, in order."""
        if not deliveries:
            return ()
        rows = [{"position": at, "event_type": each.type, **asdict(each)} for at, each in enumerate(deliveries)]
        queued = await self._database.run(queue(self._database.dialect), {BATCH: as_batch(rows), "now": now})
        return sorted(row.id for row in queued)

    async def endpoints_due(self, *, now: datetime) -> Sequence[str]:
        return [row.value for row in await self._database.read(endpoints_due(), {"now": now})]

    async def claim(self, endpoint_id: str, *, now: datetime, until: datetime, limit: int) -> Sequence[DueDelivery]:
        """Claim up to `limit` due deliveries of the endpoint until `until`, oldest due first."""
        rows = await self._database.run(claim(), {"endpoint": endpoint_id, "now": now, "until": until, "limit": limit})
        due = [DueDelivery(**{**row._mapping, "attempts": _attempts_of(row.attempts)}) for row in rows]
        return sorted(due, key=lambda each: each.id)

    async def record(self, tried: Sequence[TriedDelivery]) -> None:
        """Records results, except of deliveries claimed again or put back since. A stopped one stays so, unless delivered."""
        rows = [
            {
                "id": one.delivery.id,
                "claims": one.delivery.claim,
                "retrying_since": iso(one.delivery.retrying_since),
                "status": one.status.value,
                "due_at": None if one.due_at is None or ended else iso(one.due_at),
                "ended_at": iso(one.now) if ended else None,
                "tries": one.delivery.tries + 1,
                "attempts": [asdict(each) for each in (*one.delivery.attempts, one.attempt)[-20:]],
            }
            for one in tried
            for ended in (one.status is not DeliveryStatus.PENDING,)
        ]
        if rows:
            await self._database.run(record(), {BATCH: as_batch(rows)})

    async def release(self, claimed: Sequence[DueDelivery], *, now: datetime) -> None:
        """Release claimed deliveries that were not posted: due at once."""
        if claimed:
            batch = as_batch([{"id": one.id, "claims": one.claim} for one in claimed])
            await self._database.run(release(), {BATCH: batch, "now": now})

    async def stop(self, endpoint_id: str, *, now: datetime) -> int:
        """Stop everything pending for that endpoint; how many there were."""
        values = {"status": DeliveryStatus.STOPPED.value, "due_at": sa.null(), "ended_at": now}
        pending = sa.update(table).where(_row.endpoint_id == endpoint_id, _pending)
        return len(await self._database.run(pending.values(values).returning(_row.id)))

    async def delivered_since(self, endpoint_id: str, moment: datetime) -> bool:
        delivered = (_row.endpoint_id == endpoint_id, _row.status == _DELIVERED, _row.ended_at >= moment)
        return bool(await self._database.read(sa.select(_row.id).where(*delivered).order_by(_row.id.desc()).limit(ONE)))

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
        """Entries below `before`, newest first; with `after`, the next ones above it. `tried`: only those posted at least once."""
        wanted = sa.select(*ENTRY).where(_row.endpoint_id == endpoint_id).limit(limit)
        if tried:
            wanted = wanted.where(_row.attempts != literal("[]"))
        if status is not None:
            wanted = wanted.where(_row.status == status.value)
        if before is not None:
            wanted = wanted.where(_row.id < before)
        if after is not None:
            next_newer = await self._database.read(wanted.where(_row.id > after).order_by(_row.id))
            return [entry_of(row) for row in reversed(next_newer)]
        return [entry_of(row) for row in await self._database.read(wanted.order_by(_row.id.desc()))]

    async def entry(self, endpoint_id: str, delivery_id: int) -> DeliveryEntry | None:
        one = sa.select(*ENTRY).where(_row.endpoint_id == endpoint_id, _row.id == delivery_id)
        rows = await self._database.read(one)
        return entry_of(rows[0]) if rows else None

    async def about(self, request_id: str) -> Sequence[DeliveryEntry]:
        """The deliveries of its events to all endpoints, oldest first."""
        return [entry_of(row) for row in await self._database.read(about(request_id, *ENTRY).order_by(_row.id))]

    async def put_back(self, endpoint_id: str, delivery_ids: Collection[int], *, now: datetime) -> int:
        """Makes them due at once, in a new series of attempts, regardless of their status; returns how many."""
        return await self._restart(now, _row.endpoint_id == endpoint_id, _row.id.in_(delivery_ids))

    async def put_back_ended(self, endpoint_id: str, *, since: datetime, now: datetime) -> int:
        """The same for all that were queued since `since` and failed or were stopped; how many there were."""
        ended = _row.status.in_([DeliveryStatus.FAILED.value, DeliveryStatus.STOPPED.value])
        return await self._restart(now, _row.endpoint_id == endpoint_id, ended, _row.created_at >= since)

    async def _restart(self, now: datetime, *which: sa.ColumnElement[bool]) -> int:
        """Restarts them with new claim numbers, so that a post in flight does not end the new series; returns how many."""
        values: dict[str, Any] = {"status": PENDING, "retrying_since": now, "due_at": now, "ended_at": sa.null()}
        restarted = sa.update(table).where(*which).values(values | {"tries": ZERO, "claims": _row.claims + 1})
        return len(await self._database.run(restarted.returning(_row.id)))


@cache
def queue(dialect: DialectName) -> sa.Executable:
    """Insert those of a batch that their endpoint does not have yet, in the batch's order."""
    given = columns_of(table, "endpoint_id event_id event_type body trace")
    batch = batch_of(sa.column("position", sa.Integer), *given)
    values: dict[str, Any] = {each.name: batch.c[each.name] for each in given}
    values |= {"status": PENDING, "created_at": _now, "retrying_since": _now, "due_at": _now}
    # WHERE, because SQLite takes ON CONFLICT after a bare SELECT … FROM for a join condition.
    rows = sa.select(*values.values()).where(ONE > ZERO).order_by(batch.c.position)
    insert = insert_into(dialect, table).from_select(list(values), rows)
    return insert.on_conflict_do_nothing(index_elements=["endpoint_id", "event_id"]).returning(_row.id)


@cache
def endpoints_due() -> sa.Executable:
    """Steps through the index from one endpoint with pending deliveries to the next, and looks for one due row of each."""
    waiting = distinct(_pending, _row.endpoint_id, _row.due_at)
    return sa.select(waiting.c.value).where(sa.exists().where(_row.endpoint_id == waiting.c.value, _due))


@cache
def claim() -> sa.Executable:
    oldest = sa.select(_row.id).where(_row.endpoint_id == _endpoint, _due).order_by(_row.due_at)
    picked = locked(oldest.limit(sa.bindparam("limit", type_=sa.Integer)))
    until = sa.bindparam("until", type_=Moment())
    claimed = sa.update(table).where(key_among(_row.id, picked))
    due = columns_of(table, "id endpoint_id event_id body retrying_since tries attempts trace")
    return claimed.values(due_at=until, claims=_row.claims + 1).returning(*due, _TYPE, _row.claims.label("claim"))


@cache
def record() -> sa.Executable:
    results = columns_of(table, "status retrying_since due_at ended_at tries attempts")
    batch = batch_of(_row.id, _row.claims, *results)
    counts = sa.or_(_row.status == PENDING, batch.c.status == _DELIVERED)
    same = (same_key(_row.id, batch.c.id), _row.claims == batch.c.claims, counts)
    return sa.update(table).where(*same).values({each.name: batch.c[each.name] for each in results})


@cache
def release() -> sa.Executable:
    batch = batch_of(_row.id, _row.claims)
    same = (same_key(_row.id, batch.c.id), _row.claims == batch.c.claims, _pending)
    return sa.update(table).where(*same).values(due_at=_now)


def endpoints() -> sa.Select[Any]:
    found = distinct(sa.true(), _row.endpoint_id, _row.event_id)
    return sa.select(found.c.value).where(found.c.value.is_not(None))


def about(request_id: str, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Deliveries about a submission, by each endpoint's index of events."""
    # The ids of events are the request id, a dot and a number; in ASCII the dot is followed by the slash.
    events = (_row.event_id > f"{request_id}.", _row.event_id < f"{request_id}/")
    return sa.select(*columns).where(key_among(_row.endpoint_id, endpoints()), *events)


def entry_of(row: sa.Row[Any]) -> DeliveryEntry:
    own = {"status": DeliveryStatus(row.status), "attempts": _attempts_of(row.attempts)}
    return DeliveryEntry(**{**row._mapping, **own})


def _attempts_of(text: str) -> tuple[DeliveryAttempt, ...]:
    return tuple(DeliveryAttempt(**each) for each in from_json(text))

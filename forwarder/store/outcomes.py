"""The statements that record what submissions came to, and that keep the events of it until they are published. No I/O."""

from typing import Any

from sqlalchemy import Executable, Integer, bindparam, column, delete, insert, null, select, update

from forwarder.store.batch import batch_of
from forwarder.store.leasing import HELD, settled_unless
from forwarder.store.tables import Moment, outbox, reservations

_row = reservations.c
_FINAL = (_row.status, _row.updated_at, _row.attempts, _row.record, _row.problem, _row.pms_reservation_id)
_EVENT = (
    outbox.c.reservation_id,
    outbox.c.request_id,
    outbox.c.revision,
    outbox.c.status,
    outbox.c.key,
    outbox.c.occurred_at,
    outbox.c.data,
    outbox.c.traceparent,
    outbox.c.created_at,
)


def finish() -> Executable:
    """Record a batch of final outcomes; the ids of those rows that were held."""
    batch = batch_of(_row.id, *_FINAL)
    values: dict[str, Any] = {given.name: batch.c[given.name] for given in _FINAL} | {
        "card": null(),
        "due_at": null(),
        "leased_by": null(),
        "pushing": False,
        "revision": _row.revision + 1,
    }
    return update(reservations).where(_row.id == batch.c.id, HELD).values(values).returning(_row.id)


def postpone() -> Executable:
    """Record a batch of tries after which there will be another."""
    batch = batch_of(_row.id, _row.updated_at, _row.attempts, _row.due_at, _row.doubtful)
    return (
        update(reservations)
        .where(_row.id == batch.c.id, HELD)
        .values(
            updated_at=batch.c.updated_at,
            attempts=batch.c.attempts,
            due_at=batch.c.due_at,
            doubtful=batch.c.doubtful,
            pushing=settled_unless(batch.c.doubtful),
            leased_by=null(),
        )
    )


def keep_events() -> Executable:
    """Put a batch of events in the outbox, in its order."""
    batch = batch_of(column("position", Integer), *_EVENT)
    rows = select(*(batch.c[given.name] for given in _EVENT)).order_by(batch.c.position)
    return (
        insert(outbox)
        .from_select([given.name for given in _EVENT], rows)
        .returning(outbox.c.id, outbox.c.reservation_id)
    )


def unpublished() -> Executable:
    """Events recorded before a moment, oldest first."""
    before = outbox.c.created_at < bindparam("before", type_=Moment())
    return select(outbox).where(before).order_by(outbox.c.id).limit(bindparam("at_most", type_=Integer))


def forget_events() -> Executable:
    """Delete a batch of events."""
    batch = batch_of(outbox.c.id)
    return delete(outbox).where(outbox.c.id.in_(select(batch.c.id)))

"""The statements for what is set aside: events that cannot be published, and rows over which workers end. No I/O."""

from functools import cache

from sqlalchemy import BigInteger, Executable, Text, bindparam, case, delete, func, select, update

from forwarder.store.sql import DialectName, Moment, batch_of, insert_into, key_among
from forwarder.store.tables import IS_SET_ASIDE, outbox, reservations, suspects


@cache
def keep_event() -> Executable:
    """Mark an event that could not be published, and let it rest until a moment."""
    return (
        update(outbox)
        .where(outbox.c.id == bindparam("outbox_id", type_=BigInteger))
        .values(
            faults=outbox.c.faults + 1,
            error_id=bindparam("error_id", type_=Text),
            publish_attempted_at=bindparam("until", type_=Moment()),
        )
    )


@cache
def count_kept() -> Executable:
    """The number of events in the outbox that could not be published."""
    return select(func.count(outbox.c.id)).where(IS_SET_ASIDE)


@cache
def suspect(dialect: DialectName) -> Executable:
    """Marks a row that a worker is about to push; returns how many workers died while they pushed it. A mark that another worker
    left counts as a death."""
    worker = bindparam("worker_id", type_=Text)
    first = insert_into(dialect, suspects).values(id=bindparam("work_id", type_=BigInteger), worker_id=worker, deaths=0)
    died = case((suspects.c.worker_id == worker, 0), else_=1)
    return first.on_conflict_do_update(
        index_elements=["id"], set_={"worker_id": worker, "deaths": suspects.c.deaths + died}
    ).returning(suspects.c.deaths)


@cache
def clear_suspects() -> Executable:
    """Clears the marks of a batch of rows whose pushes are over."""
    batch = batch_of(suspects.c.id)
    return delete(suspects).where(key_among(suspects.c.id, select(batch.c.id)))


@cache
def own_columns() -> Executable:
    """The fields of a row's reservation that are separate columns."""
    row = reservations.c
    named = (row.property_id, row.room_id, row.arrival_date, row.departure_date)
    return select(*named).where(row.id == bindparam("work_id", type_=BigInteger))

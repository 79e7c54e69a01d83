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
    """How many events could not be published and are still there."""
    return select(func.count(outbox.c.id)).where(IS_SET_ASIDE)


@cache
def suspect(dialect: DialectName) -> Executable:
    """Mark a row that a worker is about to push; how many workers have ended over it. Another one that marked it and did not clear
    the mark has."""
    worker = bindparam("worker_id", type_=Text)
    first = insert_into(dialect, suspects).values(id=bindparam("work_id", type_=BigInteger), worker_id=worker, deaths=0)
    died = case((suspects.c.worker_id == worker, 0), else_=1)
    return first.on_conflict_do_update(
        index_elements=["id"], set_={"worker_id": worker, "deaths": suspects.c.deaths + died}
    ).returning(suspects.c.deaths)


@cache
def clear_suspects() -> Executable:
    """Forget a batch of rows: it is known what became of their pushes."""
    batch = batch_of(suspects.c.id)
    return delete(suspects).where(key_among(suspects.c.id, select(batch.c.id)))


@cache
def own_columns() -> Executable:
    """What a row has of its reservation in columns of their own."""
    row = reservations.c
    named = (row.property_id, row.room_id, row.arrival_date, row.departure_date)
    return select(*named).where(row.id == bindparam("work_id", type_=BigInteger))

"""The statements of workers' leases: renewed, ended, taken over. No I/O."""

from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    Double,
    Executable,
    Text,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from forwarder.reservation.evidence import WORKER_LOST
from forwarder.store.sql import DialectName, Moment, batch_of, distinct, insert_into, key_among, locked
from forwarder.store.submissions.statements.cancellations import PENDING
from forwarder.store.submissions.statements.claims import HELD, update_of
from forwarder.store.submissions.work import UNKNOWN
from forwarder.store.tables import reservations, workers

_row = reservations.c
_worker: BindParameter[str] = bindparam("worker_id")
_now = bindparam("now", type_=Moment())
_stamp = bindparam("stamp", type_=Text())


@cache
def renew_first(dialect: DialectName) -> Executable:
    """Start a worker's lease. Takes `worker_id` and `seconds`."""
    values = {"id": _worker, "sequence": 0, "lease_seconds": bindparam("seconds", type_=Double)}
    first = insert_into(dialect, workers).values(values)
    return first.on_conflict_do_update(index_elements=["id"], set_={"sequence": workers.c.sequence + 1})


@cache
def renew_again() -> Executable:
    """Renew a lease; no row where it was taken over."""
    sequence = workers.c.sequence + 1
    return update(workers).where(workers.c.id == _worker).values(sequence=sequence).returning(workers.c.id)


@cache
def heartbeats() -> Executable:
    """Every lease holder, and how often it renewed."""
    return select(workers)


@cache
def end_lease() -> Executable:
    """End a worker's own lease."""
    return delete(workers).where(workers.c.id == _worker)


@cache
def end_leases() -> Executable:
    """End the leases of a batch of workers, unless they renewed since."""
    batch = batch_of(workers.c.id, workers.c.sequence)
    not_renewed = exists().where(batch.c.id == workers.c.id, batch.c.sequence == workers.c.sequence)
    return delete(workers).where(not_renewed)


@cache
def free_abandoned() -> Executable:
    """Frees the rows of every holder without a lease. Skips rows that the holder is writing at this moment, so as not to wait for
    it."""
    holders = distinct(_row.leased_by.is_not(None), _row.leased_by)
    has_lease = exists().where(workers.c.id == holders.c.value)
    picked = locked(select(_row.id).where(key_among(_row.leased_by, select(holders.c.value).where(~has_lease))))
    return update_of(picked).values(_abandoned()).returning(_row.id)


@cache
def abandon() -> Executable:
    """The same for a batch of rows that the worker itself holds."""
    batch = batch_of(_row.id)
    mine = update(reservations).where(key_among(_row.id, select(batch.c.id)), HELD)
    return mine.values(_abandoned()).returning(_row.id)


def _abandoned() -> dict[str, Any]:
    """The new values of a row whose holder will not record anything. A pending row may have been pushed, unless it has no target
    and was not marked; then that push is added to its evidence. Takes `stamp`, now as a text."""
    none: ColumnElement[str] = literal_column("''")
    target = func.coalesce(_row.target, none)
    sent = and_(_row.status == PENDING, or_(_row.pushing, target != none))
    start: ColumnElement[str] = literal_column("""'{"type":"push","at":"'""")
    to: ColumnElement[str] = literal_column("""'","to":'""")
    end: ColumnElement[str] = literal_column(f"""',"came":"ambiguous","reason":"{WORKER_LOST}"}}'""")
    unknown: ColumnElement[str] = literal_column(f"'{UNKNOWN}'")
    push = start + _stamp + to + case((target == none, unknown), else_=target) + end
    line_end: ColumnElement[str] = literal_column("'\n'")
    return {
        "leased_by": null(),
        "due_at": _now,
        "possibly_sent": or_(_row.possibly_sent, sent),
        "evidence": case((sent, func.coalesce(_row.evidence + line_end, none) + push), else_=_row.evidence),
        "takeovers": _row.takeovers + 1,
    }

"""The statements by which workers become holders of rows, show that they live, and lose what they held. No I/O."""

from sqlalchemy import BindParameter, Double, Executable, bindparam, delete, exists, null, select, true, update

from forwarder.store.batch import batch_of
from forwarder.store.database import Dialect
from forwarder.store.keyed import key_among
from forwarder.store.picking import distinct, insert_into, locked, update_of
from forwarder.store.tables import Moment, reservations, workers

_row = reservations.c
_worker: BindParameter[str] = bindparam("worker_id")
_now = bindparam("now", type_=Moment())


def renew_first(dialect: Dialect) -> Executable:
    """A worker's first lease. Takes `worker_id` and `seconds`."""
    values = {"id": _worker, "beat": 0, "lease_seconds": bindparam("seconds", type_=Double)}
    first = insert_into(dialect, workers).values(values)
    return first.on_conflict_do_update(index_elements=["id"], set_={"beat": workers.c.beat + 1})


def renew_again() -> Executable:
    """Prolong a lease; no row where it was taken over."""
    beat = workers.c.beat + 1
    return update(workers).where(workers.c.id == _worker).values(beat=beat).returning(workers.c.id)


def pulses() -> Executable:
    """Every lease holder, and how often it has renewed."""
    return select(workers)


def leave() -> Executable:
    """End a worker's own lease."""
    return delete(workers).where(workers.c.id == _worker)


def end_leases() -> Executable:
    """Forget the workers of a batch, unless they have renewed since."""
    batch = batch_of(workers.c.id, workers.c.beat)
    stands_still = exists().where(batch.c.id == workers.c.id, batch.c.beat == workers.c.beat)
    return delete(workers).where(stands_still)


def free_the_unheld() -> Executable:
    """Let go of the rows of every holder that is no worker any more. Those that it is writing at this moment are left for the
    next time, so that nobody waits for it."""
    holders = distinct(_row.leased_by.is_not(None), _row.leased_by)
    alive = exists().where(workers.c.id == holders.c.value)
    picked = locked(select(_row.id).where(key_among(_row.leased_by, select(holders.c.value).where(~alive))))
    return update_of(picked).values(leased_by=null(), doubtful=true(), due_at=_now).returning(_row.id)

"""The statements that ingest, claim, mark, release and revive rows. No I/O.

All changes of a worker are conditional on `HELD`: a row that it no longer holds stays unchanged.
"""

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BindParameter,
    Boolean,
    Executable,
    Integer,
    Text,
    Update,
    and_,
    bindparam,
    case,
    column,
    exists,
    false,
    func,
    literal_column,
    null,
    select,
    true,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from forwarder.store.sql import DialectName, Moment, batch_of, distinct, insert_into, key_among, locked, same_key
from forwarder.store.submissions.statements.cancellations import CONFIRMED, PENDING, cancelled_unsent, ingest_lock
from forwarder.store.tables import reservations, workers

_row = reservations.c
_worker: BindParameter[str] = bindparam("worker_id")
_now = bindparam("now", type_=Moment())
_waiting = and_(_row.due_at.is_not(None), _row.leased_by.is_(None))
_due = and_(_waiting, _row.due_at <= _now, _row.partition.in_(bindparam("partitions", expanding=True)))
_has_lease = exists().where(workers.c.id == _worker)

# Rows are found by their ids. As an expression, so that no planner goes through all rows of the holder instead.
HELD: Final = func.coalesce(_row.leased_by, literal_column("''")) == _worker

_INGESTED = (
    _row.request_id,
    _row.record_id,
    _row.workspace_id,
    _row.account_id,
    _row.partition,
    _row.log_offset,
    _row.log_timestamp_ms,
    _row.operation,
    _row.property_id,
    _row.room_id,
    _row.arrival_date,
    _row.departure_date,
    _row.fingerprint,
    _row.card,
    _row.accepted_at,
    _row.deadline_at,
    _row.trace,
    _row.natural_key,
    _row.transaction_key,
    _row.keyed,
    _row.same_key,
    _row.stay_key,
)
WORK = (
    _row.id,
    _row.request_id,
    _row.record_id,
    _row.workspace_id,
    _row.account_id,
    _row.partition,
    _row.log_offset,
    _row.log_timestamp_ms,
    _row.operation,
    _row.status,
    _row.request,
    _row.fingerprint,
    _row.card,
    _row.accepted_at,
    _row.created_at,
    _row.deadline_at,
    _row.due_at,
    _row.attempts,
    _row.tries,
    _row.revision,
    _row.possibly_sent,
    _row.pushing,
    _row.target,
    _row.evidence,
    _row.updated_at,
    _row.takeovers,
    _row.trace,
    _row.cancel_requested_at,
    _row.cancel_reason,
    _row.pms_reservation_id,
    case((_row.status == CONFIRMED, _row.record)).label("record"),
    _row.natural_key,
    _row.transaction_key,
    _row.keyed,
    _row.same_key,
    _row.stay_key,
    _row.similar_to,
)


@cache
def ingest(dialect: DialectName) -> Executable:
    """Inserts the new submissions of a batch, in the batch's order; leases those to be held, if the worker has a lease.

    A reader that has seen an id must have missed none below it. But PostgreSQL assigns ids before their rows become visible: of two
    transactions the one with the higher ids may become visible first. So a lock, held until the rows are visible, serializes them.
    It is taken before the first id is assigned: to sort the batch, all of it must have been joined with the lock.
    """
    columns = (*_INGESTED, _row.target)
    batch = batch_of(column("position", Integer), *columns, column("held", Boolean), separate=_row.request)
    source: Any = batch
    if dialect == "postgresql":
        source = batch.join(ingest_lock().subquery("ingest_lock"), true())
    values: dict[str, Any] = {each.name: batch.c[each.name] for each in (*columns, _row.request)} | {
        "status": PENDING,
        "created_at": _now,
        "updated_at": _now,
        "due_at": _now,
        "leased_by": case((and_(batch.c.held, _has_lease), _worker)),
    }
    rows = select(*values.values()).select_from(source).order_by(batch.c.position)
    insert = insert_into(dialect, reservations).from_select(list(values), rows)
    return insert.on_conflict_do_nothing(index_elements=["request_id"]).returning(
        _row.id, _row.request_id, _row.record_id, _row.leased_by
    )


@cache
def owners_of_record_ids() -> Executable:
    """Whose record ids those of a batch are, as far as they are anybody's."""
    batch = batch_of(_row.record_id)
    return select(_row.record_id, _row.request_id).where(key_among(_row.record_id, select(batch.c.record_id)))


@cache
def claim() -> Executable:
    """Leases the account's due rows, oldest due first; skips rows that another worker is claiming."""
    oldest = select(_row.id).where(_row.account_id == bindparam("account"), _due, _has_lease)
    picked = locked(oldest.order_by(_row.due_at, _row.id).limit(bindparam("limit", type_=Integer)))
    target = bindparam("target", type_=Text())
    return update_of(picked).values(leased_by=_worker, target=target).returning(*WORK)


@cache
def claim_expired() -> Executable:
    """Leases rows of any account whose deadline has passed, due or not: pending ones, and those to be cancelled. The worker does
    not push them."""
    # Literally the index's condition: only then can a prepared statement use it.
    pending = and_(_row.status != literal_column("'IN_DOUBT'"), _waiting, _row.deadline_at <= _now)
    mine = _row.partition.in_(bindparam("partitions", expanding=True))
    oldest = select(_row.id).where(pending, mine, _has_lease).order_by(_row.deadline_at, _row.id)
    picked = locked(oldest.limit(bindparam("limit", type_=Integer)))
    return update_of(picked).values(leased_by=_worker, target=null()).returning(*WORK)


@cache
def accounts_due() -> Executable:
    """The accounts with due rows: from one waiting account to the next by the index, looking for one due row in each."""
    waiting = distinct(_waiting, _row.account_id, _row.due_at)
    due = exists().where(_row.account_id == waiting.c.value, _due)
    return select(waiting.c.value).where(due)


@cache
def backlog() -> Executable:
    """The number of rows that are due and not leased, and since when the oldest is due."""
    figures = (func.count().label("due"), func.min(_row.due_at).label("oldest_due_at"))
    return select(*figures).select_from(reservations).where(_waiting, _row.due_at <= _now)


def _failed_with(revision: ColumnElement[int]) -> ColumnElement[bool]:
    return and_(
        _row.status == literal_column("'FAILED'"),
        _row.revision == revision,
        # Anonymized rows cannot be replayed. Written as a CASE so that the planner does not scan the whole index of failed rows for
        # the few rows of a batch.
        case((_row.anonymized_at.is_(None), literal_column("1")), else_=literal_column("0")) == literal_column("1"),
    )


@cache
def replayable() -> Executable:
    """The request ids of a batch that `revive` would make pending."""
    batch = batch_of(_row.request_id, _row.revision)
    there = same_key(_row.request_id, batch.c.request_id)
    return select(_row.request_id).where(there, _failed_with(batch.c.revision))


@cache
def revive() -> Executable:
    """Makes failed submissions of a batch pending again, with the cards of their dead letters, if they failed with the letter's
    revision, so that a letter works once. Returns the ids of those revived."""
    batch = batch_of(_row.request_id, _row.revision, _row.partition, _row.card, _row.deadline_at)
    values = {
        "status": PENDING,
        "partition": batch.c.partition,
        "card": batch.c.card,
        "deadline_at": batch.c.deadline_at,
        "updated_at": _now,
        "due_at": _now,
        "tries": literal_column("0"),
        "record": null(),
        "problem": null(),
    }
    return (
        update(reservations)
        .where(same_key(_row.request_id, batch.c.request_id), _failed_with(batch.c.revision))
        .values(values)
        .returning(_row.id)
    )


@cache
def make_due() -> Executable:
    """Make rows of a batch due now that wait for later, and are not held; their ids."""
    batch = batch_of(_row.id)
    waiting = (key_among(_row.id, select(batch.c.id)), _row.due_at > _now, _row.leased_by.is_(None))
    return update(reservations).where(*waiting).values(due_at=_now).returning(_row.id)


@cache
def release() -> Executable:
    """Frees the rows of a batch. A cancelled row that was not sent gets its last due time as its deadline. A row that was never
    tried becomes due at its acceptance time, because its worker's clock may be ahead of the others'; other rows keep theirs."""
    deadline_at = case((cancelled_unsent(_row.possibly_sent), _row.due_at), else_=_row.deadline_at)
    never_tried = and_(_row.tries == literal_column("0"), _row.accepted_at < _row.due_at)
    return _of_the_batch().values(
        leased_by=null(),
        pushing=pushing_unless_unsent(_row.possibly_sent),
        deadline_at=deadline_at,
        due_at=case((never_tried, _row.accepted_at), else_=_row.due_at),
    )


@cache
def leased_ids() -> Executable:
    """The ids of a worker's rows."""
    return select(_row.id).where(_row.leased_by == _worker)


@cache
def mark_pushing() -> Executable:
    """Note the intent to push rows of a batch; the ids of those still held."""
    return _of_the_batch().values(pushing=true()).returning(_row.id)


def pushing_unless_unsent(possibly_sent: ColumnElement[bool]) -> ColumnElement[bool]:
    """Clears the intent to push if surely nothing was sent; keeps it otherwise."""
    return case((possibly_sent, _row.pushing), else_=false())


def update_of(picked: CTE) -> Update:
    """An update of the picked rows."""
    return update(reservations).where(key_among(_row.id, select(picked.c.id)))


def _of_the_batch() -> Update:
    batch = batch_of(_row.id)
    return update(reservations).where(key_among(_row.id, select(batch.c.id)), HELD)

"""The statements that record outcomes, and keep their events in the outbox until they are published. No I/O."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import (
    Executable,
    FromClause,
    Insert,
    Integer,
    TableValuedAlias,
    Text,
    Update,
    and_,
    bindparam,
    case,
    column,
    delete,
    exists,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from forwarder.store.sql import Moment, batch_of, key_among, same_key
from forwarder.store.submissions.statements.cancellations import CANCEL_REQUESTED, CONFIRMED, PENDING, cancelled_unsent
from forwarder.store.submissions.statements.claims import HELD, pushing_unless_unsent
from forwarder.store.tables import outbox, reservations

_IN_DOUBT: ColumnElement[str] = literal_column("'IN_DOUBT'")

_row = reservations.c
_in_doubt = _row.status == _IN_DOUBT
_OUTCOME = (
    _row.status,
    _row.updated_at,
    _row.due_at,
    _row.attempts,
    _row.problem,
    _row.pms_reservation_id,
    _row.cancelled_at,
    _row.cancel_problem,
    _row.failure_class,
)
_EVENT = (
    outbox.c.request_id,
    outbox.c.key,
    outbox.c.occurred_at,
    column("before", Text()),
    column("after", Text()),
    outbox.c.trace,
    outbox.c.dead_letter,
)


@cache
def record() -> Executable:
    """`finish` and `insert_events` in one, for PostgreSQL; the ids of the events and of their rows. SQLite cannot do that."""
    batch = _outcomes()
    event = _event_values(batch)
    named = (value.label(name) for name, value in event.items())
    finished = _finish(HELD, batch).returning(batch.c.position, *named).cte("finished")
    return _insert_events({name: finished.c[name] for name in event}, finished.c.position)


@cache
def finish() -> Executable:
    """Record a batch of outcomes; the ids of those rows that were held."""
    return _finish(HELD, _outcomes()).returning(_row.id)


@cache
def settle() -> Executable:
    """Like `finish`, for rows in doubt that are unchanged since they were read, even if a worker holds them."""
    return _finish(_in_doubt, _outcomes()).returning(_row.id)


@cache
def restore() -> Executable:
    """Like `finish`, for rows of any earlier revision, even if a worker holds them."""
    return _finish(true(), _outcomes(), following=False).returning(_row.id)


@cache
def reopen() -> Executable:
    """Makes a row in doubt pending again if it is unchanged since it was read. Not while a worker looks it up, whose result would
    overwrite that of the next push."""
    batch = batch_of(_row.id, _row.revision, _row.updated_at, _row.attempts, _row.deadline_at)
    return (
        update(reservations)
        .where(same_key(_row.id, batch.c.id), _row.revision == batch.c.revision, _in_doubt, _row.leased_by.is_(None))
        .values(
            status=PENDING,
            updated_at=batch.c.updated_at,
            due_at=batch.c.updated_at,
            attempts=batch.c.attempts,
            deadline_at=batch.c.deadline_at,
            tries=literal_column("0"),
            possibly_sent=False,
            pushing=False,
            leased_by=null(),
            record=null(),
            problem=null(),
        )
        .returning(_row.id)
    )


def _outcomes() -> TableValuedAlias:
    own = (
        column("position", Integer),
        _row.id,
        _row.revision,
        *_OUTCOME,
        column("cancel_by", Moment()),
        _row.evidence,
        _row.doubles,
    )
    return batch_of(*own, *_EVENT, separate=_row.record)


def _finish(condition: ColumnElement[bool], batch: FromClause, *, following: bool = True) -> Update:
    # The cancellation came while the row was being pushed: now it can be cancelled.
    to_cancel = and_(batch.c.status == CONFIRMED, batch.c.cancel_problem.is_(None), CANCEL_REQUESTED)
    values: dict[str, Any] = {given.name: batch.c[given.name] for given in (*_OUTCOME, _row.record)} | {
        # A row in doubt may have to be pushed again, with its card.
        "card": case((batch.c.status == _IN_DOUBT, _row.card)),
        "leased_by": null(),
        "pushing": False,
        "possibly_sent": batch.c.status == _IN_DOUBT,
        "evidence": batch.c.evidence,
        "doubles": func.coalesce(batch.c.doubles, _row.doubles),
        "tries": case((batch.c.status == CONFIRMED, literal_column("0")), else_=_row.tries + 1),
        "revision": batch.c.revision,
        "due_at": case((to_cancel, batch.c.updated_at), else_=batch.c.due_at),
        "deadline_at": case((to_cancel, func.coalesce(batch.c.cancel_by, _row.deadline_at)), else_=_row.deadline_at),
    }
    unchanged = _row.revision == batch.c.revision - 1 if following else _row.revision < batch.c.revision
    return update(reservations).where(same_key(_row.id, batch.c.id), unchanged, condition).values(values)


@cache
def postpone() -> Executable:
    """Record a batch of tries after which there will be another."""
    batch = batch_of(
        _row.id, _row.revision, _row.updated_at, _row.attempts, _row.due_at, _row.possibly_sent, _row.evidence
    )
    over = cancelled_unsent(batch.c.possibly_sent)
    return (
        update(reservations)
        .where(same_key(_row.id, batch.c.id), _row.revision == batch.c.revision, HELD)
        .values(
            updated_at=batch.c.updated_at,
            attempts=batch.c.attempts,
            tries=_row.tries + 1,
            due_at=case((over, batch.c.updated_at), else_=batch.c.due_at),
            deadline_at=case((over, batch.c.updated_at), else_=_row.deadline_at),
            possibly_sent=batch.c.possibly_sent,
            evidence=batch.c.evidence,
            pushing=pushing_unless_unsent(batch.c.possibly_sent),
            leased_by=null(),
        )
    )


@cache
def insert_events() -> Executable:
    """Put the events of a batch of outcomes in the outbox, in the batch's order."""
    batch = _outcomes()
    return _insert_events(_event_values(batch), batch.c.position)


def _event_values(batch: FromClause) -> dict[str, ColumnElement[Any]]:
    return {
        "reservation_id": batch.c.id,
        "request_id": batch.c.request_id,
        "revision": batch.c.revision,
        "status": batch.c.status,
        "key": batch.c.key,
        "occurred_at": batch.c.occurred_at,
        "data": batch.c.before + batch.c.record + batch.c.after,
        "trace": batch.c.trace,
        "dead_letter": batch.c.dead_letter,
        "publish_attempted_at": batch.c.updated_at,
    }


def _insert_events(event: Mapping[str, ColumnElement[Any]], position: ColumnElement[int]) -> Insert:
    rows = select(*event.values()).order_by(position)
    return insert(outbox).from_select(list(event), rows).returning(outbox.c.id, outbox.c.reservation_id)


@cache
def unpublished_of() -> Executable:
    """The rows of a batch that have an event in the outbox."""
    batch = batch_of(outbox.c.reservation_id)
    waiting = outbox.c.reservation_id.in_(select(batch.c.reservation_id))
    return select(outbox.c.reservation_id).where(waiting).distinct()


@cache
def republish() -> Executable:
    """Events last handed out before a moment, oldest first; now they are handed out again. An event waits for the earlier ones of
    its submission, so that none is ever published after a later one."""
    stale = outbox.c.publish_attempted_at < bindparam("before", type_=Moment())
    earlier = outbox.alias("earlier")
    has_earlier = exists().where(earlier.c.reservation_id == outbox.c.reservation_id, earlier.c.id < outbox.c.id)
    # Nearly all are a submission's first event, which needs no look-up.
    in_turn = or_(outbox.c.revision == literal_column("1"), ~has_earlier)
    oldest = select(outbox.c.id).where(stale, in_turn).order_by(outbox.c.id)
    picked = oldest.limit(bindparam("limit", type_=Integer)).with_for_update(skip_locked=True, of=outbox).cte("picked")
    publish_attempted_at = bindparam("now", type_=Moment())
    return (
        update(outbox)
        .where(key_among(outbox.c.id, select(picked.c.id)))
        .values(publish_attempted_at=publish_attempted_at)
        .returning(*outbox.c)
    )


@cache
def forget_events() -> Executable:
    """Delete a batch of events."""
    batch = batch_of(outbox.c.id)
    return delete(outbox).where(key_among(outbox.c.id, select(batch.c.id)))

"""The statements that match cancellations with their submissions, in either order of arrival.

A cancellation whose submission was not ingested yet is parked. Both are ingested under one lock: the second finds the first. The
deadline of a submission that was surely not sent is brought forward: its keeper ends it, even if the account's queue is closed."""

from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from forwarder.store.batches import batch_of, in_batch, same_key
from forwarder.store.sql import ZERO, DialectName, Moment, insert_into, literal
from forwarder.store.tables import CANCELLED, CONFIRMED, PENDING, parked_cancellations, reservations

_row = reservations.c
_parked = parked_cancellations.c
_now = sa.bindparam("now", type_=Moment())

# As an expression, so that no planner scans all rows of the account instead of finding the one.
_account_id = sa.func.coalesce(_row.account_id, literal(""))
CANCEL_REQUESTED: Final = _row.cancel_requested_at.is_not(None)
noted_on = sa.select(_row.request_id, _row.partition, _row.leased_by).where(in_batch(_row.request_id))


def ingest_lock() -> sa.Select[Any]:
    """Takes an advisory lock for ingesting, which nothing else uses, until the transaction ends. SQLite has one writer anyway."""
    return sa.select(sa.func.pg_advisory_xact_lock(sa.literal_column(str(0x72657376))).label("taken"))


def _is_new(revision: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    failed_before = sa.and_(_row.cancel_problem.is_not(None), _row.revision == revision)
    return sa.and_(sa.or_(~CANCEL_REQUESTED, failed_before), _row.status != CANCELLED)


@cache
def not_noted() -> sa.Select[Any]:
    """How many of a batch of cancellations `note` would note."""
    batch = batch_of(_row.request_id, _row.revision)
    there = same_key(_row.request_id, batch.c.request_id)
    return sa.select(sa.func.count().label("lacking")).select_from(reservations).where(there, _is_new(batch.c.revision))


@cache
def note() -> sa.Executable:
    """Notes a batch of cancellations on their rows, where none is noted yet or one failed with the revision named here."""
    batch = batch_of(*_parked, _row.revision, _row.deadline_at)
    unsent = sa.and_(_row.status == PENDING, _row.leased_by.is_(None), ~_row.possibly_sent)
    # Of an outcome that was restored before its cancellation: this is the one that failed, or an earlier one.
    stays_failed = sa.and_(_row.cancel_problem.is_not(None), _row.revision != batch.c.revision)
    confirmed = sa.and_(_row.status == CONFIRMED, ~stays_failed)
    values = {
        "cancel_requested_at": batch.c.requested_at,
        "cancel_reason": batch.c.reason,
        "cancel_problem": sa.case((stays_failed, _row.cancel_problem)),
        "due_at": sa.case((sa.or_(unsent, confirmed), _now), else_=_row.due_at),
        "deadline_at": sa.case((unsent, _now), (confirmed, batch.c.deadline_at), else_=_row.deadline_at),
        # From now on the row belongs to the canceller's trace.
        "trace": sa.func.coalesce(batch.c.trace, _row.trace),
        "tries": sa.case((confirmed, ZERO), else_=_row.tries),
        # The PMS's answer to the cancellation may contain the guest's data again.
        "anonymized_at": sa.case((confirmed, sa.null()), else_=_row.anonymized_at),
    }
    theirs = sa.and_(same_key(_row.request_id, batch.c.request_id), _account_id == batch.c.account_id)
    return sa.update(reservations).where(theirs, _is_new(batch.c.revision)).values(values)


@cache
def park(dialect: DialectName) -> sa.Executable:
    batch = batch_of(*_parked)
    rows = sa.select(*batch.c).where(_reservation_id(batch.c.request_id).is_(None))
    kept = insert_into(dialect, parked_cancellations).from_select([column.name for column in _parked], rows)
    return kept.on_conflict_do_nothing(index_elements=["request_id"])


@cache
def unpark() -> sa.Executable:
    """Notes parked cancellations on the rows just ingested, and ends their leases; returns their ids and what was noted."""
    # An expression, lest a planner look rows up among the parked ones.
    request_id = sa.func.coalesce(_parked.request_id, literal(""))
    theirs = sa.and_(same_key(_row.request_id, request_id), _account_id == _parked.account_id)
    values = {
        "cancel_requested_at": _parked.requested_at,
        "cancel_reason": _parked.reason,
        "trace": sa.func.coalesce(_parked.trace, _row.trace),
        "leased_by": sa.null(),
        "due_at": _now,
        "deadline_at": _now,
    }
    noted = sa.update(reservations).where(theirs, ~CANCEL_REQUESTED).values(values)
    return noted.returning(_row.id, _row.cancel_requested_at, _row.cancel_reason)


def _reservation_id(request_id: sa.ColumnElement[str]) -> sa.ColumnElement[int | None]:
    """The row's id, or NULL. As a value it is looked up for each row; as a condition it would become a join."""
    return sa.select(_row.id).where(_row.request_id == request_id).scalar_subquery()


forget_parked = sa.delete(parked_cancellations).where(_reservation_id(_parked.request_id).is_not(None))


def cancelled_unsent(possibly_sent: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether a released row must not be sent any more."""
    return sa.and_(CANCEL_REQUESTED, _row.status == PENDING, ~possibly_sent)

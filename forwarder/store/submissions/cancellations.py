"""The statements by which cancellations reach the rows that they are for, in whichever order the two come. No I/O.

A cancellation whose submission has not been taken in yet is parked. Both come in by turns, so that neither passes the other unseen:
whoever is second finds the first.

What was surely not sent yet has its deadline brought forward: whoever keeps deadlines ends it, though its lane be closed.
"""

from typing import Any, Final

from sqlalchemy import (
    Executable,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from forwarder.store.sql import DialectName, Moment, batch_of, insert_into, same_key
from forwarder.store.tables import parked_cancellations, reservations

_TURN_TO_COME_IN: Final = 0x72657376
"""The number of a lock: any that nobody else takes."""

PENDING: Final[ColumnElement[str]] = literal_column("'PENDING'")
CONFIRMED: Final[ColumnElement[str]] = literal_column("'CONFIRMED'")

_row = reservations.c
_parked = parked_cancellations.c
_now = bindparam("now", type_=Moment())
_NONE: ColumnElement[str] = literal_column("''")

# Not being a plain column, this keeps a planner from going through all rows of the account instead of the one.
_their_account = func.coalesce(_row.account_id, _NONE)

ASKED: Final = _row.cancel_requested_at.is_not(None)
"""The row's cancellation was asked for."""


def turn() -> Select[Any]:
    """Wait for the turn to bring rows or cancellations in: a lock of PostgreSQL that ends with the transaction. SQLite has but one
    writer at a time."""
    return select(func.pg_advisory_xact_lock(literal_column(str(_TURN_TO_COME_IN))).label("taken"))


def ask() -> Executable:
    """Note a batch of cancellations on their rows, those of them that are news there."""
    batch = batch_of(
        _row.request_id,
        _row.account_id,
        _row.revision,
        _row.cancel_requested_at,
        _row.cancel_reason,
        _row.deadline_at,
    )
    came_to_nothing = and_(_row.cancel_problem.is_not(None), _row.revision == batch.c.revision)
    news = and_(or_(~ASKED, came_to_nothing), _row.status != literal_column("'CANCELLED'"))
    unsent = and_(_row.status == PENDING, _row.leased_by.is_(None), ~_row.possibly_sent)
    made = _row.status == CONFIRMED
    values = {
        "cancel_requested_at": batch.c.cancel_requested_at,
        "cancel_reason": batch.c.cancel_reason,
        "cancel_problem": null(),
        "due_at": case((or_(unsent, made), _now), else_=_row.due_at),
        "deadline_at": case((unsent, _now), (made, batch.c.deadline_at), else_=_row.deadline_at),
        "tries": case((made, literal_column("0")), else_=_row.tries),
    }
    theirs = and_(same_key(_row.request_id, batch.c.request_id), _their_account == batch.c.account_id)
    return update(reservations).where(theirs, news).values(values)


def park(dialect: DialectName) -> Executable:
    """Keep those of a batch whose submission is not there yet."""
    batch = batch_of(_parked.request_id, _parked.account_id, _parked.requested_at, _parked.reason)
    columns = (_parked.request_id, _parked.account_id, _parked.requested_at, _parked.reason)
    rows = select(*(batch.c[column.name] for column in columns)).where(_there(batch.c.request_id).is_(None))
    kept = insert_into(dialect, parked_cancellations).from_select([column.name for column in columns], rows)
    return kept.on_conflict_do_nothing(index_elements=["request_id"])


def any_parked() -> Select[Any]:
    """A row where anything is parked."""
    return select(literal_column("1")).select_from(parked_cancellations).limit(literal_column("1"))


def unpark() -> Executable:
    """Note on the rows that were just taken in what was parked for them, and let go of them; their ids."""
    request_id = func.coalesce(_parked.request_id, _NONE)  # so that rows are not looked up among those that are parked
    theirs = and_(same_key(_row.request_id, request_id), _their_account == _parked.account_id)
    return (
        update(reservations)
        .where(theirs, ~ASKED)
        .values(
            cancel_requested_at=_parked.requested_at,
            cancel_reason=_parked.reason,
            leased_by=null(),
            due_at=_now,
            deadline_at=_now,
        )
        .returning(_row.id)
    )


def forget_parked() -> Executable:
    """Delete what is parked for rows that are there."""
    return delete(parked_cancellations).where(_there(_parked.request_id).is_not(None))


def _there(request_id: ColumnElement[str]) -> ColumnElement[int | None]:
    """The id of the row, or NULL. As a value it is looked up for each; as a condition it would be a join."""
    return select(_row.id).where(_row.request_id == request_id).scalar_subquery()


def unsent_unless(possibly_sent: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a row that is given up is one that was surely not sent, and is not to be any more."""
    return and_(ASKED, _row.status == PENDING, ~possibly_sent)

"""The statements about what was just ingested and is an earlier submission sent again. No I/O.

Ingests take turns, so that the second of two always sees the first; but only in a statement of its own: one that waited for its
turn does not see what was done meanwhile. `repeats` says in what order they are carried out.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Executable,
    FromClause,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    not_,
    null,
    or_,
    select,
    true,
    union_all,
    update,
)

from forwarder.reservation.duplicates import POSSIBLE
from forwarder.reservation.outcome import Status
from forwarder.store.sql import DialectName, batch_of, key_among, same_key
from forwarder.store.tables import duplicates, parked_cancellations, recognised_by, reservations

_LOOKED_AT: Final[ColumnElement[int]] = literal_column("16")
"""Of the earlier ones with one key, so many at most, the newest. More are alike only where each has an Idempotency-Key."""

_new = reservations.alias("new")
_old = reservations.alias("old")
_NONE: Final[ColumnElement[str]] = literal_column("''")
POSSIBLE_STATUSES: Final[Sequence[ColumnElement[str]]] = [
    literal_column(f"'{status}'") for status in Status if status in POSSIBLE
]


@cache
def look(dialect: DialectName) -> CompoundSelect[Any]:
    """What is known about the rows from `first` to `last`, all just ingested: the earlier ones with the same transaction, or, where
    they have none, natural key; which of them are known to repeat another; and whether any cancellation is parked."""
    one: ColumnElement[int] = literal_column("1")
    any_parked = select(one).select_from(parked_cancellations).limit(one).scalar_subquery()
    parked = select(*[null()] * 10).where(any_parked.is_not(None))
    return union_all(_sent_before(dialect), parked)


def _sent_before(dialect: DialectName) -> Select[Any]:
    """Of each of the rows the earlier ones that are recognised by the same, of which a reservation may be; and, as `original`, what
    it was found to repeat before, if the log delivered it again."""
    if dialect == "postgresql":
        earlier = _newest_like(_old).lateral("earlier")
        known = select(duplicates.c.duplicate_of).where(same_key(duplicates.c.request_id, _new.c.request_id))
        found = known.correlate(_new).lateral("known")
        source, original, about = (
            _new.outerjoin(found, true()).outerjoin(earlier, true()),
            found.c.duplicate_of,
            earlier.c,
        )
        return _rows_of(source, original, list(about))
    # SQLite has no LATERAL, but evaluates such a list of ids anew for each row.
    alike = reservations.alias("alike")
    ids = _newest_like(alike).with_only_columns(alike.c.id)
    source = _new.outerjoin(duplicates, duplicates.c.request_id == _new.c.request_id).outerjoin(
        _old, _old.c.id.in_(ids)
    )
    return _rows_of(source, duplicates.c.duplicate_of, _about(_old))


def _rows_of(source: FromClause, original: ColumnElement[str], about: Sequence[ColumnElement[Any]]) -> Select[Any]:
    found = or_(original.is_not(None), about[0].is_not(None))
    columns = (_new.c.id.label("new_id"), original.label("original"), *about)
    return select(*columns).select_from(source).where(_just_ingested(), found)


def _newest_like(old: FromClause) -> Select[Any]:
    found = recognised_by(old.c)
    conditions = (
        same_key(found, recognised_by(_new.c)),
        # Those of its own batch are known without being looked for.
        old.c.id < bindparam("first", type_=old.c.id.type),
        # Literally the index's condition: only then can it be used.
        old.c.natural_key.is_not(None),
        old.c.status.in_(POSSIBLE_STATUSES),
    )
    newest = select(*_about(old)).where(*conditions).order_by(found.desc(), old.c.id.desc()).limit(_LOOKED_AT)
    return newest.correlate(_new)


def _about(old: FromClause) -> Sequence[ColumnElement[Any]]:
    return (
        old.c.id.label("old_id"),
        old.c.request_id,
        old.c.natural_key,
        old.c.transaction_key,
        old.c.keyed,
        old.c.status,
        old.c.accepted_at,
        old.c.cancel_requested_at,
    )


def _just_ingested() -> ColumnElement[bool]:
    first, last = (bindparam(name, type_=_new.c.id.type) for name in ("first", "last"))
    return and_(_new.c.id >= first, _new.c.id <= last)


@cache
def take_back() -> Executable:
    """Delete the rows of a batch, just ingested: each is an earlier one sent again."""
    batch = batch_of(reservations.c.id)
    return delete(reservations).where(key_among(reservations.c.id, select(batch.c.id)))


@cache
def keep() -> Executable:
    """Note which submissions those were, and whose they are."""
    batch = batch_of(*duplicates.c)
    columns = [column.name for column in duplicates.c]
    return insert(duplicates).from_select(columns, select(*(batch.c[name] for name in columns)))


@cache
def mark_keyed() -> Executable:
    """A keyed submission is this one: it takes another key to ask for one more."""
    batch = batch_of(reservations.c.id)
    return update(reservations).where(key_among(reservations.c.id, select(batch.c.id))).values(keyed=true())


@cache
def refuse() -> Executable:
    """They reuse a transaction, and never stand."""
    batch = batch_of(reservations.c.id, reservations.c.transaction_of)
    values = {"transaction_of": batch.c.transaction_of, "natural_key": null(), "transaction_key": null()}
    return update(reservations).where(same_key(reservations.c.id, batch.c.id)).values(values)


@cache
def superseded() -> Select[Any]:
    """Of a batch of failed submissions those for which a later one was sent that still stands, and the request id of that."""
    batch, later = batch_of(_old.c.request_id), reservations.alias("later")
    by = _standing_later(later)
    named = key_among(_old.c.request_id, select(batch.c.request_id))
    found = select(_old.c.request_id, by.label("later")).where(named).subquery()
    return select(*found.c).where(found.c.later.is_not(None))


def _standing_later(later: FromClause) -> ColumnElement[Any]:
    found = recognised_by(later.c)
    conditions = (
        same_key(found, recognised_by(_old.c)),
        later.c.id > _old.c.id,
        later.c.natural_key.is_not(None),
        later.c.status.in_(POSSIBLE_STATUSES),
        later.c.cancel_requested_at.is_(None),
        not_(and_(later.c.keyed, _old.c.keyed)),
    )
    newest = select(later.c.request_id).where(*conditions).order_by(found.desc(), later.c.id.desc())
    return newest.limit(literal_column("1")).correlate(_old).scalar_subquery()


@cache
def originals() -> Select[Any]:
    """Which submissions those of a batch repeat, as far as they repeat any."""
    batch = batch_of(duplicates.c.request_id)
    return select(duplicates.c.request_id, duplicates.c.duplicate_of).where(
        key_among(duplicates.c.request_id, select(batch.c.request_id))
    )


def original_of(request_id: ColumnElement[str]) -> ColumnElement[str]:
    """The request id under which a submission has its row: that of the one it repeats, or its own."""
    found = select(duplicates.c.duplicate_of).where(duplicates.c.request_id == request_id).scalar_subquery()
    return func.coalesce(found, request_id)


def fingerprint_of(request_id: ColumnElement[str]) -> ColumnElement[str | None]:
    """The fingerprint of a duplicate; NULL for what is none."""
    return select(duplicates.c.fingerprint).where(duplicates.c.request_id == request_id).scalar_subquery()

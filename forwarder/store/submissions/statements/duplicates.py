"""The statements about just ingested submissions that repeat an earlier one, are similar to one, or have another body under its
idempotency key. No I/O.

A lock serializes ingests, so that the second of two always sees the first; but only in a later statement: the one that waited for
the lock does not see rows committed meanwhile. `repeats` has the order of execution.
"""

from collections.abc import Callable, Sequence
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
    null,
    select,
    true,
    type_coerce,
    union_all,
    update,
)

from forwarder.reservation.duplicates import POSSIBLE
from forwarder.reservation.outcome import Status
from forwarder.store.sql import DialectName, batch_of, key_among, same_key
from forwarder.store.tables import duplicates, parked_cancellations, recognised_by, reservations

_LOOKED_AT: Final[ColumnElement[int]] = literal_column("16")
"""The maximum number of earlier submissions per key, newest first. More have the same key only if each has an Idempotency-Key."""

_new = reservations.alias("new")
_old = reservations.alias("old")
_NONE: Final[ColumnElement[str]] = literal_column("''")
POSSIBLE_STATUSES: Final[Sequence[ColumnElement[str]]] = [
    literal_column(f"'{status}'") for status in Status if status in POSSIBLE
]


@cache
def look(dialect: DialectName) -> CompoundSelect[Any]:
    """For the rows from `first` to `last`, all just ingested: the earlier ones with the same content, or the same stay and guest;
    which of the rows are recorded repeats; and whether any cancellation is parked. An earlier one may occur several times."""
    one: ColumnElement[int] = literal_column("1")
    any_parked = select(one).select_from(parked_cancellations).limit(one).scalar_subquery()
    parked = select(*[null()] * (2 + len(_about(_old)))).where(any_parked.is_not(None))
    alike = [_alike(dialect, find) for find in (_newest_like, _same, _of_the_stay)]
    return union_all(_known_duplicates(), *alike, parked)


def _known_duplicates() -> Select[Any]:
    """The recorded original of a row (as `original`), if the log delivered the row again."""
    # A union takes its column types from its first part.
    nothing = [type_coerce(null(), column.type).label(column.name) for column in _about(_old)]
    source = _new.join(duplicates, same_key(duplicates.c.request_id, _new.c.request_id))
    columns = (_new.c.id.label("new_id"), duplicates.c.duplicate_of.label("original"), *nothing)
    return select(*columns).select_from(source).where(_just_ingested())


def _alike(dialect: DialectName, find: Callable[[FromClause], Select[Any]]) -> Select[Any]:
    """For each row the earlier ones that `find` finds and that may lead to a reservation."""
    source, about = _with_found(dialect, find)
    columns = (_new.c.id.label("new_id"), null().label("original"), *about)
    return select(*columns).select_from(source).where(_just_ingested())


def _with_found(
    dialect: DialectName, find: Callable[[FromClause], Select[Any]]
) -> tuple[FromClause, Sequence[ColumnElement[Any]]]:
    """The rows joined with the result of `find` for each, and the columns of that result."""
    if dialect == "postgresql":
        earlier = find(_old).lateral("earlier")
        return _new.join(earlier, true()), [*earlier.c]
    # SQLite has no LATERAL, but evaluates such a list of ids for each row.
    alike = reservations.alias("alike")
    return _new.join(_old, _old.c.id.in_(find(alike).with_only_columns(alike.c.id))), _about(_old)


def _newest_like(old: FromClause) -> Select[Any]:
    """The newest with the same key of releases before 0.2: the transaction, or the natural key if there is none."""
    found = recognised_by(old.c)
    conditions = (
        same_key(found, recognised_by(_new.c)),
        # Rows of the same batch are in memory.
        old.c.id < bindparam("first", type_=old.c.id.type),
        # Literally the index's condition: only then can it be used.
        old.c.natural_key.is_not(None),
        old.c.status.in_(POSSIBLE_STATUSES),
    )
    newest = select(*_about(old)).where(*conditions).order_by(found.desc(), old.c.id.desc()).limit(_LOOKED_AT)
    return newest.correlate(_new)


def _same(old: FromClause) -> Select[Any]:
    """The newest with the same content, regardless of how many have the same stay."""
    found = select(*_about(old)).where(*_has_its_stay(old), old.c.same_key == _new.c.same_key)
    newest = found.order_by(old.c.stay_key.desc(), old.c.same_key.desc(), old.c.id.desc()).limit(_LOOKED_AT)
    return newest.correlate(_new)


def _of_the_stay(old: FromClause) -> Select[Any]:
    """Some with the same stay and guest."""
    return select(*_about(old)).where(*_has_its_stay(old)).limit(_LOOKED_AT).correlate(_new)


def _has_its_stay(old: FromClause) -> Sequence[ColumnElement[bool]]:
    return (
        old.c.stay_key == _new.c.stay_key,
        old.c.id < bindparam("first", type_=old.c.id.type),
        # Literally the index's condition: only then can it be used.
        old.c.stay_key.is_not(None),
        old.c.status.in_(POSSIBLE_STATUSES),
    )


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
        old.c.cancel_problem,
        old.c.same_key,
        old.c.stay_key,
    )


def _just_ingested() -> ColumnElement[bool]:
    first, last = (bindparam(name, type_=_new.c.id.type) for name in ("first", "last"))
    return and_(_new.c.id >= first, _new.c.id <= last)


@cache
def take_back() -> Executable:
    """Deletes just ingested rows, each of which repeats an earlier one."""
    batch = batch_of(reservations.c.id)
    return delete(reservations).where(key_among(reservations.c.id, select(batch.c.id)))


@cache
def keep() -> Executable:
    """Records those submissions as duplicates."""
    batch = batch_of(*duplicates.c)
    columns = [column.name for column in duplicates.c]
    return insert(duplicates).from_select(columns, select(*(batch.c[name] for name in columns)))


@cache
def mark_keyed() -> Executable:
    """Marks rows that a keyed submission repeats: a further reservation needs another key."""
    batch = batch_of(reservations.c.id)
    return update(reservations).where(key_among(reservations.c.id, select(batch.c.id))).values(keyed=true())


@cache
def note_similar() -> Executable:
    """Notes similar submissions on the rows of a batch."""
    batch = batch_of(reservations.c.id, reservations.c.similar_to)
    values = {"similar_to": batch.c.similar_to}
    return update(reservations).where(same_key(reservations.c.id, batch.c.id)).values(values)


@cache
def fingerprints_of() -> Select[Any]:
    """For a batch of known request ids: the row that each has or repeats, and its own fingerprint."""
    asked = batch_of(reservations.c.request_id).c.request_id
    own = func.coalesce(fingerprint_of(asked), reservations.c.fingerprint).label("fingerprint")
    found = same_key(reservations.c.request_id, original_of(asked))
    return select(asked.label("asked_as"), reservations.c.id, own).where(found)


@cache
def note_conflicts() -> Executable:
    """Notes on the rows of a batch when another body under their idempotency key was accepted. The time only increases, so that a
    redelivered message changes nothing."""
    row = reservations.c
    batch = batch_of(row.id, row.conflicting_at)
    later = func.coalesce(row.conflicting_at, batch.c.conflicting_at) <= batch.c.conflicting_at
    return update(reservations).where(same_key(row.id, batch.c.id), later).values(conflicting_at=batch.c.conflicting_at)


EVERY_ROW: Final = {"first": 2**63 - 1}
"""The parameters of `alike_of` other than its batch."""


@cache
def alike_of(dialect: DialectName) -> CompoundSelect[Any]:
    """For a batch of failed submissions: each joined with the rows that have the same content and may lead to a reservation. A row
    may occur twice."""
    batch = batch_of(_new.c.request_id)
    of_failed = (
        _new.c.request_id.label("failed_id"),
        _new.c.natural_key.label("failed_natural"),
        _new.c.keyed.label("failed_keyed"),
        _new.c.same_key.label("failed_same"),
        _new.c.updated_at.label("failed_at"),
    )
    named = key_among(_new.c.request_id, select(batch.c.request_id))
    parts = []
    for find in (_newest_like, _same):
        source, about = _with_found(dialect, find)
        parts.append(select(*of_failed, *about).select_from(source).where(named))
    return union_all(*parts)


@cache
def originals() -> Select[Any]:
    """The originals of the duplicates in a batch."""
    batch = batch_of(duplicates.c.request_id)
    return select(duplicates.c.request_id, duplicates.c.duplicate_of).where(
        key_among(duplicates.c.request_id, select(batch.c.request_id))
    )


def original_of(request_id: ColumnElement[str]) -> ColumnElement[str]:
    """The request id of a submission's row: that of its original, or its own."""
    found = select(duplicates.c.duplicate_of).where(duplicates.c.request_id == request_id).scalar_subquery()
    return func.coalesce(found, request_id)


def fingerprint_of(request_id: ColumnElement[str]) -> ColumnElement[str | None]:
    """The fingerprint of a duplicate; NULL for what is none."""
    return select(duplicates.c.fingerprint).where(duplicates.c.request_id == request_id).scalar_subquery()

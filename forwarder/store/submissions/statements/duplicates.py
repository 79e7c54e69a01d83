"""The statements about what was just ingested and is an earlier submission sent again, is similar to one, or has another body under
its idempotency key. No I/O.

Ingests take turns, so that the second of two always sees the first; but only in a statement of its own: one that waited for its
turn does not see what was done meanwhile. `repeats` says in what order they are carried out.
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
"""Of the earlier ones with one key, so many at most, the newest. More are alike only where each has an Idempotency-Key."""

_new = reservations.alias("new")
_old = reservations.alias("old")
_NONE: Final[ColumnElement[str]] = literal_column("''")
POSSIBLE_STATUSES: Final[Sequence[ColumnElement[str]]] = [
    literal_column(f"'{status}'") for status in Status if status in POSSIBLE
]


@cache
def look(dialect: DialectName) -> CompoundSelect[Any]:
    """What is known about the rows from `first` to `last`, all just ingested: the earlier ones that are the same, or have the same
    stay and guest; which of them are known to repeat another; and whether any cancellation is parked. An earlier one may be there
    several times."""
    one: ColumnElement[int] = literal_column("1")
    any_parked = select(one).select_from(parked_cancellations).limit(one).scalar_subquery()
    parked = select(*[null()] * (2 + len(_about(_old)))).where(any_parked.is_not(None))
    alike = [_alike(dialect, find) for find in (_newest_like, _same, _of_the_stay)]
    return union_all(_known_duplicates(), *alike, parked)


def _known_duplicates() -> Select[Any]:
    """As `original`, what a row was found to repeat before, if the log delivered it again."""
    # A union reads its columns as the first of its parts has them.
    nothing = [type_coerce(null(), column.type).label(column.name) for column in _about(_old)]
    source = _new.join(duplicates, same_key(duplicates.c.request_id, _new.c.request_id))
    columns = (_new.c.id.label("new_id"), duplicates.c.duplicate_of.label("original"), *nothing)
    return select(*columns).select_from(source).where(_just_ingested())


def _alike(dialect: DialectName, find: Callable[[FromClause], Select[Any]]) -> Select[Any]:
    """Of each of the rows the earlier ones that `find` finds, of which a reservation may be."""
    source, about = _with_found(dialect, find)
    columns = (_new.c.id.label("new_id"), null().label("original"), *about)
    return select(*columns).select_from(source).where(_just_ingested())


def _with_found(
    dialect: DialectName, find: Callable[[FromClause], Select[Any]]
) -> tuple[FromClause, Sequence[ColumnElement[Any]]]:
    """Rows joined with what `find` finds for each, and the columns of that."""
    if dialect == "postgresql":
        earlier = find(_old).lateral("earlier")
        return _new.join(earlier, true()), [*earlier.c]
    # SQLite has no LATERAL, but evaluates such a list of ids anew for each row.
    alike = reservations.alias("alike")
    return _new.join(_old, _old.c.id.in_(find(alike).with_only_columns(alike.c.id))), _about(_old)


def _newest_like(old: FromClause) -> Select[Any]:
    """By what releases before 0.2 recognise: the transaction, or, where there is none, the natural key."""
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


def _same(old: FromClause) -> Select[Any]:
    """Those that are the same, however many have the stay."""
    found = select(*_about(old)).where(*_has_its_stay(old), old.c.same_key == _new.c.same_key)
    newest = found.order_by(old.c.stay_key.desc(), old.c.same_key.desc(), old.c.id.desc()).limit(_LOOKED_AT)
    return newest.correlate(_new)


def _of_the_stay(old: FromClause) -> Select[Any]:
    """Some of those for the same stay and guest."""
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
def note_similar() -> Executable:
    """Note on the rows of a batch which others are similar."""
    batch = batch_of(reservations.c.id, reservations.c.similar_to)
    values = {"similar_to": batch.c.similar_to}
    return update(reservations).where(same_key(reservations.c.id, batch.c.id)).values(values)


@cache
def fingerprints_of() -> Select[Any]:
    """Of a batch of request ids that are known: the row that each has or repeats, and its own fingerprint."""
    asked = batch_of(reservations.c.request_id).c.request_id
    own = func.coalesce(fingerprint_of(asked), reservations.c.fingerprint).label("fingerprint")
    found = same_key(reservations.c.request_id, original_of(asked))
    return select(asked.label("asked_as"), reservations.c.id, own).where(found)


@cache
def note_conflicts() -> Executable:
    """Note on the rows of a batch when another body under their idempotency key was accepted. It only grows, so that a message that
    comes again changes nothing."""
    row = reservations.c
    batch = batch_of(row.id, row.conflicting_at)
    later = func.coalesce(row.conflicting_at, batch.c.conflicting_at) <= batch.c.conflicting_at
    return update(reservations).where(same_key(row.id, batch.c.id), later).values(conflicting_at=batch.c.conflicting_at)


EVERY_ROW: Final = {"first": 2**63 - 1}
"""The parameters of `alike_of` besides its batch."""


@cache
def alike_of(dialect: DialectName) -> CompoundSelect[Any]:
    """Of a batch of failed submissions all that is asked of them, and with each row that may stand and is alike that row; it may be
    there twice."""
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

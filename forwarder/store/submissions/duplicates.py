"""Finds just ingested submissions that repeat an earlier one, are similar to one, or have another body under its idempotency
key; and failed ones that have been replaced.

Within one transaction, rows are inserted, then compared, and deleted if they repeat another. For nearly all batches the comparison
finds nothing, and is the only cost. A lock serializes ingests, so that the second of two sees the first; but only in a later
statement: the one that waited for the lock does not see rows committed meanwhile."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import MAX_SIMILAR, Earlier, NaturalKey
from forwarder.store.batches import BATCH, Execute, as_batch, batch_of, in_batch, key_batch, of_each, same_key
from forwarder.store.sql import ONE, DialectName, columns_of
from forwarder.store.submissions import cancellations
from forwarder.store.submissions.port import Arrival, Duplicate
from forwarder.store.tables import POSSIBLE_STATUSES, duplicates, parked_cancellations, recognised_by, reservations


@dataclass(slots=True)
class Repeats:
    """The repeats in a batch. `duplicates`: repeats of an earlier submission, by row id; `known`: those recorded before. `keyed`:
    the rows that a keyed submission repeats. `similar`: the request ids of others for the same stay and guest, by row id."""

    duplicates: dict[int, Duplicate] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    keyed: set[int] = field(default_factory=set)
    similar: dict[int, Sequence[str]] = field(default_factory=dict)


async def settle_repeats(
    connection: AsyncConnection,
    dialect: DialectName,
    rows: Sequence[sa.Row[Any]],
    arrived: Mapping[str, Arrival],
    now: datetime,
) -> tuple[Sequence[sa.Row[Any]], Repeats]:
    """The just ingested `rows` that stay leased, and the repeats, within the transaction that ingests. Notes cancellations that
    came before their submissions, on these or on their originals."""
    ids = [row.id for row in rows]
    found = list(await connection.execute(look(dialect), {"first": min(ids), "last": max(ids)}))
    naturals = [each for row in rows if (each := arrived[row.request_id].submission.natural) is not None]
    stays = [each.stay for each in naturals if each.stay is not None]
    # Whether two of the batch share a natural key or a stay.
    alike = len({each.key for each in naturals}) < len(naturals) or len(set(stays)) < len(stays)
    if not found and not alike:
        return rows, Repeats()
    cancelled: dict[int, sa.Row[Any]] = {}
    if any(row.new_id is None for row in found):  # means that any cancellations are parked
        cancelled = {row.id: row for row in await connection.execute(cancellations.unpark(), {"now": now})}
        await connection.execute(cancellations.forget_parked)
    repeats, named = _decide(rows, arrived, found, cancelled), in_batch(_row.id)
    if repeats.duplicates:
        await connection.execute(sa.delete(reservations).where(named), {BATCH: key_batch("id", repeats.duplicates)})
    shared = ("request_id", "account_id", "accepted_at", "fingerprint")
    kept = [
        {"duplicate_of": each.duplicate_of, **{name: getattr(each.submission, name) for name in shared}}
        for row_id, each in repeats.duplicates.items()
        if row_id not in repeats.known
    ]
    if kept:
        await connection.execute(sa.insert(duplicates), kept)
    if repeats.keyed:  # a further reservation needs another key
        keyed = sa.update(reservations).where(named).values(keyed=sa.true())
        await connection.execute(keyed, {BATCH: key_batch("id", repeats.keyed)})
    if repeats.similar:
        noted = [{"id": row_id, "similar_to": others} for row_id, others in repeats.similar.items()]
        await connection.execute(note_similar(), {BATCH: as_batch(noted)})
    # The originals of duplicates that were cancelled before they were ingested are cancelled in their place.
    of_originals = [
        {
            "request_id": (duplicate := repeats.duplicates[row.id]).duplicate_of,
            "account_id": duplicate.submission.account_id,
            "revision": 0,
            "requested_at": iso(row.cancel_requested_at),
            "reason": row.cancel_reason,
            "deadline_at": iso(arrived[duplicate.submission.request_id].deadline_at),
        }
        for row in cancelled.values()
        if row.id in repeats.duplicates
    ]
    if of_originals:
        await connection.execute(cancellations.note(), {BATCH: as_batch(of_originals), "now": now})
    over = repeats.duplicates.keys() | cancelled.keys()
    return [row for row in rows if row.id not in over], repeats


def _decide(
    rows: Sequence[sa.Row[Any]],
    arrived: Mapping[str, Arrival],
    found: Sequence[sa.Row[Any]],
    cancelled: Mapping[int, sa.Row[Any]],
) -> Repeats:
    """Decides which of the `rows` repeat an earlier one, in the order of their ids."""
    repeats, candidates = Repeats(), dict[int, Earlier]()
    like: defaultdict[str | None, set[int]] = defaultdict(set)  # the candidates with each natural key and each stay

    def add(row_id: int, earlier: Earlier) -> None:
        candidates[row_id] = earlier
        like[earlier.natural.key].add(row_id)
        like[earlier.natural.stay].add(row_id)

    for row in found:
        if row.old_id is not None:
            add(row.old_id, earlier_in(row))
    known = {row.new_id: row.original for row in found if row.original is not None}
    for row in sorted(rows, key=lambda each: each.id):
        submission = arrived[row.request_id].submission
        natural, accepted_at = submission.natural, submission.accepted_at
        if row.id in known:
            repeats.duplicates[row.id] = Duplicate(submission, known[row.id])
            repeats.known.add(row.id)
            continue
        if natural is None:
            continue
        newest_first = sorted(like[natural.key] | (like[natural.stay] if natural.stay else set()), reverse=True)
        alike = [(each, candidates[each]) for each in newest_first]
        repeated = next((each for each in alike if each[1].is_repeated_by(natural, accepted_at)), None)
        if repeated is not None:
            repeats.duplicates[row.id] = Duplicate(submission, repeated[1].request_id)
            if natural.keyed:
                candidates[repeated[0]] = replace(repeated[1], natural=replace(repeated[1].natural, keyed=True))
                repeats.keyed.add(repeated[0])
            continue
        similar = [each.request_id for _, each in alike if each.is_similar_to(natural, accepted_at)]
        if similar:
            repeats.similar[row.id] = similar[:MAX_SIMILAR]
        cancel_requested_at = cancelled[row.id].cancel_requested_at if row.id in cancelled else None
        add(row.id, Earlier(submission.request_id, natural, Status.PENDING, accepted_at, cancel_requested_at))
    return repeats


def earlier_in(row: sa.Row[Any]) -> Earlier:
    """The submission in a row, as `duplicates` selects it. A failed cancellation is ignored."""
    keys = {"same": row.same_key, "stay": row.stay_key}
    natural = NaturalKey(row.natural_key or "", row.transaction_key, keyed=row.keyed, **keys)
    cancel_requested_at = row.cancel_requested_at if row.cancel_problem is None else None
    return Earlier(row.request_id, natural, Status(row.status), row.accepted_at, cancel_requested_at)


async def replaced_by(execute: Execute, dialect: DialectName, request_ids: Collection[str]) -> Mapping[str, str]:
    """Those of these failed submissions that must not be made any more, each with the newest one that replaces it."""
    found: dict[str, str] = {}
    named = {BATCH: key_batch("request_id", request_ids), "first": 2**63 - 1}
    for row in sorted(await execute(alike_of(dialect), named), key=lambda each: each.old_id):
        if row.failed_natural is not None and row.request_id != row.failed_id:
            failed = NaturalKey(row.failed_natural, keyed=row.failed_keyed, same=row.failed_same)
            other = earlier_in(row)
            if other.replaces(failed, row.failed_at):
                found[row.failed_id] = other.request_id
    return found


_row = reservations.c
_new = reservations.alias("new")
_ABOUT: Final = (
    _row.id.label("old_id"),
    *columns_of(reservations, "request_id natural_key transaction_key keyed status accepted_at cancel_requested_at"),
    *columns_of(reservations, "cancel_problem same_key stay_key"),
)
originals = sa.select(duplicates.c.request_id, duplicates.c.duplicate_of).where(in_batch(duplicates.c.request_id))


@cache
def look(dialect: DialectName) -> sa.CompoundSelect[Any]:
    """For the rows from `first` to `last`, all just ingested: the earlier ones with the same content, or the same stay and guest;
    which of the rows are recorded repeats; and whether any cancellation is parked. An earlier one may occur several times."""
    any_parked = sa.select(ONE).select_from(parked_cancellations).limit(ONE).scalar_subquery()
    parked = sa.select(*[sa.null()] * (2 + len(_ABOUT))).where(any_parked.is_not(None))
    first, last = (sa.bindparam(name, type_=_row.id.type) for name in ("first", "last"))
    just_ingested = sa.and_(_new.c.id >= first, _new.c.id <= last)
    # A union takes its column types from its first part.
    nothing = [sa.type_coerce(sa.null(), column.type).label(column.name) for column in _ABOUT]
    source = _new.join(duplicates, same_key(duplicates.c.request_id, _new.c.request_id))
    columns = (_new.c.id.label("new_id"), duplicates.c.duplicate_of.label("original"), *nothing)
    parts = [sa.select(*columns).select_from(source).where(just_ingested)]
    for earlier in (_newest_like(), _same(), _of_the_stay()):
        alike = of_each(dialect, _new, earlier)
        own = (_new.c.id.label("new_id"), sa.null().label("original"))
        parts.append(alike.with_only_columns(*own, *alike.selected_columns).where(just_ingested))
    return sa.union_all(*parts, parked)


def _newest_like() -> sa.Select[Any]:
    """The newest with the same key of releases before 0.2: the transaction, or the natural key if there is none."""
    found = recognised_by(_row)
    alike = _earlier(_row.natural_key, same_key(found, recognised_by(_new.c)))
    return alike.order_by(found.desc(), _row.id.desc())


def _same() -> sa.Select[Any]:
    """The newest with the same content, regardless of how many have the same stay."""
    alike = _of_the_stay().where(_row.same_key == _new.c.same_key)
    return alike.order_by(_row.stay_key.desc(), _row.same_key.desc(), _row.id.desc())


def _of_the_stay() -> sa.Select[Any]:
    """Some with the same stay and guest."""
    return _earlier(_row.stay_key, _row.stay_key == _new.c.stay_key)


def _earlier(key: sa.ColumnElement[Any], alike: sa.ColumnElement[bool]) -> sa.Select[Any]:
    # Rows of the same batch are in memory. The rest is literally the index's condition: only then can it be used.
    before = _row.id < sa.bindparam("first", type_=_row.id.type)
    indexed = (key.is_not(None), _row.status.in_(POSSIBLE_STATUSES))
    # More have the same key only if each has an Idempotency-Key.
    return sa.select(*_ABOUT).where(alike, before, *indexed).limit(sa.literal_column("16", sa.Integer)).correlate(_new)


@cache
def note_similar() -> sa.Executable:
    batch = batch_of(_row.id, _row.similar_to)
    return sa.update(reservations).where(same_key(_row.id, batch.c.id)).values(similar_to=batch.c.similar_to)


@cache
def fingerprints_of() -> sa.Select[Any]:
    """For a batch of known request ids: the row that each has or repeats, and its own fingerprint."""
    asked = batch_of(_row.request_id).c.request_id
    own = sa.func.coalesce(fingerprint_of(asked), _row.fingerprint).label("fingerprint")
    return sa.select(asked.label("asked_as"), _row.id, own).where(same_key(_row.request_id, original_of(asked)))


@cache
def note_conflicts() -> sa.Executable:
    """Notes on the rows of a batch when another body under their idempotency key was accepted. The time only increases."""
    batch = batch_of(_row.id, _row.conflicting_at)
    later = sa.func.coalesce(_row.conflicting_at, batch.c.conflicting_at) <= batch.c.conflicting_at
    these = sa.update(reservations).where(same_key(_row.id, batch.c.id), later)
    return these.values(conflicting_at=batch.c.conflicting_at)


@cache
def alike_of(dialect: DialectName) -> sa.CompoundSelect[Any]:
    """For a batch of failed submissions: rows with the same content that may lead to a reservation. A row may occur twice."""
    of_failed = (
        _new.c.request_id.label("failed_id"),
        _new.c.natural_key.label("failed_natural"),
        _new.c.keyed.label("failed_keyed"),
        _new.c.same_key.label("failed_same"),
        _new.c.updated_at.label("failed_at"),
    )
    each = [of_each(dialect, _new, earlier) for earlier in (_newest_like(), _same())]
    parts = (alike.with_only_columns(*of_failed, *alike.selected_columns) for alike in each)
    return sa.union_all(*(part.where(in_batch(_new.c.request_id)) for part in parts))


def original_of(request_id: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """The request id of a submission's row: that of its original, or its own."""
    found = sa.select(duplicates.c.duplicate_of).where(duplicates.c.request_id == request_id).scalar_subquery()
    return sa.func.coalesce(found, request_id)


def originals_of_batch(columns: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    """These columns of the rows with a batch of request ids, or of which these are duplicates, each once."""
    named = batch_of(_row.request_id).c.request_id
    asked = sa.select(original_of(named).label("original")).distinct().subquery("asked")
    return sa.select(*columns).select_from(asked.join(reservations, same_key(_row.request_id, asked.c.original)))


def fingerprint_of(request_id: sa.ColumnElement[str]) -> sa.ColumnElement[str | None]:
    """The fingerprint of a duplicate; NULL for what is none."""
    return sa.select(duplicates.c.fingerprint).where(duplicates.c.request_id == request_id).scalar_subquery()

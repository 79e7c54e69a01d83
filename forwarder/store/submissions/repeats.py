"""Finds and settles submissions that were just ingested and repeat, or are similar to, an earlier one; and failed ones that have
been replaced.

Within one transaction, rows are inserted first, then compared, and deleted if they repeat another. For nearly all batches the
comparison finds nothing, and is the only cost.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from forwarder.process.clock import iso
from forwarder.reservation.duplicates import MAX_SIMILAR, Earlier, NaturalKey
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import Submission
from forwarder.store.sql import BATCH, DialectName, as_batch
from forwarder.store.submissions.statements import cancellations, duplicates
from forwarder.store.submissions.work import Arrival, Duplicate


@dataclass(slots=True)
class Repeats:
    """The repeats in a batch. `duplicates`: repeats of an earlier submission, by row id; `known`: those of them that were recorded
    before. `keyed`: the rows that a keyed submission repeats. `similar`: the request ids of others for the same stay and guest, by
    row id."""

    duplicates: dict[int, Duplicate] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    keyed: set[int] = field(default_factory=set)
    similar: dict[int, Sequence[str]] = field(default_factory=dict)


class DuplicateFinder:
    """Finds them, for one process. Its methods are called within the transaction that ingests."""

    def __init__(self, dialect: DialectName) -> None:
        self._look = duplicates.look(dialect)
        self._unpark, self._forget_parked = cancellations.unpark(), cancellations.forget_parked()
        self._note = cancellations.note()
        self._take_back, self._keep = duplicates.take_back(), duplicates.keep()
        self._mark_keyed, self._note_similar = duplicates.mark_keyed(), duplicates.note_similar()

    async def settle(
        self, connection: AsyncConnection, rows: Sequence[Row[Any]], arrived: Mapping[str, Arrival], now: datetime
    ) -> tuple[Sequence[Row[Any]], Repeats]:
        """The just ingested `rows` that stay leased, and the repeats. Notes cancellations that came before their submissions, on
        these or on their originals."""
        ids = [row.id for row in rows]
        naturals = [arrived[row.request_id].submission.natural for row in rows]
        among = {"first": min(ids), "last": max(ids)}
        found = list(await connection.execute(self._look, among))
        if not found and not _any_alike(naturals):
            return rows, Repeats()
        cancelled: dict[int, Row[Any]] = {}
        if any(row.new_id is None for row in found):  # means that any cancellations are parked
            cancelled = {row.id: row for row in await connection.execute(self._unpark, {"now": now})}
            await connection.execute(self._forget_parked)
        repeats = _decide(rows, arrived, found, cancelled)
        await self._carry_out(connection, repeats)
        await self._cancel_originals(connection, repeats, arrived, [cancelled[each] for each in cancelled], now)
        over = repeats.duplicates.keys() | cancelled.keys()
        return [row for row in rows if row.id not in over], repeats

    async def _carry_out(self, connection: AsyncConnection, repeats: Repeats) -> None:
        if repeats.duplicates:
            await connection.execute(self._take_back, {BATCH: _ids(repeats.duplicates)})
        found_now = [each for row_id, each in repeats.duplicates.items() if row_id not in repeats.known]
        if found_now:
            await connection.execute(self._keep, {BATCH: as_batch([_duplicate_row(each) for each in found_now])})
        if repeats.keyed:
            await connection.execute(self._mark_keyed, {BATCH: _ids(repeats.keyed)})
        if repeats.similar:
            noted = [{"id": row_id, "similar_to": others} for row_id, others in repeats.similar.items()]
            await connection.execute(self._note_similar, {BATCH: as_batch(noted)})

    async def _cancel_originals(
        self,
        connection: AsyncConnection,
        repeats: Repeats,
        arrived: Mapping[str, Arrival],
        cancelled: Sequence[Row[Any]],
        now: datetime,
    ) -> None:
        """Cancels the originals of duplicates that were cancelled before they were ingested."""
        noted = [
            {
                "request_id": repeats.duplicates[row.id].duplicate_of,
                "account_id": repeats.duplicates[row.id].submission.account_id,
                "revision": 0,
                "cancel_requested_at": iso(row.cancel_requested_at),
                "cancel_reason": row.cancel_reason,
                "deadline_at": iso(arrived[repeats.duplicates[row.id].submission.request_id].deadline_at),
            }
            for row in cancelled
            if row.id in repeats.duplicates
        ]
        if noted:
            await connection.execute(self._note, {BATCH: as_batch(noted), "now": now})


def _any_alike(naturals: Sequence[NaturalKey | None]) -> bool:
    """Whether two of a batch share a key."""
    return any(len({*keys}) < len(keys) for keys in zip(*([*_keys(each)] for each in naturals if each), strict=True))


def _keys(natural: NaturalKey) -> Iterator[object]:
    """The keys that identify it; a missing one equals no other."""
    for key in (natural.key, natural.stay):
        yield object() if key is None else key


def _decide(
    rows: Sequence[Row[Any]],
    arrived: Mapping[str, Arrival],
    found: Sequence[Row[Any]],
    cancelled: Mapping[int, Row[Any]],
) -> Repeats:
    """Decides which of the `rows` repeat an earlier one, in the order of their ids."""
    repeats, candidates = Repeats(), _Candidates()
    for row in sorted((each for each in found if each.old_id is not None), key=lambda each: each.old_id):
        candidates.add(row.old_id, earlier_in(row))
    known = {row.new_id: row.original for row in found if row.original is not None}
    for row in sorted(rows, key=lambda each: each.id):
        submission = arrived[row.request_id].submission
        natural = submission.natural
        if row.id in known:
            repeats.duplicates[row.id] = Duplicate(submission, known[row.id])
            repeats.known.add(row.id)
        elif natural is not None:
            _decide_one(row.id, submission, natural, candidates, repeats)
            if row.id not in repeats.duplicates:
                candidates.add(row.id, _standing(submission, natural, cancelled.get(row.id)))
    return repeats


def _decide_one(
    row_id: int, submission: Submission, natural: NaturalKey, candidates: "_Candidates", repeats: Repeats
) -> None:
    accepted_at = submission.accepted_at
    for other_id, earlier in candidates.like(natural):
        if earlier.is_repeated_by(natural, accepted_at):
            repeats.duplicates[row_id] = Duplicate(submission, earlier.request_id)
            if natural.keyed:
                candidates.mark_keyed(other_id)
                repeats.keyed.add(other_id)
            return
    similar = [each.request_id for _, each in candidates.like(natural) if each.is_similar_to(natural, accepted_at)]
    if similar:
        repeats.similar[row_id] = similar[:MAX_SIMILAR]


class _Candidates:
    """Earlier submissions by the ids of their rows, and those with each natural key or stay."""

    def __init__(self) -> None:
        self._known: dict[int, Earlier] = {}
        self._like: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, row_id: int, earlier: Earlier) -> None:
        if row_id not in self._known:
            self._known[row_id] = earlier
            for key in {earlier.natural_key, earlier.stay}:
                if key is not None:
                    self._like[key].append(row_id)

    def like(self, natural: NaturalKey) -> Sequence[tuple[int, Earlier]]:
        """The candidates with the natural key or the stay, newest first."""
        ids = {*self._like.get(natural.key, ()), *self._like.get(natural.stay or "", ())}
        return [(each, self._known[each]) for each in sorted(ids, reverse=True)]

    def mark_keyed(self, row_id: int) -> None:
        self._known[row_id] = replace(self._known[row_id], keyed=True)


def earlier_in(row: Row[Any]) -> Earlier:
    """The submission in a row, as `duplicates` selects it. A failed cancellation is ignored."""
    return Earlier(
        row.request_id,
        row.natural_key,
        row.transaction_key,
        row.keyed,
        Status(row.status),
        row.accepted_at,
        row.cancel_requested_at if row.cancel_problem is None else None,
        row.same_key,
        row.stay_key,
    )


def replaced_by(rows: Sequence[Row[Any]]) -> Mapping[str, str]:
    """The failed submissions in `rows`, as `duplicates.alike_of` selects them, that must not be made any more, each with the
    request id of the newest one that replaces it."""
    found: dict[str, str] = {}
    for row in sorted(rows, key=lambda each: each.old_id):
        if row.failed_natural is not None and row.request_id != row.failed_id:
            failed = NaturalKey(row.failed_natural, keyed=row.failed_keyed, same=row.failed_same)
            other = earlier_in(row)
            if other.replaces(failed, row.failed_at):
                found[row.failed_id] = other.request_id
    return found


def _standing(submission: Submission, natural: NaturalKey, cancelled: Row[Any] | None) -> Earlier:
    """A row of this batch, as an earlier one of later rows."""
    return Earlier(
        submission.request_id,
        natural.key,
        natural.transaction,
        natural.keyed,
        Status.PENDING,
        submission.accepted_at,
        None if cancelled is None else cancelled.cancel_requested_at,
        natural.same,
        natural.stay,
    )


def _duplicate_row(duplicate: Duplicate) -> dict[str, Any]:
    submission = duplicate.submission
    return {
        "request_id": submission.request_id,
        "account_id": submission.account_id,
        "duplicate_of": duplicate.duplicate_of,
        "accepted_at": iso(submission.accepted_at),
        "fingerprint": submission.fingerprint,
    }


def _ids(ids: Iterable[int]) -> str:
    return as_batch([{"id": each} for each in ids])

"""Ingests submissions and cancellations, batch by batch: the second of a submission and its cancellation finds the first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from forwarder.process.clock import iso
from forwarder.reservation.submission import Submission
from forwarder.store.batches import BATCH, as_batch, batch_of, in_batch, key_batch, same_key
from forwarder.store.sql import ONE, ZERO, DialectName, Moment, columns_of, insert_into, literal
from forwarder.store.submissions import cancellations, duplicates
from forwarder.store.submissions.cancellations import CANCEL_REQUESTED, ingest_lock
from forwarder.store.submissions.duplicates import Repeats, replaced_by, settle_repeats
from forwarder.store.submissions.leases import Leases
from forwarder.store.submissions.port import (
    UNCHECKED,
    Arrival,
    CancellationArrival,
    Duplicate,
    NotedOn,
    StoreUnavailable,
    Work,
)
from forwarder.store.submissions.rows import arrival_batch, card_row
from forwarder.store.tables import PENDING, card_keys, reservations, workers


class SubmissionIntake(Leases):
    async def ingest(
        self,
        worker_id: str,
        arrivals: Sequence[Arrival],
        *,
        now: datetime,
        changes: int | None = None,
        on_duplicate: Callable[[Duplicate], None] = lambda _: None,
        on_conflict: Callable[[Submission], None] = lambda _: None,
    ) -> Sequence[Work]:
        """Inserts each new submission as PENDING; returns those of them that are `held` as leased work. One whose cancellation came
        first is not leased. One whose request id is known with another fingerprint is not made: the row of the first notes the time
        (`conflicting_at`), and `on_conflict` is called with it.

        A repeat of an earlier submission (`Earlier.is_repeated_by`), of this batch or any before, gets no row: from then on its
        request id is an alias of the earlier one. `on_duplicate` is called with each after the commit. A submission with the stay
        and guest of others that may lead to reservations is marked as `similar_to` these. One that FAILED with the revision of
        `replay_of` becomes PENDING again, due at once. Replays are decided one after the other: if another submission replaces it
        (`Earlier.replaces`), earlier or later, it stays FAILED, and `on_duplicate` is called.

        Ids are assigned in the order in which they become visible: a reader that has seen an id has missed none below it.
        `changes`: the number of changes of the database that the caller has checked. Raises `StoreUnavailable` if there are others:
        then a transaction leads to a database that nobody has checked."""
        if not arrivals:
            return ()
        dialect = self._database.dialect
        if replays := [arrival for arrival in arrivals if arrival.replay_of is not None]:
            for refused_replay in await self._revive_all(replays, now, changes):
                on_duplicate(refused_replay)
        arrived: dict[str, Arrival] = {}
        repeats, conflicts = Repeats(), list[Submission]()

        async def without_repeats(connection: AsyncConnection, rows: Sequence[sa.Row[Any]]) -> Sequence[sa.Row[Any]]:
            nonlocal repeats, conflicts
            self._require_no_change(changes)
            known = {row.request_id for row in rows}
            if rows:
                rows, repeats = await settle_repeats(connection, dialect, rows, arrived, now)
            known.difference_update(repeats.duplicates[row_id].submission.request_id for row_id in repeats.known)
            others = [
                each
                for each in arrivals
                if each.submission.request_id not in known or each is not arrived[each.submission.request_id]
            ]
            conflicts = await self._conflicts(connection, others) if others else []
            keys = [asdict(key) for row in rows if (key := arrived[row.request_id].card_key) is not None]
            if keys:
                await connection.execute(sa.insert(card_keys), keys)
            return rows

        async def insert() -> Sequence[sa.Row[Any]]:
            nonlocal arrived
            # Where a batch has one submission twice, the first is inserted.
            arrived = {arrival.submission.request_id: arrival for arrival in reversed(arrivals)}
            parameters = {**arrival_batch(dialect, arrivals), "now": now}
            return await self._lease(worker_id, ingest(dialect), parameters, without_repeats)

        try:
            rows = await insert()
        except IntegrityError:
            arrivals = await self._with_free_record_ids(arrivals)
            rows = await insert()
        self._remember(((request_id, 0, None) for request_id in arrived), now)
        for duplicate in repeats.duplicates.values():
            on_duplicate(duplicate)
        for conflict in conflicts:
            on_conflict(conflict)
        return [
            Work(
                id=row.id,
                record_id=row.record_id,
                submission=(arrival := arrived[row.request_id]).submission,
                partition=arrival.partition,
                created_at=iso(now),
                deadline_at=arrival.deadline_at,
                attempts=(),
                revision=0,
                offset=arrival.offset,
                timestamp_ms=arrival.timestamp_ms,
                leased_by=worker_id,
                size=arrival.size,
                target=arrival.target,
                similar_to=repeats.similar.get(row.id, ()),
            )
            for row in sorted(rows, key=lambda row: row.id)
            if row.leased_by is not None
        ]

    def _require_no_change(self, changes: int | None) -> None:
        if changes is not None and changes != self.identity.changes:
            raise StoreUnavailable(UNCHECKED)

    async def _with_free_record_ids(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """With other record ids for those whose is taken, which happens for one pair in 2**53."""
        taken = sa.select(_row.record_id, _row.request_id).where(in_batch(_row.record_id))
        owners: dict[int, str] = {}
        while True:
            batch = key_batch("record_id", [arrival.record_id for arrival in arrivals])
            owners |= {row.record_id: row.request_id for row in await self._database.read(taken, {BATCH: batch})}
            found: list[Arrival] = []
            for arrival in arrivals:
                owner = owners.setdefault(arrival.record_id, arrival.submission.request_id)
                mine = owner == arrival.submission.request_id
                found.append(arrival if mine else replace(arrival, record_ids_taken=arrival.record_ids_taken + 1))
            if found == list(arrivals):
                return found
            arrivals = found

    async def _conflicts(self, connection: AsyncConnection, others: Sequence[Arrival]) -> list[Submission]:
        """The submissions of `others`, whose ids are known, that have another body; notes them on the rows with their ids."""
        asked = key_batch("request_id", [each.submission.request_id for each in others])
        known = {row.asked_as: row for row in await connection.execute(duplicates.fingerprints_of(), {BATCH: asked})}
        submissions = [each.submission for each in others if each.submission.request_id in known]
        found = [each for each in submissions if known[each.request_id].fingerprint != each.fingerprint]
        in_order = sorted(found, key=lambda each: each.accepted_at)
        if latest := {known[each.request_id].id: iso(each.accepted_at) for each in in_order}:
            noted = as_batch([{"id": row_id, "conflicting_at": at} for row_id, at in latest.items()])
            await connection.execute(duplicates.note_conflicts(), {BATCH: noted})
        return found

    async def _revive_all(self, replays: Sequence[Arrival], now: datetime, changes: int | None) -> Sequence[Duplicate]:
        """Makes these FAILED submissions pending again, one after the other; returns the replaced ones, which stay."""
        refused: list[Duplicate] = []
        async with self._database.transaction() as connection:
            await self._take_turn(connection)
            self._require_no_change(changes)
            for arrival in replays:
                request_id = arrival.submission.request_id
                if others := await replaced_by(connection.execute, self._database.dialect, [request_id]):
                    refused.append(Duplicate(arrival.submission, others[request_id], replayed=True))
                    continue
                row = {
                    "request_id": request_id,
                    "revision": arrival.replay_of,
                    "partition": arrival.partition,
                    "log_offset": arrival.offset,
                    "card": card_row(arrival.submission.card),
                    "deadline_at": iso(arrival.deadline_at),
                }
                await connection.execute(revive(), {BATCH: as_batch([row]), "now": now})
        return refused

    async def request_cancellations(
        self, arrivals: Sequence[CancellationArrival], *, now: datetime
    ) -> Mapping[str, NotedOn]:
        """Notes the cancellation on each submission, or on its original if it is a duplicate; returns the existing rows by request
        id, of the submissions and of the duplicates. A worker that holds one finishes its push first. The deadline of a submission
        that was surely not sent becomes `now`; a CONFIRMED one becomes due at once, to be cancelled. One that is not known yet gets
        it when it is ingested. Changes nothing if one was noted before, unless that failed with the revision named here."""
        if not arrivals:
            return {}
        async with self._database.transaction() as connection:
            await self._take_turn(connection)
            named = key_batch("request_id", [arrival.request.request_id for arrival in arrivals])
            originals = await connection.execute(duplicates.originals, {BATCH: named})
            renamed = {row.request_id: row.duplicate_of for row in originals}
            rows = [
                {
                    "request_id": renamed.get(request.request_id, request.request_id),
                    "account_id": request.account_id,
                    "revision": request.revision,
                    "requested_at": iso(request.requested_at),
                    "reason": request.reason,
                    "deadline_at": iso(arrival.deadline_at),
                    "trace": request.trace,
                }
                for arrival in arrivals
                for request in (arrival.request,)
            ]
            batch = {BATCH: as_batch(rows)}
            await connection.execute(cancellations.note(), {**batch, "now": now})
            await connection.execute(cancellations.park(self._database.dialect), batch)
            found = await connection.execute(cancellations.noted_on, batch)
            noted = {row.request_id: NotedOn(row.request_id, row.partition, row.leased_by) for row in found}
        self._remember(((row["request_id"], 0, row["account_id"]) for row in rows), now)
        return noted | {name: noted[original] for name, original in renamed.items() if original in noted}

    async def _take_turn(self, connection: AsyncConnection) -> None:
        """Takes the ingest lock, so that rows of earlier ingests are visible to the next statement."""
        if self._database.dialect == "postgresql":
            await connection.execute(cancellations.ingest_lock())


_row = reservations.c
_worker: sa.BindParameter[str] = sa.bindparam("worker_id")
_now = sa.bindparam("now", type_=Moment())


@cache
def ingest(dialect: DialectName) -> sa.Executable:
    """Inserts the new submissions of a batch, in the batch's order; leases those to be held, if the worker has a lease.

    PostgreSQL assigns ids before their rows become visible: of two transactions the one with the higher ids may become visible
    first. So a lock, held until the rows are visible, serializes them. It is taken before the first id is assigned: to sort the
    batch, all of it must have been joined with the lock."""
    columns = columns_of(
        reservations,
        "request_id record_id workspace_id account_id partition log_offset log_timestamp_ms operation property_id "
        "room_id arrival_date departure_date fingerprint card accepted_at deadline_at trace natural_key "
        "transaction_key keyed same_key stay_key api_key_id target",
    )
    own = (sa.column("position", sa.Integer), *columns, sa.column("held", sa.Boolean))
    batch = batch_of(*own, separate=_row.request)
    source: Any = batch
    if dialect == "postgresql":
        source = batch.join(ingest_lock().subquery("ingest_lock"), sa.true())
    values: dict[str, Any] = {each.name: batch.c[each.name] for each in (*columns, _row.request)} | {
        "status": PENDING,
        "created_at": _now,
        "updated_at": _now,
        "due_at": _now,
        "leased_by": sa.case((sa.and_(batch.c.held, sa.exists().where(workers.c.id == _worker)), _worker)),
    }
    rows = sa.select(*values.values()).select_from(source).order_by(batch.c.position)
    insert = insert_into(dialect, reservations).from_select(list(values), rows)
    new = insert.on_conflict_do_nothing(index_elements=["request_id"])
    return new.returning(_row.id, _row.request_id, _row.record_id, _row.leased_by)


def failed_with(revision: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Whether the row failed with this revision, and can be replayed."""
    # Anonymized rows cannot be replayed. A CASE, lest the planner scan the whole index of failed rows for the few rows of a batch.
    identifiable = sa.case((_row.anonymized_at.is_(None), ONE), else_=ZERO) == ONE
    return sa.and_(_row.status == literal("FAILED"), _row.revision == revision, identifiable)


@cache
def replayable() -> sa.Executable:
    """The request ids of a batch that `revive` would make pending."""
    batch = batch_of(_row.request_id, _row.revision)
    there = same_key(_row.request_id, batch.c.request_id)
    return sa.select(_row.request_id).where(there, failed_with(batch.c.revision))


@cache
def revive() -> sa.Executable:
    """Makes failed submissions pending again, with their dead letters' cards, if they failed with the letter's revision."""
    batch = batch_of(*columns_of(reservations, "request_id revision partition log_offset card deadline_at"))
    values = {
        "status": PENDING,
        "partition": batch.c.partition,
        "log_offset": batch.c.log_offset,
        "card": batch.c.card,
        "deadline_at": sa.case((CANCEL_REQUESTED, _now), else_=batch.c.deadline_at),
        "updated_at": _now,
        "due_at": _now,
        "tries": ZERO,
        "record": sa.null(),
        "problem": sa.null(),
    }
    them = (same_key(_row.request_id, batch.c.request_id), failed_with(batch.c.revision))
    return sa.update(reservations).where(*them).values(values).returning(_row.id)

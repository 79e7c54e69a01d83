"""The worker's side of the store in SQL. One `SqlRecorder` serves one process; any number of processes
share a database."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Executable, Row
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.clock import iso
from forwarder.process.containment import FAULTS, Blame, Fault, Where, contained
from forwarder.store.database import Database
from forwarder.store.identity import OBSERVE, identity_of
from forwarder.store.sql import BATCH, as_batch
from forwarder.store.submissions.acknowledged import (
    Acknowledged,
    accepted_losses,
    lacking,
    named,
    not_put_off,
    unclaimed,
)
from forwarder.store.submissions.card_keys import insert_card_keys
from forwarder.store.submissions.repeats import DuplicateFinder, Repeats, replaced_by
from forwarder.store.submissions.rows import (
    arrival_batch,
    cancellation_row,
    event_of,
    new_work,
    outcome_batch,
    postponed_row,
    replay_row,
    resting_row,
    unreadable_work,
    work_of,
)
from forwarder.store.submissions.statements import cancellations, claims, duplicates, faults, leases, outcomes
from forwarder.store.submissions.work import (
    UNKNOWN,
    Arrival,
    Backlog,
    CancellationArrival,
    ConflictingBody,
    Duplicate,
    Ended,
    Heartbeat,
    NotedOn,
    OutboxEvent,
    Postponed,
    Work,
    nobody_told,
)

_UNREADABLE_RESTS: Final = timedelta(hours=1)

_Narrow = Callable[[AsyncConnection, Sequence[Row[Any]]], Awaitable[Sequence[Row[Any]]]]
"""Reduces the rows that a statement leased, within its transaction, to those that stay leased."""


class SqlRecorder:
    """`Recorder` on PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        dialect = self._database.dialect
        self._renew_first, self._renew_again = leases.renew_first(dialect), leases.renew_again()
        self._end_lease, self._heartbeats = leases.end_lease(), leases.heartbeats()
        self._ingest, self._revive = claims.ingest(dialect), claims.revive()
        self._owners = claims.owners_of_record_ids()
        self._note, self._park = cancellations.note(), cancellations.park(dialect)
        self._noted_on = cancellations.noted_on()
        self._originals, self._alike_of = duplicates.originals(), duplicates.alike_of(dialect)
        self._fingerprints_of, self._note_conflicts = duplicates.fingerprints_of(), duplicates.note_conflicts()
        self._repeats = DuplicateFinder(dialect)
        self._claim, self._claim_expired = claims.claim(), claims.claim_expired()
        self._accounts_due, self._backlog = claims.accounts_due(), claims.backlog()
        self._end_leases, self._free_abandoned = leases.end_leases(), leases.free_abandoned()
        self._release, self._mark_pushing = claims.release(), claims.mark_pushing()
        self._leased_ids, self._abandon = claims.leased_ids(), leases.abandon()
        self._record_at_once = outcomes.record() if dialect == "postgresql" else None
        self._finish, self._postpone = outcomes.finish(), outcomes.postpone()
        self._unpublished_of, self._insert_events = outcomes.unpublished_of(), outcomes.insert_events()
        self._republish, self._forget_events = outcomes.republish(), outcomes.forget_events()
        self._identity = identity_of(engine)
        self._acknowledged = Acknowledged()
        self._keep_event, self._suspect = faults.keep_event(), faults.suspect(dialect)
        self._count_kept, self._clear_suspects = faults.count_kept(), faults.clear_suspects()
        self._own_columns = faults.own_columns()
        self._blame = Blame(Where.SWEEP)
        self._known_workers: set[str] = set()
        self._uncertain: dict[str, set[int]] = {}
        self._leasing = asyncio.Lock()

    async def renew(self, worker_id: str, *, seconds: float) -> bool:
        if worker_id in self._known_workers:
            return bool(await self._database.run(self._renew_again, {"worker_id": worker_id}))
        await self._database.run(self._renew_first, {"worker_id": worker_id, "seconds": seconds})
        self._known_workers.add(worker_id)
        return True

    async def end_lease(self, worker_id: str) -> None:
        await self._database.run(self._end_lease, {"worker_id": worker_id})

    async def ingest(
        self,
        worker_id: str,
        arrivals: Sequence[Arrival],
        *,
        now: datetime,
        on_duplicate: Callable[[Duplicate], None] = nobody_told,
        on_conflict: Callable[[ConflictingBody], None] = nobody_told,
    ) -> Sequence[Work]:
        if not arrivals:
            return ()
        replays = [arrival for arrival in arrivals if arrival.replay_of is not None]
        if replays:
            for refused_replay in await self._revive_all(replays, now):
                on_duplicate(refused_replay)
        # Where a batch has one submission twice, the first was inserted.
        arrived = {arrival.submission.request_id: arrival for arrival in reversed(arrivals)}
        repeats, conflicts = Repeats(), list[ConflictingBody]()

        async def without_repeats(connection: AsyncConnection, rows: Sequence[Row[Any]]) -> Sequence[Row[Any]]:
            nonlocal repeats, conflicts
            known = {row.request_id for row in rows}
            if rows:
                rows, repeats = await self._repeats.settle(connection, rows, arrived, now)
            known.difference_update(repeats.duplicates[row_id].submission.request_id for row_id in repeats.known)
            others = [
                each
                for each in arrivals
                if each.submission.request_id not in known or each is not arrived[each.submission.request_id]
            ]
            conflicts = await self._conflicts(connection, others) if others else []
            keys = [key for row in rows if (key := arrived[row.request_id].card_key) is not None]
            if keys:
                await insert_card_keys(connection, keys)
            return rows

        async def insert(arrivals: Sequence[Arrival]) -> Sequence[Row[Any]]:
            batch = arrival_batch(self._database.dialect, arrivals)
            return await self._lease(worker_id, self._ingest, {**batch, "now": now}, without_repeats)

        try:
            rows = await insert(arrivals)
        except IntegrityError:
            arrivals = await self._with_free_record_ids(arrivals)
            arrived = {arrival.submission.request_id: arrival for arrival in reversed(arrivals)}
            rows = await insert(arrivals)
        self._acknowledged.note_ingested(arrived, now)
        for duplicate in repeats.duplicates.values():
            on_duplicate(duplicate)
        for conflict in conflicts:
            on_conflict(conflict)
        held = sorted((row.id, row.record_id, row.request_id) for row in rows if row.leased_by is not None)
        created_at, similar = iso(now), repeats.similar
        return [
            new_work(work_id, record_id, arrived[request_id], created_at, worker_id, similar.get(work_id, ()))
            for work_id, record_id, request_id in held
        ]

    async def _with_free_record_ids(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """The arrivals, with other record ids if theirs are taken, which happens for one pair in 2**53."""
        owners: dict[int, str] = {}
        while True:
            named = as_batch([{"record_id": arrival.record_id} for arrival in arrivals])
            owners |= {row.record_id: row.request_id for row in await self._database.read(self._owners, {BATCH: named})}
            found: list[Arrival] = []
            for arrival in arrivals:
                owner = owners.setdefault(arrival.record_id, arrival.submission.request_id)
                mine = owner == arrival.submission.request_id
                found.append(arrival if mine else replace(arrival, record_ids_taken=arrival.record_ids_taken + 1))
            if found == list(arrivals):
                return found
            arrivals = found

    async def _conflicts(self, connection: AsyncConnection, others: Sequence[Arrival]) -> list[ConflictingBody]:
        """The submissions of `others`, whose ids are known, that have another body; notes them on the rows with their ids."""
        asked = as_batch([{"request_id": each.submission.request_id} for each in others])
        known = {row.asked_as: row for row in await connection.execute(self._fingerprints_of, {BATCH: asked})}
        submissions = [each.submission for each in others]
        found = [
            each
            for each in submissions
            if each.request_id in known and known[each.request_id].fingerprint != each.fingerprint
        ]
        latest: dict[int, str] = {}
        for each in found:
            row_id, accepted_at = known[each.request_id].id, iso(each.accepted_at)
            latest[row_id] = max(latest.get(row_id, accepted_at), accepted_at)
        if latest:
            noted = as_batch([{"id": row_id, "conflicting_at": at} for row_id, at in latest.items()])
            await connection.execute(self._note_conflicts, {BATCH: noted})
        return [ConflictingBody(each) for each in found]

    async def _revive_all(self, replays: Sequence[Arrival], now: datetime) -> Sequence[Duplicate]:
        """Makes these FAILED submissions pending again, one after the other, except replaced ones, which it returns."""
        refused: list[Duplicate] = []
        async with self._database.transaction() as connection:
            await self._take_turn(connection)
            for arrival in replays:
                request_id = arrival.submission.request_id
                named = {BATCH: as_batch([{"request_id": request_id}]), **duplicates.EVERY_ROW}
                other = replaced_by((await connection.execute(self._alike_of, named)).all()).get(request_id)
                if other is not None:
                    refused.append(Duplicate(arrival.submission, other, replayed=True))
                    continue
                await connection.execute(self._revive, {BATCH: as_batch([replay_row(arrival)]), "now": now})
        return refused

    async def request_cancellations(
        self, arrivals: Sequence[CancellationArrival], *, now: datetime
    ) -> Mapping[str, NotedOn]:
        if not arrivals:
            return {}
        rows = [cancellation_row(arrival) for arrival in arrivals]
        async with self._database.transaction() as connection:
            await self._take_turn(connection)
            named = as_batch([{"request_id": row["request_id"]} for row in rows])
            originals = await connection.execute(self._originals, {BATCH: named})
            renamed = {row.request_id: row.duplicate_of for row in originals}
            for row in rows:
                row["request_id"] = renamed.get(row["request_id"], row["request_id"])
            batch = as_batch(rows)
            await connection.execute(self._note, {BATCH: batch, "now": now})
            await connection.execute(self._park, {BATCH: batch})
            found = await connection.execute(self._noted_on, {BATCH: batch})
            noted = {row.request_id: NotedOn(row.request_id, row.partition, row.leased_by) for row in found}
        self._acknowledged.note_cancelled({row["request_id"]: row["account_id"] for row in rows}, now)
        return noted | {name: noted[original] for name, original in renamed.items() if original in noted}

    async def _take_turn(self, connection: AsyncConnection) -> None:
        """Takes the ingest lock, so that rows of earlier ingests are visible to the next statement."""
        if self._database.dialect == "postgresql":
            await connection.execute(cancellations.ingest_lock())

    async def claim(
        self,
        worker_id: str,
        account_id: str,
        partitions: Collection[int],
        *,
        now: datetime,
        limit: int,
        target: str | None = UNKNOWN,
    ) -> Sequence[Work]:
        parameters = {
            "account": account_id,
            "partitions": list(partitions),
            "now": now,
            "limit": limit,
            "target": target,
        }
        rows = await self._lease(worker_id, self._claim, parameters)
        return await self._works(worker_id, sorted(rows, key=lambda row: (row.due_at, row.id)), now)

    async def claim_expired(
        self, worker_id: str, partitions: Collection[int], *, now: datetime, limit: int
    ) -> Sequence[Work]:
        parameters = {"partitions": list(partitions), "now": now, "limit": limit}
        rows = await self._lease(worker_id, self._claim_expired, parameters)
        return await self._works(worker_id, rows, now, to_end=True)

    async def _works(
        self, worker_id: str, rows: Sequence[Row[Any]], now: datetime, *, to_end: bool = False
    ) -> Sequence[Work]:
        """The work in these rows. Postpones rows that cannot be read, so that they do not block others; or, if `to_end`, returns
        them marked as unreadable. Raises `Unworkable` if the cause is this process; then all are released."""
        works: list[Work] = []
        unreadable: list[tuple[Row[Any], Fault]] = []
        for row in rows:
            try:
                works.append(work_of(row, worker_id))
            except FAULTS as error:  # contained to this row
                fault = contained(Where.SWEEP, error, request_id=row.request_id, reservation_id=row.id)
                unreadable.append((row, fault))
        if works:
            self._blame.works()
        if not unreadable:
            return works
        if not works and not self._blame.on_units(len(unreadable)):
            await self.release(worker_id, [row.id for row, _ in unreadable])
            raise self._blame.outage(unreadable[0][1])
        resting = []
        for row, fault in unreadable:
            [own] = await self._database.read(self._own_columns, {"work_id": row.id}) if to_end else [None]
            work = None if own is None else unreadable_work(row, own, fault, worker_id)
            if work is None:
                resting.append(resting_row(row, fault, now=now, due_at=now + _UNREADABLE_RESTS))
            else:
                works.append(work)
        if resting:
            await self._database.run(self._postpone, {"worker_id": worker_id, BATCH: as_batch(resting)})
        return works

    async def accounts_due(self, partitions: Collection[int], *, now: datetime) -> Sequence[str]:
        rows = await self._database.read(self._accounts_due, {"partitions": list(partitions), "now": now})
        return [row.value for row in rows]

    async def heartbeats(self) -> Sequence[Heartbeat]:
        rows = await self._database.read(self._heartbeats)
        return [Heartbeat(row.id, row.sequence, row.lease_seconds) for row in rows]

    async def take_over(self, stopped: Sequence[Heartbeat], *, now: datetime) -> int:
        async with self._database.transaction() as connection:
            if stopped:
                batch = as_batch([{"id": heartbeat.worker_id, "sequence": heartbeat.sequence} for heartbeat in stopped])
                await connection.execute(self._end_leases, {BATCH: batch})
            freed = await connection.execute(self._free_abandoned, {"now": now, "stamp": iso(now)})
            return len(freed.all())

    async def leased_ids(self, worker_id: str) -> Collection[int]:
        return {row.id for row in await self._database.read(self._leased_ids, {"worker_id": worker_id})}

    async def abandon(self, worker_id: str, work_ids: Collection[int], *, now: datetime) -> int:
        parameters = {"worker_id": worker_id, "now": now, "stamp": iso(now), BATCH: _ids(work_ids)}
        return len(await self._database.run(self._abandon, parameters)) if work_ids else 0

    async def release(self, worker_id: str, work_ids: Collection[int]) -> None:
        await self._run_batch(self._release, worker_id, work_ids)

    async def mark_pushing(self, worker_id: str, work_ids: Collection[int]) -> Collection[int]:
        return {row.id for row in await self._run_batch(self._mark_pushing, worker_id, work_ids)}

    async def record(
        self, worker_id: str, ended: Sequence[Ended], postponed: Sequence[Postponed]
    ) -> Mapping[int, OutboxEvent]:
        if self._record_at_once is not None and not postponed and all(_is_first(each) for each in ended):
            events = await self._record_first(self._record_at_once, worker_id, ended)
        else:
            events = {}
            async with self._database.transaction() as connection:
                if postponed:
                    batch = as_batch([postponed_row(one) for one in postponed])
                    await connection.execute(self._postpone, {"worker_id": worker_id, BATCH: batch})
                if ended:
                    events = await self._finish_all(connection, worker_id, ended)
        self._acknowledged.note_put_off({each.work_id: each.updated_at for each in postponed})
        if events:
            revisions = {each.event.request_id: each.event.revision for each in events.values()}
            self._acknowledged.note_recorded(revisions, max(each.updated_at for each in ended))
        return events

    @property
    def changes(self) -> int:
        return self._identity.changes

    async def observe(self) -> None:
        if self._database.dialect == "postgresql":
            (row,) = await self._database.read(OBSERVE)
            self._identity.note(str(row[0]))

    async def lacking(self, held: Collection[int], *, now: datetime) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        (accepted,) = await self._database.read(accepted_losses())
        counts.update(recoveries=int(accepted.unfinished))
        for batch in self._acknowledged.batches(accepted.purged, accepted.recovered_at, now):
            (row,) = await self._database.read(lacking(), {BATCH: batch})
            counts.update(submissions=row.submissions, outcomes=row.outcomes)
        for batch in self._acknowledged.put_off_batches(accepted.recovered_at, now):
            (row,) = await self._database.read(not_put_off(), {BATCH: batch})
            counts.update(put_off=row.put_off)
        if held:
            (row,) = await self._database.read(unclaimed(), named(held))
            counts.update(claims=row.claims)
        return {what: count for what, count in counts.items() if count}

    def remember_lost(self, work_ids: Collection[int], now: datetime) -> None:
        self._acknowledged.note_put_off(dict.fromkeys(work_ids, now))

    async def republish(self, *, before: datetime, now: datetime, limit: int) -> Sequence[OutboxEvent]:
        parameters = {"before": before, "now": now, "limit": limit}
        rows = await self._database.run(self._republish, parameters)
        entries: list[OutboxEvent] = []
        for row in sorted(rows, key=lambda row: row.id):
            try:
                entries.append(event_of(row))
            except FAULTS as error:  # contained to this event
                fault = contained(Where.OUTBOX, error, request_id=row.request_id)
                await self.keep_event(row.id, until=now + _UNREADABLE_RESTS, error_id=fault.id)
        return entries

    async def keep_event(self, outbox_id: int, *, until: datetime, error_id: str) -> None:
        await self._database.run(self._keep_event, {"outbox_id": outbox_id, "until": until, "error_id": error_id})

    async def kept_events(self) -> int:
        [row] = await self._database.read(self._count_kept)
        count: int = row[0]
        return count

    async def suspect(self, worker_id: str, work_id: int) -> int:
        [row] = await self._database.run(self._suspect, {"worker_id": worker_id, "work_id": work_id})
        deaths: int = row.deaths
        return deaths

    async def clear_suspects(self, work_ids: Collection[int]) -> None:
        if work_ids:
            await self._database.run(self._clear_suspects, {BATCH: _ids(work_ids)})

    async def published(self, outbox_ids: Collection[int]) -> None:
        if outbox_ids:
            await self._database.run(self._forget_events, {BATCH: _ids(outbox_ids)})

    async def backlog(self, *, now: datetime) -> Backlog:
        (row,) = await self._database.read(self._backlog, {"now": now})
        return Backlog(row.due, row.oldest_due_at)

    async def _record_first(
        self, statement: Executable, worker_id: str, ended: Sequence[Ended]
    ) -> dict[int, OutboxEvent]:
        """For first outcomes only, as nearly all are: one statement, without a look-up."""
        if not ended:
            return {}
        batch = outcome_batch(self._database.dialect, ended)
        kept = await self._database.run(statement, {"worker_id": worker_id, **batch})
        recorded = {each.work_id: each for each in ended}
        return {row.reservation_id: _outbox_event(row.id, recorded[row.reservation_id], in_turn=True) for row in kept}

    async def _finish_all(
        self, connection: AsyncConnection, worker_id: str, ended: Sequence[Ended]
    ) -> dict[int, OutboxEvent]:
        batch = outcome_batch(self._database.dialect, ended)
        finished = await connection.execute(self._finish, {"worker_id": worker_id, **batch})
        held = {row.id for row in finished}
        recorded = {each.work_id: each for each in ended if each.work_id in held}
        if not recorded:
            return {}
        waiting = await self._with_unpublished(connection, list(recorded.values()))
        if len(recorded) < len(ended):
            batch = outcome_batch(self._database.dialect, recorded.values())
        kept = await connection.execute(self._insert_events, batch)
        return {
            row.reservation_id: _outbox_event(
                row.id, recorded[row.reservation_id], in_turn=row.reservation_id not in waiting
            )
            for row in kept
        }

    async def _with_unpublished(self, connection: AsyncConnection, ended: Sequence[Ended]) -> set[int]:
        """The rows whose earlier events may be unpublished. Skips the look-up for first events, as nearly all are."""
        later = [{"reservation_id": each.work_id} for each in ended if not _is_first(each)]
        if not later:
            return set()
        rows = await connection.execute(self._unpublished_of, {BATCH: as_batch(later)})
        return {row.reservation_id for row in rows}

    async def _run_batch(self, statement: Executable, worker_id: str, work_ids: Collection[int]) -> Sequence[Row[Any]]:
        if not work_ids:
            return ()
        return await self._database.run(statement, {"worker_id": worker_id, BATCH: _ids(work_ids)})

    async def _lease(
        self, worker_id: str, statement: Executable, parameters: dict[str, Any], narrow: _Narrow | None = None
    ) -> Sequence[Row[Any]]:
        """Executes a statement that leases rows, and then `narrow`. The caller holds the rows only if this returns.

        If the response to a commit is lost, rows may be leased to a worker that does not know of them and would renew their lease
        forever. So their ids are kept here, and the rows released before anything more is leased. Only one lease statement runs at
        a time: otherwise a transaction could release rows that another one has just leased again, and that are being pushed.
        """
        async with self._leasing:
            leased: Sequence[Row[Any]] = ()
            lost = self._uncertain.pop(worker_id, set())
            try:
                async with self._database.transaction() as connection:
                    if lost:
                        await connection.execute(self._release, {"worker_id": worker_id, BATCH: _ids(lost)})
                    result = await connection.execute(statement, {"worker_id": worker_id, **parameters})
                    leased = result.all()
                    kept = leased if narrow is None else await narrow(connection, leased)
            except BaseException:
                self._uncertain.setdefault(worker_id, set()).update(lost, (row.id for row in leased))
                raise
            return kept


def _is_first(ended: Ended) -> bool:
    return ended.event.revision == 1


def _outbox_event(outbox_id: int, ended: Ended, *, in_turn: bool) -> OutboxEvent:
    return OutboxEvent(outbox_id, ended.event, ended.dead_letter, in_turn)


def _ids(ids: Collection[int]) -> str:
    return as_batch([{"id": each} for each in ids])

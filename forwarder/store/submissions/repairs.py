"""What operators repair: submissions in doubt, a store that was restored to an earlier state, and topics that lost messages."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple, cast

import sqlalchemy as sa
from pydantic_core import to_json
from sqlalchemy.exc import NoResultFound

from forwarder.process.clock import iso
from forwarder.reservation.outcome import CancellationRequest
from forwarder.reservation.submission import NaturalKey
from forwarder.store.batches import BATCH, as_batch, batch_of, in_batch, key_batch, same_key
from forwarder.store.database import OnDatabase
from forwarder.store.sql import ZERO, Moment, columns_of, insert_into, literal
from forwarder.store.submissions import cancellations, duplicates, intake, leases, recorder
from forwarder.store.submissions.cancellations import CANCEL_REQUESTED
from forwarder.store.submissions.duplicates import replaced_by
from forwarder.store.submissions.losses import NEWEST_APPENDED
from forwarder.store.submissions.port import Attempt, Ended, Work
from forwarder.store.submissions.recorder import finish_where, outcomes
from forwarder.store.submissions.rows import natural_columns, outcome_batch, work_of
from forwarder.store.tables import IN_DOUBT, PENDING, log_gaps, recoveries, reservations, set_aside


class Repairs(OnDatabase):
    """An operator's changes: nothing changes if the row was changed since it was read. Raises `StoreUnavailable`."""

    async def in_doubt(self, request_id: str) -> Work | None:
        """The submission, if it is IN_DOUBT. Nothing is leased: a worker may be looking it up at the same time."""
        wanted = (_row.request_id == duplicates.original_of(sa.literal(request_id)), _row.status == IN_DOUBT)
        rows = await self._database.read(sa.select(*leases.WORK).where(*wanted))
        return work_of(rows[0]) if rows else None

    async def settle(self, ended: Ended) -> bool:
        """Records the outcome and its event, which the workers will publish. False if it is no longer IN_DOUBT."""
        return await self._change(outcome_batch(self._database.dialect, [ended]), settle, recorder.insert_events())

    async def acknowledge(self, failure_class: str) -> int:
        """Forgets the messages that were set aside as dead letters of that class; returns how many there were."""
        gone = sa.delete(set_aside).where(set_aside.c.failure_class == failure_class).returning(set_aside.c.messages)
        return sum(row.messages for row in await self._database.run(gone))

    async def make_due(self, work_ids: Collection[int], *, now: datetime) -> int:
        """Makes due at once those of these that wait for a later time and that no worker holds; returns how many."""
        return len(await self._database.run(make_due(), {BATCH: key_batch("id", work_ids), "now": now}))

    async def hasten(self, account_id: str, *, at: datetime) -> int:
        """The same for those of an account, at `at`."""
        waiting = (_row.account_id == account_id, _OPEN, _row.leased_by.is_(None), _row.due_at > at)
        some = sa.select(_row.id).where(*waiting).limit(sa.literal_column("5000")).scalar_subquery()
        hastened = sa.update(reservations).where(_row.id.in_(some)).values(due_at=at).returning(_row.id)
        count = 0
        while found := await self._database.run(hastened):
            count += len(found)
        return count

    async def reopen(self, work: Work, *, attempts: Sequence[Attempt], now: datetime, deadline_at: datetime) -> bool:
        """Makes it PENDING again, due at once, as never sent. False if it is no longer IN_DOUBT."""
        row = {
            "id": work.id,
            "revision": work.revision,
            "updated_at": iso(now),
            "attempts": attempts,
            "deadline_at": iso(deadline_at),
            "evidence": work.evidence.settled(iso(now), "operator").text,
        }
        return await self._change({BATCH: as_batch([row])}, reopen())

    async def undoubled(self, request_id: str, doubles: Sequence[str]) -> None:
        """Keeps only these ids of other reservations that the PMS shows under the submission's reference."""
        row = sa.update(reservations).where(_row.request_id == request_id, _row.doubles.is_not(None))
        await self._database.run(row.values(doubles=to_json(doubles).decode() if doubles else None))

    async def _change(self, batch: Mapping[str, Any], *statements: sa.Executable) -> bool:
        """Executes the statements, each on `batch`. False if one returns no row: then nothing is committed, nor audited as done."""
        try:
            async with self._database.transaction() as connection:
                for statement in statements:
                    (await connection.execute(statement, batch)).one()
        except NoResultFound:
            return False
        return True


_row = reservations.c
_OPEN: Final = _row.due_at.is_not(None)
_in_doubt = sa.func.coalesce(_row.status, literal("")) == IN_DOUBT
"""As an expression, so that no partial index looks as good to PostgreSQL as the key."""

settle = finish_where(_in_doubt, outcomes()).returning(_row.id)
"""Like `finish`, for rows in doubt that are unchanged since they were read, even if a worker holds them."""


@cache
def reopen() -> sa.Executable:
    """Not while a worker looks the row up, whose result would overwrite that of the next push."""
    batch = batch_of(*columns_of(reservations, "id revision updated_at attempts deadline_at evidence"))
    unchanged = (same_key(_row.id, batch.c.id), _row.revision == batch.c.revision, _in_doubt, _row.leased_by.is_(None))
    values = {
        "status": PENDING,
        "updated_at": batch.c.updated_at,
        "due_at": batch.c.updated_at,
        "attempts": batch.c.attempts,
        "deadline_at": sa.case((CANCEL_REQUESTED, batch.c.updated_at), else_=batch.c.deadline_at),
        "evidence": batch.c.evidence,
        "tries": ZERO,
        "possibly_sent": False,
        "pushing": False,
        "record": sa.null(),
        "problem": sa.null(),
    }
    return sa.update(reservations).where(*unchanged).values(values).returning(_row.id)


@cache
def make_due() -> sa.Executable:
    now = sa.bindparam("now", type_=Moment())
    waiting = (in_batch(_row.id), _row.due_at > now, _row.leased_by.is_(None))
    return sa.update(reservations).where(*waiting).values(due_at=now).returning(_row.id)


class StoreRecovery(OnDatabase):
    """Updates rows with outcomes that were published before the store was restored. Without workers. Raises `StoreUnavailable`."""

    async def newest(self) -> int | None:
        """When the log appended the submission that was ingested last, in milliseconds since 1970; None if the store is empty."""
        return cast("int | None", await self._database.scalar(NEWEST_APPENDED))

    async def unfinished(self) -> Sequence[datetime | None]:
        rows = await self._database.read(sa.select(recoveries.c.since).where(recoveries.c.recovered_at.is_(None)))
        return [row.since for row in rows]

    async def begin(self, since: datetime | None, now: datetime) -> None:
        """No worker starts until `finish`, even if this process dies."""
        await self._database.run(sa.insert(recoveries).values(began_at=now, since=since))

    async def give_up(self, began_at: datetime) -> None:
        """Deletes the recovery that began then, and has changed nothing."""
        await self._database.run(sa.delete(recoveries).where(recoveries.c.began_at == began_at))

    async def finish(self, now: datetime) -> None:
        """Finishes the recovery: acknowledgements that workers remember from before no longer prove a loss."""
        unfinished = sa.update(recoveries).where(recoveries.c.recovered_at.is_(None))
        await self._database.run(unfinished.values(recovered_at=now))

    async def cancellations_not_noted(self, requests: Collection[CancellationRequest]) -> int:
        """How many of these cancellation requests the store lacks, for submissions that it has."""
        if not requests:
            return 0
        named = {BATCH: key_batch("request_id", {each.request_id for each in requests})}
        names = {row.request_id: row.duplicate_of for row in await self._database.read(duplicates.originals, named)}
        asked = ((names.get(each.request_id, each.request_id), each.revision) for each in requests)
        rows = [{"request_id": request_id, "revision": revision} for request_id, revision in asked]
        return int(await self._database.scalar(cancellations.not_noted(), {BATCH: as_batch(rows)}))

    async def replays_not_made(self, replays: Mapping[str, int]) -> Collection[str]:
        """The replays that the store lacks, among these (by request id, with the revision of the failure)."""
        if not replays:
            return ()
        rows = as_batch([{"request_id": each, "revision": revision} for each, revision in replays.items()])
        failed = {row.request_id for row in await self._database.read(intake.replayable(), {BATCH: rows})}
        replaced = await replaced_by(self._database.read, self._database.dialect, replays)
        return failed - replaced.keys()

    async def recognise_by(self, naturals: Mapping[str, NaturalKey]) -> None:
        """Submissions that were ingested without their natural keys have them from now on."""
        keys = columns_of(reservations, "natural_key transaction_key keyed same_key stay_key")
        batch = batch_of(_row.request_id, *keys)
        rows = [{"request_id": each, **natural_columns(key)} for each, key in naturals.items()]
        if rows:
            unnamed = (_row.request_id == batch.c.request_id, _row.natural_key.is_(None), _row.anonymized_at.is_(None))
            values = {key.name: batch.c[key.name] for key in keys}
            await self._database.run(sa.update(reservations).where(*unnamed).values(values), {BATCH: as_batch(rows)})

    async def standing(self, request_ids: Collection[str]) -> Mapping[str, tuple[int, int]]:
        """The id of each one's row, and the revision of its last event."""
        found = sa.select(_row.request_id, _row.id, _row.revision).where(in_batch(_row.request_id))
        rows = await self._database.read(found, {BATCH: key_batch("request_id", request_ids)})
        return {row.request_id: (row.id, row.revision) for row in rows}

    async def restore(self, ended: Sequence[Ended]) -> int:
        """Records outcomes, each a row's last, with their events, even if a worker holds the rows; returns how many were later."""
        dialect = self._database.dialect
        finished = finish_where(sa.true(), outcomes(), following=False).returning(_row.id)
        async with self._database.transaction() as connection:
            later = {row.id for row in await connection.execute(finished, outcome_batch(dialect, ended))}
            if recorded := [each for each in ended if each.work_id in later]:
                await connection.execute(recorder.insert_events(), outcome_batch(dialect, recorded))
        return len(later)


_NEWEST: Final = sa.select(_row.id).order_by(_row.id.desc()).limit(200)  # whose places on the topic are compared


class TopicPlace(NamedTuple):
    """Where the message of a submission is on the requests topic, and when the log appended it."""

    partition: int
    offset: int
    timestamp_ms: int
    accepted_at: datetime
    request_id: str


class NotedGap(NamedTuple):
    topic: str
    partition: int
    position: int
    resumed_at: int
    noted_at: datetime

    @property
    def missing(self) -> int | None:
        return self.resumed_at - self.position if self.resumed_at > self.position else None


class Places(OnDatabase):
    """Offsets of submissions on the requests topic, gaps of messages that topics lost before they were received, and rows of
    partitions that a topic no longer has. Raises `StoreUnavailable`."""

    async def newest_places(self) -> Sequence[TopicPlace]:
        """Those of the newest submissions, without those before the last `accept`."""
        columns = (_row.partition, _row.log_offset, _row.log_timestamp_ms, _row.accepted_at, _row.request_id)
        newest = await self._database.read(_NEWEST.with_only_columns(*columns))
        return [TopicPlace(*tuple(row)) for row in newest if row.log_offset >= 0]

    async def note(self, gap: NotedGap) -> None:
        """Keeps the gap until `accept`. Noting it again changes nothing."""
        noted = insert_into(self._database.dialect, log_gaps).values(gap._asdict())
        await self._database.run(noted.on_conflict_do_nothing())

    async def gaps(self) -> Sequence[NotedGap]:
        """The gaps not accepted yet, in the order in which they were found."""
        rows = await self._database.read(
            sa.select(log_gaps).order_by(*columns_of(log_gaps, "noted_at topic partition"))
        )
        return [NotedGap(*tuple(row)) for row in rows]

    async def around(self, gap: NotedGap) -> tuple[Sequence[str], datetime | None]:
        """Of the newest submissions: those in the gap, by request id; and when the last one before it was accepted, if any."""
        columns = sa.select(_row.request_id, _row.partition, _row.log_offset, _row.accepted_at)
        newest = columns.order_by(_row.id.desc()).limit(200_000).subquery("newest")
        here = newest.c.partition == gap.partition
        within = sa.and_(here, newest.c.log_offset >= gap.position, newest.c.log_offset < gap.resumed_at)
        before = sa.and_(here, newest.c.log_offset < gap.position, newest.c.log_offset >= 0)
        known = await self._database.read(sa.select(newest.c.request_id).where(within).order_by(newest.c.log_offset))
        last = await self._database.scalar(sa.select(sa.func.max(newest.c.accepted_at)).where(before))
        return [row.request_id for row in known], last

    async def accept(self) -> None:
        """Accepts the topics as they are: no longer compares the places of the newest submissions, and deletes the gaps."""
        here = sa.update(reservations).where(_row.id.in_(_NEWEST.scalar_subquery()), _row.log_offset >= 0)
        async with self._database.transaction() as connection:
            await connection.execute(here.values(log_offset=-1 - _row.log_offset))
            await connection.execute(sa.delete(log_gaps))

    async def unowned(self, partitions: int) -> int:
        """How many open rows belong to partitions that the topic no longer has, so that no worker can own them."""
        return int(await self._database.scalar(sa.select(sa.func.count(_row.id)).where(_unowned(partitions))))

    async def unowned_keys(self, partitions: int) -> Sequence[tuple[str, str]]:
        """Account and property of some of them."""
        return await self._keys(_unowned(partitions))

    async def open_keys(self, after: tuple[str, str]) -> Sequence[tuple[str, str]]:
        """Account and property of open rows, in order, those that follow `after`; empty if there are no more."""
        return await self._keys(_OPEN & (sa.tuple_(_row.account_id, _row.property_id) > sa.tuple_(*after)))

    async def _keys(self, which: sa.ColumnElement[bool]) -> Sequence[tuple[str, str]]:
        found = sa.select(_row.account_id, _row.property_id).where(which).distinct()
        some = found.order_by(_row.account_id, _row.property_id).limit(500)
        return [(row.account_id, row.property_id) for row in await self._database.read(some)]

    async def move(self, homes: Mapping[tuple[str, str], int], *, gone: int | None = None) -> int:
        """Moves the open rows of these accounts and properties to the partitions that their messages would go to, or only those of
        partitions from `gone` on; returns how many. Otherwise no worker may hold any. Their places are no longer compared."""
        batch = batch_of(_row.account_id, _row.property_id, sa.column("home", sa.Integer))
        rows = [{"account_id": key[0], "property_id": key[1], "home": home} for key, home in homes.items()]
        same = sa.and_(_row.account_id == batch.c.account_id, _row.property_id == batch.c.property_id)
        displaced = _OPEN & (_row.partition != batch.c.home) if gone is None else _unowned(gone)
        place = sa.case((_row.log_offset >= 0, -1 - _row.log_offset), else_=_row.log_offset)
        moved = sa.update(reservations).where(same, displaced).values(partition=batch.c.home, log_offset=place)
        return len(await self._database.run(moved.returning(_row.id), {BATCH: as_batch(rows)}))


def _unowned(partitions: int) -> sa.ColumnElement[bool]:
    return _OPEN & (_row.partition >= partitions)

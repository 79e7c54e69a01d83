"""Brings rows up with outcomes that were published before the store was restored to an earlier state, in SQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import and_, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.cancellation import CancellationRequest
from forwarder.reservation.duplicates import NaturalKey
from forwarder.store.database import Database
from forwarder.store.sql import BATCH, as_batch, batch_of, key_among
from forwarder.store.submissions.repeats import replaced_by
from forwarder.store.submissions.rows import outcome_batch
from forwarder.store.submissions.statements import cancellations, claims, duplicates, outcomes
from forwarder.store.submissions.work import Ended
from forwarder.store.tables import recoveries, reservations

_row = reservations.c


class Standing(NamedTuple):
    """A row's id, and the revision of its last event."""

    id: int
    revision: int


class SqlRecovery:
    """On PostgreSQL or SQLite. For a store that no worker works on. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def newest(self) -> datetime | None:
        """When the last row was ingested; None if the store is empty."""
        newest = select(func.max(_row.id)).scalar_subquery()
        rows = await self._database.read(select(_row.created_at).where(_row.id == newest))
        return rows[0].created_at if rows else None

    async def unfinished(self) -> Sequence[datetime | None]:
        """The `since` of unfinished recoveries."""
        rows = await self._database.read(select(recoveries.c.since).where(recoveries.c.recovered_at.is_(None)))
        return [row.since for row in rows]

    async def begin(self, since: datetime | None, now: datetime) -> None:
        """Begins a recovery: no worker starts until `finish`, even if this process dies."""
        await self._database.run(insert(recoveries).values(began_at=now, since=since))

    async def give_up(self, began_at: datetime) -> None:
        """Deletes the recovery that began then, and has changed nothing."""
        await self._database.run(delete(recoveries).where(recoveries.c.began_at == began_at))

    async def finish(self, now: datetime) -> None:
        """Finishes the recovery: acknowledgements that workers remember from before no longer prove a loss."""
        await self._database.run(update(recoveries).where(recoveries.c.recovered_at.is_(None)).values(recovered_at=now))

    async def cancellations_not_noted(self, requests: Collection[CancellationRequest]) -> int:
        """How many of these cancellation requests the store lacks, for submissions that it has."""
        rows = [{"request_id": each.request_id, "revision": each.revision} for each in requests]
        found = await self._database.read(cancellations.not_noted(), {BATCH: as_batch(rows)}) if rows else ()
        return sum(row.lacking for row in found)

    async def replays_not_made(self, replays: Mapping[str, int]) -> Collection[str]:
        """The replays that the store lacks, among these (by request id, with the revision of the failure)."""
        rows = as_batch([{"request_id": each, "revision": revision} for each, revision in replays.items()])
        if not replays:
            return ()
        failed = {row.request_id for row in await self._database.read(claims.replayable(), {BATCH: rows})}
        alike = duplicates.alike_of(self._database.dialect)
        replaced = replaced_by(await self._database.read(alike, {BATCH: rows, **duplicates.EVERY_ROW}))
        return failed - replaced.keys()

    async def recognise_by(self, naturals: Mapping[str, NaturalKey]) -> None:
        """Submissions that were ingested without their natural keys have them from now on."""
        batch = batch_of(
            _row.request_id, _row.natural_key, _row.transaction_key, _row.keyed, _row.same_key, _row.stay_key
        )
        unnamed = and_(_row.natural_key.is_(None), _row.anonymized_at.is_(None))
        named = {
            "natural_key": batch.c.natural_key,
            "transaction_key": batch.c.transaction_key,
            "keyed": batch.c.keyed,
            "same_key": batch.c.same_key,
            "stay_key": batch.c.stay_key,
        }
        rows = [
            {
                "request_id": each,
                "natural_key": key.key,
                "transaction_key": key.transaction,
                "keyed": key.keyed,
                "same_key": key.same,
                "stay_key": key.stay,
            }
            for each, key in naturals.items()
        ]
        if rows:
            statement = update(reservations).where(_row.request_id == batch.c.request_id, unnamed).values(named)
            await self._database.run(statement, {BATCH: as_batch(rows)})

    async def standing(self, request_ids: Collection[str]) -> Mapping[str, Standing]:
        """The row and revision of each of these submissions that has a row."""
        batch = batch_of(_row.request_id)
        found = select(_row.request_id, _row.id, _row.revision).where(
            key_among(_row.request_id, select(batch.c.request_id))
        )
        rows = await self._database.read(found, {BATCH: as_batch([{"request_id": each} for each in request_ids])})
        return {row.request_id: Standing(row.id, row.revision) for row in rows}

    async def restore(self, ended: Sequence[Ended]) -> int:
        """Records these outcomes, each a row's last, with their events, even if a worker holds the rows; returns how many were
        later than the row's."""
        batch = outcome_batch(self._database.dialect, ended)
        async with self._database.transaction() as connection:
            later = {row.id for row in await connection.execute(outcomes.restore(), batch)}
            told = [each for each in ended if each.work_id in later]
            if told:
                await connection.execute(outcomes.insert_events(), outcome_batch(self._database.dialect, told))
        return len(later)

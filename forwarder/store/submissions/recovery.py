"""Brings rows up with outcomes that were published before the store was restored to an earlier state, in SQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.database import Database
from forwarder.store.sql import BATCH, as_batch, batch_of, key_among
from forwarder.store.submissions.rows import outcome_batch
from forwarder.store.submissions.statements import outcomes
from forwarder.store.submissions.work import Ended
from forwarder.store.tables import reservations

_row = reservations.c


class Standing(NamedTuple):
    """A row's id, and the revision of its last event."""

    id: int
    revision: int


_PLACES: Final = 200


class SubmissionPlace(NamedTuple):
    """Where the requests topic had a submission, and when that was accepted."""

    partition: int
    offset: int
    accepted_at: datetime


class SqlPlaces:
    """Where the newest submissions were on the requests topic. On PostgreSQL or SQLite. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def newest_places(self) -> Sequence[SubmissionPlace]:
        """Of the newest few hundred, but for those that `leave_places` was called for."""
        newest = select(_row.partition, _row.log_offset, _row.accepted_at).order_by(_row.id.desc()).limit(_PLACES)
        return [
            SubmissionPlace(row.partition, row.log_offset, row.accepted_at)
            for row in await self._database.read(newest)
            if row.log_offset >= 0
        ]

    async def leave_places(self) -> None:
        """The topic is another one now: where the newest were says nothing about it."""
        newest = select(_row.id).order_by(_row.id.desc()).limit(_PLACES).scalar_subquery()
        here = update(reservations).where(_row.id.in_(newest), _row.log_offset >= 0)
        await self._database.run(here.values(log_offset=-1 - _row.log_offset))


class SqlRecovery:
    """On PostgreSQL or SQLite. For a store that no worker works on. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def newest(self) -> datetime | None:
        """When the last row was ingested; None of an empty store."""
        newest = select(func.max(_row.id)).scalar_subquery()
        rows = await self._database.read(select(_row.created_at).where(_row.id == newest))
        return rows[0].created_at if rows else None

    async def standing(self, request_ids: Collection[str]) -> Mapping[str, Standing]:
        """Of those of these that have a row."""
        batch = batch_of(_row.request_id)
        found = select(_row.request_id, _row.id, _row.revision).where(
            key_among(_row.request_id, select(batch.c.request_id))
        )
        rows = await self._database.read(found, {BATCH: as_batch([{"request_id": each} for each in request_ids])})
        return {row.request_id: Standing(row.id, row.revision) for row in rows}

    async def restore(self, ended: Sequence[Ended]) -> int:
        """Record these outcomes, each a row's last, with their events, whoever holds the rows; how many were later."""
        batch = outcome_batch(self._database.dialect, ended)
        async with self._database.transaction() as connection:
            later = {row.id for row in await connection.execute(outcomes.restore(), batch)}
            told = [each for each in ended if each.work_id in later]
            if told:
                await connection.execute(outcomes.insert_events(), outcome_batch(self._database.dialect, told))
        return len(later)

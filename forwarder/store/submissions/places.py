"""Offsets of submissions on the requests topic, gaps of messages that topics lost before they were received, and rows of partitions
that a topic no longer has, in SQL."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Integer, and_, column, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.database import Database
from forwarder.store.sql import BATCH, as_batch, batch_of, insert_into
from forwarder.store.tables import log_gaps, reservations

_row = reservations.c
_gap = log_gaps.c

_PLACES: Final = 200
_SEARCHED: Final = 200_000
_KEYS: Final = 500


class SubmissionPlace(NamedTuple):
    """A submission's partition and offset on the requests topic, and when it was accepted."""

    partition: int
    offset: int
    accepted_at: datetime


class NotedGap(NamedTuple):
    """A `LogGap`, and when it was found."""

    topic: str
    partition: int
    position: int
    resumed_at: int
    noted_at: datetime


class RoundGap(NamedTuple):
    """`known`: request ids of submissions from within the gap that the store has. `since`: when the last submission before the gap
    was accepted, None if the store has none."""

    known: Sequence[str]
    since: datetime | None


class SqlPlaces:
    """On PostgreSQL or SQLite. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def newest_places(self) -> Sequence[SubmissionPlace]:
        """The places of the newest few hundred submissions, without those before the last `accept`."""
        newest = select(_row.partition, _row.log_offset, _row.accepted_at).order_by(_row.id.desc()).limit(_PLACES)
        return [
            SubmissionPlace(row.partition, row.log_offset, row.accepted_at)
            for row in await self._database.read(newest)
            if row.log_offset >= 0
        ]

    async def note(self, gap: NotedGap) -> None:
        """Keep it until `accept`. Noted again, it is the same."""
        statement = insert_into(self._database.dialect, log_gaps).values(gap._asdict()).on_conflict_do_nothing()
        await self._database.run(statement)

    async def gaps(self) -> Sequence[NotedGap]:
        """The gaps not accepted yet, in the order in which they were found."""
        rows = await self._database.read(select(log_gaps).order_by(_gap.noted_at, _gap.topic, _gap.partition))
        return [NotedGap(row.topic, row.partition, row.position, row.resumed_at, row.noted_at) for row in rows]

    async def around(self, gap: NotedGap) -> RoundGap:
        """The submissions around a gap of the requests topic, among the newest ones."""
        columns = select(_row.request_id, _row.partition, _row.log_offset, _row.accepted_at)
        newest = columns.order_by(_row.id.desc()).limit(_SEARCHED).subquery("newest")
        here = newest.c.partition == gap.partition
        within = and_(here, newest.c.log_offset >= gap.position, newest.c.log_offset < gap.resumed_at)
        before = and_(here, newest.c.log_offset < gap.position, newest.c.log_offset >= 0)
        known = await self._database.read(select(newest.c.request_id).where(within).order_by(newest.c.log_offset))
        (last,) = await self._database.read(select(func.max(newest.c.accepted_at).label("since")).where(before))
        return RoundGap([row.request_id for row in known], last.since)

    async def accept(self) -> None:
        """Accepts the topics as they are: no longer compares the places of the newest submissions, and deletes the gaps."""
        newest = select(_row.id).order_by(_row.id.desc()).limit(_PLACES).scalar_subquery()
        here = update(reservations).where(_row.id.in_(newest), _row.log_offset >= 0)
        async with self._database.transaction() as connection:
            await connection.execute(here.values(log_offset=-1 - _row.log_offset))
            await connection.execute(delete(log_gaps))

    async def unowned(self, partitions: int) -> int:
        """How many open rows belong to partitions that the topic no longer has, so that no worker can own them."""
        found = select(func.count()).select_from(reservations).where(_unowned(partitions))
        return int((await self._database.read(found))[0][0])

    async def unowned_keys(self, partitions: int) -> Sequence[tuple[str, str]]:
        """Account and property of some of them."""
        found = select(_row.account_id, _row.property_id).where(_unowned(partitions)).distinct().limit(_KEYS)
        return [(row.account_id, row.property_id) for row in await self._database.read(found)]

    async def move(self, partitions: int, homes: Mapping[tuple[str, str], int]) -> int:
        """Moves the unowned rows of these accounts and properties to the partitions that their messages would go to; returns how
        many."""
        batch = batch_of(_row.account_id, _row.property_id, column("home", Integer))
        rows = [{"account_id": key[0], "property_id": key[1], "home": home} for key, home in homes.items()]
        same = and_(_row.account_id == batch.c.account_id, _row.property_id == batch.c.property_id)
        moved = update(reservations).where(same, _unowned(partitions)).values(partition=batch.c.home).returning(_row.id)
        return len(await self._database.run(moved, {BATCH: as_batch(rows)}))


def _unowned(partitions: int) -> ColumnElement[bool]:
    return and_(_row.due_at.is_not(None), _row.partition >= partitions)

"""Deleting the rows of submissions that were finished long ago, in SQL.

Walks rows in order of ingestion, a few in each short transaction, and skips those that others have locked. A confirmed one
leaves its request id among the duplicates, as a duplicate of itself: if its message is delivered again, or its key used again,
it is not booked again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.reservation.outcome import Status
from forwarder.store.database import Database
from forwarder.store.sql import BATCH, as_batch, batch_of, insert_into, key_among
from forwarder.store.submissions.statements.outcomes import unpublished_of
from forwarder.store.tables import FINISHED_DAY, duplicates, purges, reservations

_row = reservations.c
_OPEN = (Status.PENDING.value, Status.IN_DOUBT.value)


@dataclass(frozen=True, slots=True)
class Purged:
    """The progress of a walk. `last`: the id of the last row read; None: there are no more."""

    last: int | None
    deleted: int = 0


class SqlPurge:
    """Purges on PostgreSQL or SQLite. Raises `StoreUnavailable`. `before`: deletes submissions that finished before this day
    (`FINISHED_DAY`); `workspace_id`: of one workspace, or of all if None."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self._unpublished = unpublished_of()

    async def count(self, before: date, workspace_id: str | None) -> int:
        """How many submissions can be deleted now."""
        found = select(func.count()).select_from(reservations).where(*_finished(before, workspace_id))
        return int((await self._database.read(found))[0][0])

    async def delete_some(self, before: date, workspace_id: str | None, *, after: int, limit: int) -> Purged:
        """Deletes the finished ones among the next `limit` rows with ids above `after`."""
        # Ids follow the order of ingestion: once a row is too recent, all later ones are.
        span = select(_row.id, _row.created_at).where(_row.id > after).order_by(_row.id).limit(limit).subquery("span")
        early = select(func.max(span.c.id).label("last")).where(span.c.created_at < _begin(before))
        ends = (await self._database.read(early))[0]
        if ends.last is None:
            return Purged(None)
        async with self._database.transaction() as connection:
            found = _walked(before, workspace_id, after, ends.last)
            rows = (await connection.execute(found)).all()
            deleted = await self._delete(connection, rows) if rows else 0
        return Purged(ends.last, deleted)

    async def _delete(self, connection: AsyncConnection, rows: Sequence[Row[Any]]) -> int:
        ids = [{"reservation_id": row.id} for row in rows]
        waiting = {row[0] for row in await connection.execute(self._unpublished, {BATCH: as_batch(ids)})}
        gone = [row for row in rows if row.id not in waiting]
        if not gone:
            return 0
        confirmed = [_tombstone(row) for row in gone if row.status == Status.CONFIRMED]
        if confirmed:
            await connection.execute(insert(duplicates), confirmed)
        batch = batch_of(_row.id)
        named = delete(reservations).where(key_among(_row.id, select(batch.c.id)))
        await connection.execute(named, {BATCH: as_batch([{"id": row.id} for row in gone])})
        return len(gone)

    async def mark(self, before: date, *, now: datetime) -> None:
        """Records, before anything is deleted, that the store may lack submissions that finished before that day."""
        values = {"finished_before": before, "purged_at": now}
        noted = insert_into(self._database.dialect, purges).values(values)
        again = noted.on_conflict_do_update(index_elements=["finished_before"], set_={"purged_at": now})
        await self._database.run(again.returning(purges.c.finished_before))

    async def purged_before(self) -> datetime | None:
        """Submissions accepted or finished before this time may have been deleted; None: none were."""
        rows = await self._database.read(select(func.max(purges.c.finished_before).label("latest")))
        return None if rows[0].latest is None else _begin(rows[0].latest)


def _walked(before: date, workspace_id: str | None, after: int, last: int) -> Select[Any]:
    columns = (_row.id, _row.request_id, _row.account_id, _row.status, _row.accepted_at, _row.fingerprint)
    found = select(*columns).where(_row.id > after, _row.id <= last, *_finished(before, workspace_id))
    return found.order_by(_row.id).with_for_update(skip_locked=True)


def _finished(before: date, workspace_id: str | None) -> Sequence[ColumnElement[bool]]:
    theirs = () if workspace_id is None else (_row.workspace_id == workspace_id,)
    nothing_left = (_row.status.not_in(_OPEN), _row.due_at.is_(None), _row.leased_by.is_(None))
    return (_row.created_at < _begin(before), before > FINISHED_DAY, *nothing_left, *theirs)


def _tombstone(row: Row[Any]) -> dict[str, Any]:
    return {
        "request_id": row.request_id,
        "account_id": row.account_id,
        "duplicate_of": row.request_id,
        "accepted_at": row.accepted_at,
        "fingerprint": row.fingerprint,
    }


def _begin(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)

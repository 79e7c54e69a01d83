"""The operators' repairs of submissions, in SQL."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime

from pydantic_core import to_json
from sqlalchemy import literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.store.database import Database
from forwarder.store.sql import BATCH, as_batch
from forwarder.store.submissions.rows import outcome_batch, work_of
from forwarder.store.submissions.statements import claims, duplicates, outcomes
from forwarder.store.submissions.work import Attempt, Ended, Work
from forwarder.store.tables import reservations


class SqlRepairs:
    """`Repairs` on PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def in_doubt(self, request_id: str) -> Work | None:
        original = duplicates.original_of(literal(request_id))
        wanted = (reservations.c.request_id == original, reservations.c.status == Status.IN_DOUBT.value)
        rows = await self._database.read(select(*claims.WORK).where(*wanted))
        return work_of(rows[0]) if rows else None

    async def settle(self, ended: Ended) -> bool:
        batch = outcome_batch(self._database.dialect, [ended])

        async def settle(connection: AsyncConnection) -> None:
            settled = (await connection.execute(outcomes.settle(), batch)).all()
            if not settled:
                raise _NothingChanged
            await connection.execute(outcomes.insert_events(), batch)

        return await self._changes(settle)

    async def make_due(self, work_ids: Collection[int], *, now: datetime) -> int:
        return len(
            await self._database.run(
                claims.make_due(), {BATCH: as_batch([{"id": each} for each in work_ids]), "now": now}
            )
        )

    async def reopen(self, work: Work, *, attempts: Sequence[Attempt], now: datetime, deadline_at: datetime) -> bool:
        row = {
            "id": work.id,
            "revision": work.revision,
            "updated_at": iso(now),
            "attempts": attempts,
            "deadline_at": iso(deadline_at),
        }
        batch = {BATCH: as_batch([row])}

        async def reopen(connection: AsyncConnection) -> None:
            if not (await connection.execute(outcomes.reopen(), batch)).all():
                raise _NothingChanged

        return await self._changes(reopen)

    async def undoubled(self, request_id: str, doubles: Sequence[str]) -> None:
        written = to_json(doubles).decode() if doubles else None
        row = (reservations.c.request_id == request_id, reservations.c.doubles.is_not(None))
        async with self._database.transaction() as connection:
            await connection.execute(update(reservations).where(*row).values(doubles=written))

    async def _changes(self, change: Callable[[AsyncConnection], Awaitable[None]]) -> bool:
        """Whether `change` changed a row; if not, nothing is committed, and so nothing audited as done."""
        try:
            async with self._database.transaction() as connection:
                await change(connection)
        except _NothingChanged:
            return False
        return True


class _NothingChanged(Exception):
    """Takes a transaction back."""

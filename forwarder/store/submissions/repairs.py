"""The operator's hand on the store, in SQL: what is in doubt, settled."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.store.database import Database
from forwarder.store.submissions import outcomes
from forwarder.store.submissions.batch import PARAMETER, as_batch
from forwarder.store.submissions.leasing import WORK
from forwarder.store.submissions.rows import outcome_batch, work_of
from forwarder.store.submissions.work import Attempt, Ended, Work
from forwarder.store.tables import reservations


class SqlRepairs:
    """`Repairs` on PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def in_doubt(self, request_id: str) -> Work | None:
        wanted = (reservations.c.request_id == request_id, reservations.c.status == Status.IN_DOUBT.value)
        rows = await self._database.read(select(*WORK).where(*wanted))
        return work_of(rows[0]) if rows else None

    async def settle(self, final: Ended) -> bool:
        async with self._database.transaction() as connection:
            batch = outcome_batch(self._database.dialect, [final])
            settled = await connection.execute(outcomes.settle(), batch)
            if not settled.all():
                return False
            await connection.execute(outcomes.keep_events(), batch)
        return True

    async def reopen(self, work: Work, *, attempts: Sequence[Attempt], now: datetime, deadline_at: datetime) -> bool:
        row = {
            "id": work.id,
            "revision": work.revision,
            "updated_at": iso(now),
            "attempts": attempts,
            "deadline_at": iso(deadline_at),
        }
        return bool(await self._database.run(outcomes.reopen(), {PARAMETER: as_batch([row])}))

"""The operator's side of the store, in SQL: every workspace's submissions."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Row, Select, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.store.database import Database
from forwarder.store.lists.port import Stored, Summary
from forwarder.store.lists.reader import SqlReader
from forwarder.store.submissions.batch import PARAMETER, as_batch, batch_of
from forwarder.store.submissions.keyed import key_among
from forwarder.store.submissions.rows import attempts_of
from forwarder.store.tables import reservations

_row = reservations.c
_SUMMARY = (
    _row.id,
    _row.request_id,
    _row.account_id,
    _row.status,
    _row.property_id,
    _row.arrival_date,
    _row.departure_date,
    _row.attempts,
    _row.accepted_at,
    _row.due_at,
    _row.problem,
    _row.revision,
)


class SqlOverview:
    """`Overview` on PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self._reader = SqlReader(engine)

    async def find(self, request_id: str) -> tuple[Summary, Stored] | None:
        rows = await self._database.read(select(*_SUMMARY).where(_row.request_id == request_id))
        if not rows:
            return None
        summary = _summary(rows[0])
        stored = await self._reader.submission(summary.account_id, request_id)
        return None if stored is None else (summary, stored)

    async def latest(self, *, status: Status | None, account_id: str | None, limit: int) -> Sequence[Summary]:
        wanted: Select[Any] = select(*_SUMMARY).order_by(_row.id.desc()).limit(limit)
        if status is not None:
            wanted = wanted.where(_row.status == status.value)
        if account_id is not None:
            wanted = wanted.where(_row.account_id == account_id)
        return [_summary(row) for row in await self._database.read(wanted)]

    async def standings(self, request_ids: Collection[str]) -> Mapping[str, tuple[Status, int]]:
        batch = as_batch([{"request_id": each} for each in request_ids])
        rows = await self._database.read(_standings(), {PARAMETER: batch})
        return {row.request_id: (Status(row.status), row.revision) for row in rows}


def _standings() -> Select[Any]:
    batch = batch_of(_row.request_id)
    return select(_row.request_id, _row.status, _row.revision).where(
        key_among(_row.request_id, select(batch.c.request_id))
    )


def _summary(row: Row[Any]) -> Summary:
    return Summary(
        id=row.id,
        request_id=row.request_id,
        account_id=row.account_id,
        status=Status(row.status),
        property_id=row.property_id,
        arrival=row.arrival_date.isoformat(),
        departure=row.departure_date.isoformat(),
        attempts=len(attempts_of(row.attempts)),
        accepted_at=iso(row.accepted_at),
        due_at=None if row.due_at is None else iso(row.due_at),
        problem_code=None if row.problem is None else from_json(row.problem).get("code"),
        revision=row.revision,
    )

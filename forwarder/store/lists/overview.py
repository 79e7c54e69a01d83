"""The operators' side of the store, in SQL: any workspace's submissions, found, shown, and searched."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Row, Select, literal, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.store.database import Database
from forwarder.store.lists import search as searching
from forwarder.store.lists.port import NextTry, Searched, StoredSubmission, SubmissionFilter, SubmissionSummary
from forwarder.store.lists.reader import SqlReader
from forwarder.store.sql import BATCH, as_batch, batch_of, key_among, same_key
from forwarder.store.submissions.duplicates import original_of, superseded
from forwarder.store.submissions.rows import attempts_of
from forwarder.store.tables import outbox, reservations

_row = reservations.c
_LARGEST_ID: Final = 2**63 - 1
_CANDIDATES: Final = 5000
"""How many rows one step of a search looks at."""

_SUMMARY: Final = (
    _row.id,
    _row.record_id,
    _row.request_id,
    _row.workspace_id,
    _row.account_id,
    _row.status,
    _row.property_id,
    _row.arrival_date,
    _row.departure_date,
    _row.attempts,
    _row.accepted_at,
    _row.due_at,
    _row.deadline_at,
    _row.leased_by,
    _row.pms_reservation_id,
    _row.problem,
    _row.revision,
)


class SqlOverview:
    """`Overview` on PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self._reader = SqlReader(engine)

    async def find(self, request_id: str) -> tuple[SubmissionSummary, StoredSubmission] | None:
        rows = await self._database.read(select(*_SUMMARY).where(_row.request_id == original_of(literal(request_id))))
        if not rows:
            return None
        summary = _summary(rows[0])
        stored = await self._reader.submission(summary.account_id, summary.request_id)
        return None if stored is None else (summary, stored)

    async def summaries(self, request_ids: Collection[str]) -> Sequence[SubmissionSummary]:
        named = batch_of(_row.request_id).c.request_id
        asked = select(original_of(named).label("original")).distinct().subquery("asked")
        found = select(*_SUMMARY).select_from(asked.join(reservations, same_key(_row.request_id, asked.c.original)))
        batch = as_batch([{"request_id": each} for each in request_ids])
        return [_summary(row) for row in await self._database.read(found.order_by(_row.id.desc()), {BATCH: batch})]

    async def accounts(self, workspace_id: str | None = None) -> Sequence[str]:
        rows = await self._database.read(searching.accounts())
        return [row.account_id for row in rows if workspace_id in {None, row.workspace_id}]

    async def search(self, wanted: SubmissionFilter, *, limit: int, before: int | None = None) -> Searched:
        lead = searching.lead_of(wanted)
        exact = searching.is_exact(wanted, lead)
        ids, rest = await self._candidates(wanted, lead, limit if exact else max(limit, _CANDIDATES), before)
        found = await self._wanted(wanted, ids)
        if len(found) <= limit:
            return Searched(found, rest)
        return Searched(found[:limit], found[limit - 1].id)

    async def _candidates(
        self, wanted: SubmissionFilter, lead: searching.Lead, max_rows: int, before: int | None
    ) -> tuple[Sequence[int], int | None]:
        """The ids of the next candidates, and the id below which there may be more."""
        first = _LARGEST_ID if before is None else before
        asked = {"before": first, "max_rows": max_rows, BATCH: as_batch(searching.runs_of(wanted, lead))}
        rows = await self._database.read(searching.candidates(self._database.dialect, lead), asked)
        ids = [row.id for row in rows]
        rest = ids[-1] if len(ids) == max_rows else None
        if wanted.transaction_keys is not None:
            keys = as_batch([{"transaction_key": each} for each in wanted.transaction_keys.values()])
            known = await self._database.read(searching.of_transactions(), {BATCH: keys})
            ids += [row.id for row in known if (rest or 0) <= row.id < first]
        return ids, rest

    async def _wanted(self, wanted: SubmissionFilter, ids: Sequence[int]) -> Sequence[SubmissionSummary]:
        request = (_row.request,) if wanted.guest is not None else ()
        statement = searching.among(self._database.dialect, wanted, (*_SUMMARY, *request))
        rows = await self._database.read(statement, {BATCH: as_batch([{"id": each} for each in ids])})
        summaries = ((_summary(row), row.request if wanted.guest is not None else None) for row in rows)
        return [
            each
            for each, text in summaries
            if searching.is_wanted(wanted, each.account_id, text, (each.reason, each.problem_code))
        ]

    async def next_try(self, account_id: str) -> NextTry | None:
        # Literally the condition of the index of what is due, and its order.
        waiting = (_row.account_id == account_id, _row.due_at.is_not(None), _row.leased_by.is_(None))
        first = select(_row.due_at, _row.attempts).where(*waiting).order_by(_row.due_at, _row.id).limit(1)
        rows = await self._database.read(first)
        if not rows:
            return None
        attempts = attempts_of(rows[0].attempts)
        return NextTry(rows[0].due_at, attempts[-1].reason if attempts else None)

    async def unpublished(self, submission_id: int) -> Sequence[int]:
        waiting = select(outbox.c.revision).where(outbox.c.reservation_id == submission_id)
        return [row.revision for row in await self._database.read(waiting.order_by(outbox.c.id))]

    async def statuses(self, request_ids: Collection[str]) -> Mapping[str, tuple[Status, int]]:
        batch = as_batch([{"request_id": each} for each in request_ids])
        rows = await self._database.read(statuses(), {BATCH: batch})
        return {row.request_id: (Status(row.status), row.revision) for row in rows}

    async def anonymous(self, request_ids: Collection[str]) -> Collection[str]:
        batch = as_batch([{"request_id": each} for each in request_ids])
        removed = statuses().where(_row.anonymized_at.is_not(None))
        return {row.request_id for row in await self._database.read(removed, {BATCH: batch})}

    async def superseded(self, request_ids: Collection[str]) -> Mapping[str, str]:
        batch = as_batch([{"request_id": each} for each in request_ids])
        return {row.request_id: row.later for row in await self._database.read(superseded(), {BATCH: batch})}


def statuses() -> Select[Any]:
    """The status, and the revision of the last event, of a batch of request ids."""
    batch = batch_of(_row.request_id)
    return select(_row.request_id, _row.status, _row.revision).where(
        key_among(_row.request_id, select(batch.c.request_id))
    )


def _summary(row: Row[Any]) -> SubmissionSummary:
    attempts = attempts_of(row.attempts)
    problem_code = None if row.problem is None else from_json(row.problem).get("code")
    return SubmissionSummary(
        id=row.id,
        record_id=row.record_id,
        request_id=row.request_id,
        account_id=row.account_id,
        status=Status(row.status),
        property_id=row.property_id,
        arrival=row.arrival_date.isoformat(),
        departure=row.departure_date.isoformat(),
        attempts=len(attempts),
        accepted_at=iso(row.accepted_at),
        due_at=None if row.due_at is None else iso(row.due_at),
        problem_code=problem_code,
        revision=row.revision,
        workspace_id=row.workspace_id,
        reason=(attempts[-1].reason if attempts else None) or problem_code,
        pms_reservation_id=row.pms_reservation_id,
        deadline_at=iso(row.deadline_at),
        held=row.leased_by is not None,
    )

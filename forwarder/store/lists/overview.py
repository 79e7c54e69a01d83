"""The operators' reads in SQL: finding, showing and searching any workspace's submissions."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Executable, Row, Select, literal, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import iso
from forwarder.reservation.evidence import read_evidence
from forwarder.reservation.outcome import Status
from forwarder.store.database import Database
from forwarder.store.lists import search as searching
from forwarder.store.lists.port import (
    LONGEST_LAG,
    AskedFor,
    NextTry,
    Searched,
    StoredSubmission,
    SubmissionFilter,
    SubmissionSummary,
)
from forwarder.store.lists.reader import SqlReader
from forwarder.store.sql import BATCH, DialectName, as_batch, batch_of, key_among, same_key
from forwarder.store.submissions.repeats import replaced_by
from forwarder.store.submissions.rows import attempts_of
from forwarder.store.submissions.statements.duplicates import EVERY_ROW, alike_of, original_of
from forwarder.store.tables import outbox, reservations

_row = reservations.c
_LARGEST_ID: Final = 2**63 - 1
_CANDIDATES: Final = 5000
"""How many rows one step of a search reads."""

_SKEW: Final = timedelta(minutes=5)
"""The maximum difference between the clocks of ingresses and workers."""

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


_TIMES: Final[Mapping[DialectName, Executable]] = {
    "postgresql": text("SELECT clock_timestamp()"),
    "sqlite": text("SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"),
}
_SIZES: Final[Mapping[DialectName, Executable]] = {
    "postgresql": text("SELECT pg_database_size(current_database())"),
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
}


_ASKED: Final = (
    _row.request_id,
    _row.account_id,
    _row.request,
    _row.evidence,
    _row.pms_reservation_id,
    _row.doubles,
)
_MAX_DOUBLED: Final = 1000


def _asked(row: Row[Any]) -> AskedFor:
    evidence, doubles = read_evidence(row.evidence or ""), from_json(row.doubles or "[]")
    reservation = from_json(row.request)
    return AskedFor(row.request_id, row.account_id, reservation, evidence, row.pms_reservation_id, tuple(doubles))


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

    async def accepted_at(self, submission_id: int) -> str | None:
        rows = await self._database.read(searching.next_from(), {"before": submission_id})
        return iso(rows[0].accepted_at) if rows else None

    async def asked_for(self, request_id: str) -> AskedFor | None:
        wanted = select(*_ASKED).where(_row.request_id == original_of(literal(request_id)))
        rows = await self._database.read(wanted)
        return _asked(rows[0]) if rows else None

    async def doubled(self) -> Sequence[AskedFor]:
        wanted = select(*_ASKED).where(_row.doubles.is_not(None)).order_by(_row.id.desc()).limit(_MAX_DOUBLED)
        return [_asked(row) for row in await self._database.read(wanted)]

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
        lowest, before = await self._bounds(wanted, before)
        ids, rest = await self._candidates(wanted, lead, limit if exact else max(limit, _CANDIDATES), before)
        if rest is not None and rest < lowest:  # older rows were accepted earlier
            rest = None
        found = await self._wanted(wanted, ids)
        if len(found) <= limit:
            return Searched(found, rest)
        return Searched(found[:limit], found[limit - 1].id)

    async def _bounds(self, wanted: SubmissionFilter, before: int | None) -> tuple[int, int | None]:
        """The range of ids of rows accepted in the wanted period: ids follow the order of ingestion."""
        lowest = 0
        if wanted.accepted_since is not None:
            lowest = await self._first_ingested(wanted.accepted_since - _SKEW)
        if wanted.accepted_before is not None:
            first_later = await self._first_ingested(wanted.accepted_before + LONGEST_LAG)
            before = first_later if before is None else min(before, first_later)
        return lowest, before

    async def _first_ingested(self, moment: datetime) -> int:
        """The id of the first row ingested at `moment` or later, or one above all. By bisection: an index on the time would
        slow every ingest down."""
        (edge,) = await self._database.read(searching.edges())
        low, high = edge.first or 0, (edge.last or 0) + 1
        while low < high:
            middle = (low + high) // 2
            rows = await self._database.read(searching.next_from(), {"before": middle})
            if rows and rows[0].created_at < moment:
                low = rows[0].id + 1
            else:
                high = middle
        return low

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
        # Literally the condition and order of the index of due rows.
        waiting = (_row.account_id == account_id, _row.due_at.is_not(None), _row.leased_by.is_(None))
        first = select(_row.due_at, _row.attempts).where(*waiting).order_by(_row.due_at, _row.id).limit(1)
        rows = await self._database.read(first)
        if not rows:
            return None
        attempts = attempts_of(rows[0].attempts)
        return NextTry(rows[0].due_at, attempts[-1].reason if attempts else None)

    async def time(self) -> datetime:
        rows = await self._database.read(_TIMES[self._database.dialect])
        shown: datetime | str = rows[0][0]
        return datetime.fromisoformat(shown) if isinstance(shown, str) else shown

    async def size(self) -> int:
        rows = await self._database.read(_SIZES[self._database.dialect])
        return int(rows[0][0])

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

    async def server_settings(self) -> tuple[Mapping[str, str], int]:
        """PostgreSQL's settings for durability, and how many standbys take part in each commit; for SQLite none."""
        if self._database.dialect != "postgresql":
            return {}, 0
        found = await self._database.read(_SERVER_SETTINGS)
        (standbys,) = await self._database.read(_SYNCHRONOUS_STANDBYS)
        return {row.name: row.setting for row in found}, int(standbys.count_of)

    async def superseded(self, request_ids: Collection[str]) -> Mapping[str, str]:
        batch = as_batch([{"request_id": each} for each in request_ids])
        return replaced_by(await self._database.read(alike_of(self._database.dialect), {BATCH: batch, **EVERY_ROW}))


_SERVER_SETTINGS = text("SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes')")
_SYNCHRONOUS_STANDBYS = text(
    "SELECT count(*) AS count_of FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"
)


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

"""The operators' reads: finding, showing and searching any workspace's submissions.

A search reads candidates, newest first, a bounded number at a time: an index has the ids of one account and status, or property, in
order, as others do for one PMS id, or one transaction. Their rows are checked for the rest: in SQL where a database can."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from operator import eq, ge, lt
from typing import Any, Final, Literal, NamedTuple
from unicodedata import normalize

import sqlalchemy as sa
from pydantic_core import from_json
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import iso
from forwarder.reservation.evidence import read_evidence
from forwarder.reservation.outcome import Status
from forwarder.store.batches import BATCH, as_batch, batch_of, in_batch, key_among, key_batch, of_each
from forwarder.store.database import Database
from forwarder.store.lists.port import WAITING, AskedFor, StoredSubmission, SubmissionQuery, SubmissionSummary
from forwarder.store.lists.reader import Reader
from forwarder.store.sql import ONE, DialectName, columns_of, distinct
from forwarder.store.submissions.duplicates import original_of, originals_of_batch, replaced_by
from forwarder.store.submissions.rows import attempts_of
from forwarder.store.tables import POSSIBLE_STATUSES, outbox, recognised_by, reservations

_row = reservations.c
_CANDIDATES: Final = 5000  # how many rows one step of a search reads
_MAX_PATTERN: Final = 1000  # how many characters of a text a database looks for: it refuses larger conditions
_AS_STORED: Final = "id record_id request_id workspace_id account_id property_id pms_reservation_id revision api_key_id"
_WRITTEN: Final = "status arrival_date departure_date attempts accepted_at due_at deadline_at leased_by problem"
_SUMMARY: Final = columns_of(reservations, f"{_AS_STORED} {_WRITTEN}")
statuses = sa.select(_row.request_id, _row.status, _row.revision).where(in_batch(_row.request_id))


class FailedState(NamedTuple):
    """A FAILED submission: its last event's revision, whether its guest was erased, and which later one may be booked instead."""

    revision: int
    erased: bool
    superseded_by: str | None


class Overview:
    """Operators' reads. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self._reader = Reader(engine)

    async def find(self, request_id: str) -> tuple[SubmissionSummary, StoredSubmission] | None:
        """The submission with that request id, or the one that it is a duplicate of, of any account."""
        found = await self.summaries([request_id])
        stored = await self._reader.submission(found[0].account_id, found[0].request_id) if found else None
        return None if stored is None else (found[0], stored)

    async def accepted_at(self, submission_id: int) -> str | None:
        """When the submission in that row, or in the next existing one, was accepted: ISO 8601."""
        rows = await self._database.read(_next_from(submission_id))
        return iso(rows[0].accepted_at) if rows else None

    async def asked_for(self, request_id: str) -> AskedFor | None:
        """The content of that submission, or of the one that it is a duplicate of."""
        found = await self._asked(_row.request_id == original_of(sa.literal(request_id)))
        return found[0] if found else None

    async def doubled(self) -> Sequence[AskedFor]:
        """The submissions that have doubles, newest first; at most the newest 1000."""
        return await self._asked(_row.doubles.is_not(None))

    async def _asked(self, which: sa.ColumnElement[bool]) -> Sequence[AskedFor]:
        columns = columns_of(reservations, "request_id account_id request evidence pms_reservation_id doubles")
        found = sa.select(*columns).where(which).order_by(_row.id.desc()).limit(1000)
        return [
            AskedFor(
                row.request_id,
                row.account_id,
                from_json(row.request),
                read_evidence(row.evidence or ""),
                row.pms_reservation_id,
                tuple(from_json(row.doubles or "[]")),
            )
            for row in await self._database.read(found)
        ]

    async def summaries(self, request_ids: Collection[str]) -> Sequence[SubmissionSummary]:
        """The submissions with these request ids, or of which these are duplicates, newest first."""
        found, named = originals_of_batch(_SUMMARY).order_by(_row.id.desc()), key_batch("request_id", request_ids)
        return [_summary(row) for row in await self._database.read(found, {BATCH: named})]

    async def accounts(self, workspace_id: str | None = None) -> Sequence[str]:
        """The accounts that have submissions, shadows included; of one workspace, if given. One index step for each."""
        found = distinct(_row.account_id.is_not(None), _row.account_id, _row.status)
        of_it = sa.select(_row.workspace_id).where(_row.account_id == found.c.value).order_by(_row.status, _row.id)
        whose = of_it.limit(ONE).correlate(found).scalar_subquery().label("workspace_id")
        every = await self._database.read(sa.select(found.c.value, whose).where(found.c.value.is_not(None)))
        return [row.value for row in every if workspace_id in {None, row.workspace_id}]

    async def search(
        self, wanted: SubmissionQuery, *, limit: int, before: int | None = None
    ) -> tuple[Sequence[SubmissionSummary], int | None]:
        """The newest matches with ids below `before`, at most `limit`; and the id below which to continue, None at the end. Reads
        a few thousand rows at most: a step may find fewer than `limit`, or none, although older matches exist."""
        lead, dialect = lead_of(wanted), self._database.dialect
        others = (wanted.reason, wanted.guest, wanted.transaction_keys, wanted.api_key_id)
        by_lead = lead == "status" or (lead == "property" and wanted.statuses == frozenset(Status))
        every_matches = by_lead and not any((*others, wanted.accepted_before, wanted.accepted_since))
        # Ids follow the order of ingestion: so the wanted period is a range of ids. Clocks of ingresses and workers may differ.
        lowest, first = 0, 2**63 - 1 if before is None else before
        if wanted.accepted_since is not None:
            since = max(wanted.accepted_since, datetime(1970, 1, 1, tzinfo=UTC)) - timedelta(minutes=5)
            lowest = await self._first_ingested(since)
        if wanted.accepted_before is not None:
            # The longest delay between acceptance and ingestion with which this finds a submission: twelve hours.
            until = min(wanted.accepted_before, datetime(9000, 1, 1, tzinfo=UTC)) + timedelta(hours=12)
            first = min(first, await self._first_ingested(until))
        max_rows = limit if every_matches else max(limit, _CANDIDATES)
        asked = {"before": first, "max_rows": max_rows, BATCH: as_batch(runs_of(wanted, lead))}
        ids = [row.id for row in await self._database.read(candidates(dialect, lead), asked)]
        rest = ids[-1] if len(ids) == max_rows else None
        if wanted.transaction_keys is not None:
            keys = key_batch("transaction_key", wanted.transaction_keys.values())
            known = await self._database.read(of_transactions(), {BATCH: keys})
            ids += [row.id for row in known if (rest or 0) <= row.id < first]
        if rest is not None and rest < lowest:  # older rows were accepted earlier
            rest = None
        columns = _SUMMARY if wanted.guest is None else (*_SUMMARY, _row.request)
        # The rows of the candidates that may match, newest first; `is_wanted` decides.
        rows = sa.select(*columns).where(in_batch(_row.id), *_conditions(dialect, wanted)).order_by(_row.id.desc())
        read = await self._database.read(rows, {BATCH: key_batch("id", ids)})
        found = [each for row in read if is_wanted(wanted, each := _summary(row), getattr(row, "request", None))]
        return (found, rest) if len(found) <= limit else (found[:limit], found[limit - 1].id)

    async def _first_ingested(self, moment: datetime) -> int:
        """The id of the first row ingested at `moment` or later, or one above all. By bisection, without an index on the time."""
        edges = sa.select(sa.func.min(_row.id).label("first"), sa.func.max(_row.id).label("last"))
        (edge,) = await self._database.read(edges)
        low, high = edge.first or 0, (edge.last or 0) + 1
        while low < high:
            middle = (low + high) // 2
            rows = await self._database.read(_next_from(middle))
            if rows and rows[0].created_at < moment:
                low = rows[0].id + 1
            else:
                high = middle
        return low

    async def time(self) -> datetime:
        of_postgresql, of_sqlite = "SELECT clock_timestamp()", "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
        text = of_postgresql if self._database.dialect == "postgresql" else of_sqlite
        shown: datetime | str = await self._database.scalar(sa.text(text))
        return datetime.fromisoformat(shown) if isinstance(shown, str) else shown

    async def unpublished(self, submission_id: int) -> Sequence[int]:
        """The revisions of the submission's events that are not known to be published."""
        waiting = sa.select(outbox.c.revision).where(outbox.c.reservation_id == submission_id)
        return [row.revision for row in await self._database.read(waiting.order_by(outbox.c.id))]

    async def statuses(self, request_ids: Collection[str]) -> Mapping[str, tuple[Status, int]]:
        """The status, and the revision of the last event, of each known one of these."""
        rows = await self._database.read(statuses, {BATCH: key_batch("request_id", request_ids)})
        return {row.request_id: (Status(row.status), row.revision) for row in rows}

    async def failed(self, request_ids: Collection[str]) -> Mapping[str, FailedState]:
        wanted = statuses.add_columns(_row.anonymized_at).where(_row.status == Status.FAILED.value)
        rows = await self._database.read(wanted, {BATCH: key_batch("request_id", request_ids)})
        ids = [row.request_id for row in rows]
        later = await replaced_by(self._database.read, self._database.dialect, ids) if rows else {}
        states = (FailedState(row.revision, row.anonymized_at is not None, later.get(row.request_id)) for row in rows)
        return dict(zip(ids, states, strict=True))

    async def server_settings(self) -> tuple[Mapping[str, str], int]:
        """PostgreSQL's settings for durability, and how many standbys take part in each commit; for SQLite none."""
        if self._database.dialect != "postgresql":
            return {}, 0
        settings = sa.text("SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes')")
        found = await self._database.read(settings)
        standbys = sa.text("SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')")
        return {row.name: row.setting for row in found}, int(await self._database.scalar(standbys))


def _summary(row: sa.Row[Any]) -> SubmissionSummary:
    attempts, problem_code = attempts_of(row.attempts), from_json(row.problem or "{}").get("code")
    return SubmissionSummary(
        **{name: getattr(row, name) for name in _AS_STORED.split()},
        status=Status(row.status),
        arrival=row.arrival_date.isoformat(),
        departure=row.departure_date.isoformat(),
        attempts=len(attempts),
        accepted_at=iso(row.accepted_at),
        due_at=None if row.due_at is None else iso(row.due_at),
        problem_code=problem_code,
        reason=(attempts[-1].reason if attempts else None) or problem_code,
        deadline_at=iso(row.deadline_at),
        held=row.leased_by is not None,
    )


_before = sa.bindparam("before", type_=_row.id.type)
_max_rows = sa.bindparam("max_rows", type_=sa.Integer)
MIN_DIGITS: Final = 6
Lead = Literal["pms", "property", "status", "id"]  # the key by which candidates are found; `id`: every row is one


def lead_of(wanted: SubmissionQuery) -> Lead:
    """The filter that probably leaves the fewest candidates. Merging the runs of many accounts costs more than scanning all
    rows, unless for statuses that few rows have."""
    if wanted.pms_reservation_id is not None:
        return "pms"
    if wanted.property_id is not None:
        return "property"
    few = _statuses(wanted) <= WAITING or len(wanted.accounts) * len(wanted.statuses) <= 64  # noqa: PLR2004
    return "status" if few or wanted.transaction_keys is not None else "id"


def runs_of(wanted: SubmissionQuery, lead: Lead) -> list[dict[str, Any]]:
    """The batch of `candidates`: for each account the keys of its runs."""
    match lead:
        case "pms" | "id":
            return [{"value": wanted.pms_reservation_id}]
        case "property":
            return [{"account_id": each, "value": wanted.property_id} for each in wanted.accounts]
        case "status":
            statuses = sorted(_statuses(wanted))
            return [{"account_id": each, "value": status} for each, status in product(wanted.accounts, statuses)]


def _statuses(wanted: SubmissionQuery) -> frozenset[Status]:
    """The statuses whose runs to read; with transaction keys only those that the transactions' index lacks."""
    return wanted.statuses if wanted.transaction_keys is None else wanted.statuses & {Status.FAILED, Status.REJECTED}


def candidates(dialect: DialectName, lead: Lead) -> sa.Select[Any]:
    """The ids of the newest `max_rows` candidates below `before`, for a batch by `runs_of`."""
    if lead == "id":
        return sa.select(_row.id).where(_row.id < _before).order_by(_row.id.desc()).limit(_max_rows)
    runs = batch_of(_row.account_id, sa.column("value", sa.Text()))
    key = {"pms": _row.pms_reservation_id, "property": _row.property_id, "status": _row.status}[lead]
    rows = sa.select(_row.id).where(*([] if lead == "pms" else [_row.account_id == runs.c.account_id]))
    if dialect == "postgresql":
        # Bounds on the order instead of equalities, so that only the intended index serves it: see `reader`.
        run = rows.where(sa.tuple_(key, _row.id) < sa.tuple_(runs.c.value, _before), key >= runs.c.value)
        run = run.order_by(key.desc(), _row.id.desc())
    else:
        run = rows.where(key == runs.c.value, _row.id < _before).order_by(_row.id.desc())
    found = of_each(dialect, runs, run.limit(_max_rows).correlate(runs))
    return found.order_by(found.selected_columns.id.desc()).limit(_max_rows)


def _next_from(row_id: int) -> sa.Select[Any]:
    """The first row at or above that id: its id, and when it was accepted and ingested."""
    return sa.select(_row.id, _row.accepted_at, _row.created_at).where(_row.id >= row_id).order_by(_row.id).limit(ONE)


def of_transactions() -> sa.Select[Any]:
    """The ids of submissions with one of a batch of transaction keys that may have a reservation."""
    keys = batch_of(_row.transaction_key)
    recognised = key_among(recognised_by(_row), sa.select(keys.c.transaction_key))
    # Literally the index's condition, or PostgreSQL cannot use it.
    return sa.select(_row.id).where(recognised, _row.natural_key.is_not(None), _row.status.in_(POSSIBLE_STATUSES))


def _conditions(dialect: DialectName, wanted: SubmissionQuery) -> list[sa.ColumnElement[bool]]:
    compared = (
        (_row.property_id, eq, wanted.property_id),
        (_row.pms_reservation_id, eq, wanted.pms_reservation_id),
        (_row.api_key_id, eq, wanted.api_key_id),
        (_row.accepted_at, lt, wanted.accepted_before),
        (_row.accepted_at, ge, wanted.accepted_since),
    )
    conditions = [compare(column, value) for column, compare, value in compared if value is not None]
    if wanted.statuses != frozenset(Status):
        conditions.append(_row.status.in_(sorted(wanted.statuses)))
    if wanted.transaction_keys is not None:
        conditions.append(_row.transaction_key.in_(sorted(wanted.transaction_keys.values())))
    if wanted.reason is not None:
        named = f'"{wanted.reason}"'[:_MAX_PATTERN]
        conditions.append(sa.or_(*(each.contains(named, autoescape=True) for each in (_row.attempts, _row.problem))))
    if digits := _phone_digits(wanted.guest or ""):
        phone: sa.ColumnElement[Any] = sa.func.json_extract(_row.request, "$.guest.phone")
        if dialect == "postgresql":
            phone = sa.func.json_extract_path_text(sa.cast(_row.request, sa.JSON), "guest", "phone")
        conditions.append(sa.cast(phone, sa.Text).like(f"%{'%'.join(digits)}%"))
    elif wanted.guest is not None:
        # A database folds only some letters: others match any character, and `is_wanted` checks again.
        words = islice(dict.fromkeys(normalize("NFC", wanted.guest)[:_MAX_PATTERN].split()), 20)
        loosely = ("".join(each if each.isascii() and each.isalnum() else "%" for each in word) for word in words)
        conditions += [_row.request.ilike(f"%{word}%") for word in loosely]
    return conditions


def is_wanted(wanted: SubmissionQuery, found: SubmissionSummary, request: str | None) -> bool:
    """The checks that the database cannot make. `request`: its JSON text, for a guest."""
    if found.account_id not in wanted.accounts or wanted.reason not in {None, found.reason, found.problem_code}:
        return False
    if wanted.guest is None or request is None:
        return True
    guest = from_json(request).get("guest") or {}
    if digits := _phone_digits(wanted.guest):
        return digits in digits_of(str(guest.get("phone") or ""))
    names = " ".join(str(guest[each]) for each in ("name", "firstName", "lastName", "email") if guest.get(each))
    known = normalize("NFC", names.casefold())
    return all(word in known for word in normalize("NFC", wanted.guest.casefold()).split())


def _phone_digits(text: str) -> str:
    """The digits of `text` if it is a phone number; otherwise empty."""
    digits, is_other = digits_of(text), any(each.isalpha() or each == "@" for each in text)
    return digits if len(digits) >= MIN_DIGITS and not is_other else ""


def digits_of(text: str) -> str:
    """The digits of a phone number for comparison, without the zeros of an international prefix."""
    return "".join(each for each in text if each.isdecimal()).lstrip("0")

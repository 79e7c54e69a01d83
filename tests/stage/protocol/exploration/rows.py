"""The store as a function: the product's recorder and its statements on SQLite, from rows to rows.

Each call puts the given rows into an emptied database, lets `Recorder` do one thing, and reads the rows again. The
result depends on nothing else, so it is remembered: most steps of an exploration were seen before, in another order.
"""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from sqlalchemy import Connection, CursorResult, Executable, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from forwarder.ingress.message import NewSubmission
from forwarder.ingress.publisher import RecentSubmissions
from forwarder.process.clock import iso
from forwarder.reservation.fast import json_text
from forwarder.reservation.outcome import CancellationRequest
from forwarder.reservation.submission import Submission
from forwarder.store.lists import reader
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.port import Arrival, CancellationArrival, Ended, Heartbeat, NotedOn, Postponed, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import duplicates, metadata, parked_cancellations, reservations
from tests.support.worker.works import NOW

T = TypeVar("T")

Row = tuple[Any, ...]
"""A row of `reservations`."""

DAY: Final = 24 * 3600.0
NAMES: Final = tuple(column.name for column in reservations.columns)
_AT: Final = {name: place for place, name in enumerate(NAMES)}
_TABLES: Final = {
    "reservations": NAMES,
    "duplicates": tuple(column.name for column in duplicates.columns),
    "parked_cancellations": tuple(column.name for column in parked_cancellations.columns),
}
_NEVER: Final = "9999-12-31T00:00:00.000Z"


class Stored(NamedTuple):
    """The contents of the store, and whose leases are in force."""

    rows: tuple[Row, ...] = ()
    duplicates: tuple[Row, ...] = ()
    parked: tuple[Row, ...] = ()
    leases: tuple[str, ...] = ()

    def row(self, request_id: str) -> Row | None:
        return next((row for row in self.rows if field(row, "request_id") == request_id), None)

    def originals(self) -> dict[str, str]:
        """Of each repeat, the request id of the submission that it repeats."""
        names = _TABLES["duplicates"]
        return {row[names.index("request_id")]: row[names.index("duplicate_of")] for row in self.duplicates}


def field(row: Row, name: str) -> Any:
    return row[_AT[name]]


def later(row: Row, seconds: float) -> Row:
    """The row, `seconds` later: the clock stands still, and what is due comes nearer."""
    changed = list(row)
    for name in ("due_at", "deadline_at"):
        at = changed[_AT[name]]
        if at is not None and at != _NEVER:
            changed[_AT[name]] = iso(max(datetime.fromisoformat(at) - timedelta(seconds=seconds), NOW))
    return tuple(changed)


def seconds_until(row: Row, name: str) -> float | None:
    """Until the time in that column; None if there is none."""
    at = field(row, name)
    return None if at is None else (datetime.fromisoformat(at) - NOW).total_seconds()


class Rows:
    """The product's recorder, one call at a time."""

    def __init__(self, connection: Connection) -> None:
        metadata.create_all(connection)
        self._recorder = Recorder(create_async_engine("sqlite+aiosqlite://"))
        database = _Database(connection)
        vars(self._recorder).update(_database=database)
        self._reader = Reader(create_async_engine("sqlite+aiosqlite://"))
        vars(self._reader).update(_by_request_ids=partial(database.read, vars(reader)["_BY_REQUEST_IDS"]))
        self._raw: sqlite3.Connection = cast("Any", connection.connection.driver_connection)
        self._known: dict[Any, Any] = {}
        self.calls = 0

    def recognised(self, stored: Stored, accepted: Sequence[Submission], again: Submission) -> str | None:
        """The request id that an ingress that accepted these gives a caller who sends `again`; None if it publishes it."""
        key = ("door", stored, tuple(each.request_id for each in accepted), again.request_id)

        async def decide() -> str | None:
            recent = RecentSubmissions(self._reader, 100)
            for each in accepted:
                await recent.remember_all(each.account_id, [_new(each)])
            [receipt] = await recent.decide_all(again.account_id, [_new(again)])
            return None if receipt is None else receipt.request_id

        return self._once(key, stored, decide)[1]

    def ingest(self, stored: Stored, worker_id: str, arrival: Arrival) -> tuple[Stored, Sequence[Work]]:
        """A submission, or a replay of a dead letter."""
        key = (
            "ingest",
            stored,
            worker_id,
            arrival.submission.request_id,
            arrival.held,
            arrival.replay_of,
            arrival.target,
        )
        return self._once(key, stored, lambda: self._recorder.ingest(worker_id, [arrival], now=NOW))

    def cancel(self, stored: Stored, request: CancellationRequest) -> tuple[Stored, Mapping[str, NotedOn]]:
        """A cancellation, with the rows that it concerns and who holds them."""
        arrival = CancellationArrival(request, NOW + timedelta(seconds=DAY))
        key = ("cancel", stored, request.request_id, request.revision)
        return self._once(key, stored, lambda: self._recorder.request_cancellations([arrival], now=NOW))

    def claim(self, stored: Stored, row: Row, worker_id: str, target: str | None) -> tuple[Row, Work | None]:
        def claim() -> Awaitable[Sequence[Work]]:
            return self._recorder.claim(worker_id, field(row, "account_id"), {0}, now=NOW, limit=1, target=target)

        return self._of_one(("claim", row, worker_id, target), stored, row, claim)

    def claim_expired(self, stored: Stored, row: Row, worker_id: str) -> tuple[Row, Work | None]:
        def claim() -> Awaitable[Sequence[Work]]:
            return self._recorder.claim_expired(worker_id, {0}, now=NOW, limit=1)

        return self._of_one(("expired", row, worker_id), stored, row, claim)

    def record(self, stored: Stored, row: Row, worker_id: str, key: Any, decision: Ended | Postponed) -> Row:
        ended = [decision] if isinstance(decision, Ended) else []
        postponed = [decision] if isinstance(decision, Postponed) else []

        def record() -> Awaitable[Any]:
            return self._recorder.record(worker_id, ended, postponed)

        after, _ = self._once(("record", row, worker_id, key), stored._replace(rows=(row,)), record)
        return after.rows[0]

    def release(self, stored: Stored, row: Row, worker_id: str) -> Row:
        ids = [field(row, "id")]
        after, _ = self._once(
            ("release", row, worker_id), stored._replace(rows=(row,)), lambda: self._recorder.release(worker_id, ids)
        )
        return after.rows[0]

    def mark_pushing(self, stored: Stored, row: Row, worker_id: str) -> tuple[Row, bool]:
        ids = [field(row, "id")]
        after, marked = self._once(
            ("mark", row, worker_id), stored._replace(rows=(row,)), lambda: self._recorder.mark_pushing(worker_id, ids)
        )
        return after.rows[0], bool(marked)

    def take_over(self, stored: Stored, worker_id: str) -> Stored:
        """The lease of `worker_id` has run out: its rows are due again."""
        left = tuple(each for each in stored.leases if each != worker_id)
        rows, stopped = [], [Heartbeat(worker_id, 0, 45.0)]
        for row in stored.rows:
            if field(row, "leased_by") == worker_id:
                alone = Stored((row,), leases=stored.leases)
                after, _ = self._once(("over", row), alone, lambda: self._recorder.take_over(stopped, now=NOW))
                rows.append(after.rows[0])
            else:
                rows.append(row)
        return stored._replace(rows=tuple(rows), leases=left)

    def _of_one(
        self, key: Any, stored: Stored, row: Row, claim: Callable[[], Awaitable[Sequence[Work]]]
    ) -> tuple[Row, Work | None]:
        after, works = self._once(key, stored._replace(rows=(row,), duplicates=(), parked=()), claim)
        return after.rows[0], works[0] if works else None

    def _once(self, key: Any, stored: Stored, call: Callable[[], Awaitable[T]]) -> tuple[Stored, T]:
        known = self._known.get(key)
        if known is None:
            self.calls += 1
            self._write(stored)
            result = run(call())
            known = self._known[key] = self._read(stored.leases), result
        return known

    def _write(self, stored: Stored) -> None:
        for table in (*_TABLES, "workers", "outbox"):
            self._raw.execute(f"DELETE FROM {table}")
        for (table, names), rows in zip(_TABLES.items(), stored, strict=False):
            marks = ",".join("?" * len(names))
            self._raw.executemany(f"INSERT INTO {table} ({','.join(names)}) VALUES ({marks})", rows)
        leases = [(each,) for each in stored.leases]
        self._raw.executemany("INSERT INTO workers (id, sequence, lease_seconds) VALUES (?, 0, 45.0)", leases)

    def _read(self, leases: tuple[str, ...]) -> Stored:
        found = [
            tuple(self._raw.execute(f"SELECT {','.join(names)} FROM {table} ORDER BY 1").fetchall())
            for table, names in _TABLES.items()
        ]
        return Stored(tuple(map(_plain, found[0])), found[1], found[2], leases)


def _plain(row: Row) -> Row:
    """The row without what is only for people to read, and would set equal states apart."""
    changed = list(row)
    changed[_AT["attempts"]], changed[_AT["tries"]] = "[]", 0
    if changed[_AT["problem"]] is not None:
        changed[_AT["problem"]] = "{}"
    return tuple(changed)


def _new(submission: Submission) -> NewSubmission:
    """The submission as it is before it is on the log."""
    return NewSubmission(
        submission.request_id,
        submission.workspace_id,
        submission.account_id,
        submission.operation,
        iso(submission.accepted_at),
        json_text(submission.reservation),
        submission.fingerprint,
        submission.account_id,
        keyed=False,
        natural=submission.natural,
    )


class _Database:
    """Stands for the recorder's `Database`: its statements, at once, in one transaction that is never committed."""

    dialect: Final = "sqlite"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        return self._connection.execute(statement, parameters)

    async def run(self, statement: Executable, parameters: Any = None) -> Sequence[Any]:
        result = await self.execute(statement, parameters)
        return result.all() if result.returns_rows else ()

    read = run

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["_Database"]:
        yield self


def run(waiting: Awaitable[T]) -> T:
    """The result of what never really waits."""
    try:
        waiting.__await__().send(None)
    except StopIteration as done:
        return cast("T", done.value)
    raise AssertionError("it waits")


@contextmanager
def opened_rows() -> Iterator[Rows]:
    engine = create_engine("sqlite://")
    try:
        with engine.connect() as connection:
            yield Rows(connection)
    finally:
        engine.dispose()

"""What a recovery needs of the topics: their submissions, cancellations and outcomes since a time, in a temporary file. They may be
millions, more than memory holds.

The file is SQLite's and has no name: no other process can open it, and it is gone when this one ends, however it ends. It takes
about as much room as the topics take for that time, in the directory that the environment variable TMPDIR names."""

# ruff: noqa: S608 - statements are put together from constants

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from forwarder.operate.output import Failed
from forwarder.oversight.restored import PublishedOutcome, RecoveryCheck
from forwarder.reservation.outcome import CancellationRequest, Status
from forwarder.reservation.submission import Submission
from forwarder.topics.codec import decode_cancellation, decode_submission
from forwarder.topics.port import ConsumedMessage, Log, Message, Topics, headers_as_text, headers_from_text, read_to_end

BATCH: Final = 200  # how many of them to handle at a time
_T = TypeVar("_T")
_MESSAGE: Final = "partition, place, timestamp_ms, key, value, headers"
_SCHEMA: Final = f"""
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA cache_size = -32768;
    CREATE TABLE requests ({_MESSAGE}, request_id, cancels, revision, lacking DEFAULT 0);
    CREATE TABLE outcomes ({_MESSAGE}, request_id, revision, lacking);
    CREATE INDEX requests_ordered ON requests (timestamp_ms, partition, place);
    CREATE INDEX requests_by_id ON requests (request_id);
    CREATE INDEX outcomes_by_id ON outcomes (request_id);"""
"""`place`: the offset. `revision`: of an outcome, or of the failure that a replay repairs. `lacking`: the store lacks it."""
_ORDER: Final = "ORDER BY r.timestamp_ms, r.partition, r.place"


def _earlier(condition: str) -> str:
    return f"""EXISTS (SELECT 1 FROM requests e WHERE e.request_id = r.request_id AND NOT e.cancels AND {condition}
        AND (e.timestamp_ms, e.partition, e.place) < (r.timestamp_ms, r.partition, r.place))"""


_IS_MISSING: Final = f"NOT r.cancels AND r.lacking AND NOT {_earlier('e.lacking')}"
_IS_REPLAY: Final = """r.revision IS NOT NULL AND NOT EXISTS (SELECT 1 FROM requests l WHERE l.request_id = r.request_id
    AND l.revision IS NOT NULL AND (l.timestamp_ms, l.partition, l.place) > (r.timestamp_ms, r.partition, r.place))"""
_IS_LAST: Final = """o.lacking AND o.rowid = (SELECT l.rowid FROM outcomes l
    WHERE l.request_id = o.request_id AND l.lacking ORDER BY l.revision DESC, l.rowid DESC LIMIT 1)"""


class Submitted(NamedTuple):
    """A submission on the requests topic. `missing`: the store lacks it, and this is its first message. `outcome`: its last one, if
    the store lacks that. `cancellation`: the first request to cancel it. `replay_of`: the failure's revision, if it is a replay."""

    message: ConsumedMessage
    submission: Submission
    missing: bool
    outcome: PublishedOutcome | None
    cancellation: CancellationRequest | None
    replay_of: int | None


class TopicCopy:
    """Filled by `read`. What it yields is in the order of the topics."""

    def __init__(self, log: Log, topics: Topics, check: RecoveryCheck) -> None:
        self._log, self._topics, self._check = log, topics, check
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.executescript(_SCHEMA)
        self.close = self._file.close

    async def read(self, since: datetime | None) -> None:
        """Copies what the topics hold since then, of the requests topic what workers had ingested. Raises `Failed`
        without room for them, `LogUnavailable`, `StoreUnavailable`."""
        try:
            await self._copy(since)
        except sqlite3.OperationalError as error:
            says = f"The topics cannot be copied to a temporary file: {error}"
            raise Failed(f"{says}. Set TMPDIR to a directory with more room, and run this again.") from error

    async def _copy(self, since: datetime | None) -> None:
        committed = await self._check.committed()
        async for batch in read_to_end(self._log, self._topics.requests, since=since):
            self._insert("requests", self._requests_in(batch))
        async for batch in read_to_end(self._log, self._topics.results, since=since):
            outcomes = self._check.outcomes(batch)
            behind = {(each.request_id, each.revision) for each in await self._check.behind(outcomes)}
            keyed = [(each.consumed, (each.request_id, each.revision)) for each in outcomes]
            self._insert("outcomes", [(*_stored(consumed), *key, key in behind) for consumed, key in keyed])
        # Leave out what workers had not ingested. They had ingested what is before the committed offset, which lags behind and
        # which operators may set back, and before the end of the last submission that has an outcome. A later message of its
        # request id proves nothing: its caller sent it again.
        ingested = f"""SELECT r.partition, max(r.place) + 1 FROM requests r WHERE NOT r.cancels AND NOT {_earlier("TRUE")}
            AND EXISTS (SELECT 1 FROM outcomes o WHERE o.request_id = r.request_id) GROUP BY r.partition"""
        ends = dict(committed)
        for partition, end in self._all(ingested):
            ends[partition] = max(ends.get(partition, 0), end)
        for (partition,) in self._all("SELECT DISTINCT partition FROM requests"):
            self._all("DELETE FROM requests WHERE partition = ? AND place >= ?", (partition, ends.get(partition, 0)))
        last = 0
        kept = f"SELECT {_MESSAGE}, rowid FROM requests WHERE NOT cancels AND rowid > ? ORDER BY rowid LIMIT {BATCH}"
        while rows := self._all(kept, (last,)):
            last = rows[-1][-1]
            messages = (_read(self._topics.requests, row) for row in rows)
            places = {(each.partition, each.offset): decode_submission(each.message) for each in messages}
            lacks = await self._check.unknown(places)
            unknown = [row[-1:] for row in rows if row[:2] in lacks]
            self._file.executemany("UPDATE requests SET lacking = 1 WHERE rowid = ?", unknown)

    def to_restore(self) -> Iterator[Sequence[Submitted]]:
        """The submissions that the store lacks, each once, as it was first; and the last replay of each submission. Each batch is
        of one of these two. One with an outcome or a cancellation ends a batch before the next with its content: these must be
        stored, and its content known, when that one is compared with it. So does a failed outcome."""
        batch: list[Submitted] = []
        decided: set[str] = set()
        for each in self._submitted(f"({_IS_MISSING}) OR ({_IS_REPLAY})"):
            alike = {natural.key, natural.stay or natural.key} if (natural := each.submission.natural) else set()
            ended = batch[-1].outcome if batch else None
            unmade = ended is not None and ended.status in {Status.REJECTED, Status.FAILED, Status.CANCELLED}
            if batch and (len(batch) == BATCH or unmade or alike & decided or each.missing != batch[-1].missing):
                yield batch
                batch, decided = [], set()
            batch.append(each)
            if each.outcome is not None or each.cancellation is not None:
                decided |= alike
        if batch:
            yield batch

    def decided(self) -> Iterator[Submitted]:
        return self._submitted("NOT r.cancels AND o.rowid IS NOT NULL")

    def replays(self) -> Iterator[Submitted]:
        """The replayed dead letters, the last of each submission."""
        return self._submitted(_IS_REPLAY)

    def cancellations(self, *, of_missing: bool = True) -> Iterator[CancellationRequest]:
        """The requested cancellations; without `of_missing`, only of submissions that the store does not lack."""
        lacks = "EXISTS (SELECT 1 FROM requests m WHERE m.request_id = r.request_id AND m.lacking)"
        condition = "r.cancels" if of_missing else f"r.cancels AND NOT {lacks}"
        for row in self._file.execute(f"SELECT {_MESSAGE} FROM requests r WHERE {condition} {_ORDER}"):
            yield decode_cancellation(_read(self._topics.requests, row).message)

    def outcomes(self) -> Iterator[tuple[PublishedOutcome, bool]]:
        """The last outcome of each submission, if the store lacks it; and whether the store lacks the submission as well."""
        lacks = "EXISTS (SELECT 1 FROM requests r WHERE r.request_id = o.request_id AND r.lacking)"
        for row in self._file.execute(f"SELECT {_MESSAGE}, {lacks} FROM outcomes o WHERE {_IS_LAST} ORDER BY o.rowid"):
            yield self._outcome(row), bool(row[-1])

    def known(self) -> Iterator[Message]:
        for row in self._file.execute(f"SELECT {_MESSAGE} FROM outcomes WHERE NOT lacking ORDER BY rowid"):
            yield _read(self._topics.results, row).message

    def counts(self) -> Mapping[str, int]:
        """How many of each: missing, undecided (of those), cancellations, known; and outcomes, as `outcomes` yields them."""
        of_outcomes = "EXISTS (SELECT 1 FROM outcomes o WHERE o.request_id = r.request_id AND o.lacking)"
        counted = {
            "missing": f"requests r WHERE {_IS_MISSING}",
            "undecided": f"requests r WHERE {_IS_MISSING} AND NOT {of_outcomes}",
            "cancellations": "requests r WHERE r.cancels",
            "known": "outcomes WHERE NOT lacking",
            "outcomes": f"outcomes o WHERE {_IS_LAST}",
        }
        return {each: self._all(f"SELECT count(*) FROM {rows}")[0][0] for each, rows in counted.items()}

    def _requests_in(self, batch: Sequence[ConsumedMessage]) -> Iterable[Sequence[Any]]:
        submitted, replays = self._check.submissions(batch), self._check.replays(batch)
        for each in batch:
            submission, cancellation = submitted.get((each.partition, each.offset)), self._check.cancellation(each)
            if submission is not None:
                replayed = replays.get(submission.request_id)
                revision = replayed[1] if replayed and replayed[0] is each else None
                yield *_stored(each), submission.request_id, False, revision
            elif cancellation is not None:
                yield *_stored(each), cancellation.request_id, True, None

    def _submitted(self, condition: str) -> Iterator[Submitted]:
        columns = ", ".join(f"{table}.{name}" for table in "roc" for name in _MESSAGE.split(", "))
        outcomes = f"LEFT JOIN outcomes o ON o.request_id = r.request_id AND {_IS_LAST}"
        cancellations = """LEFT JOIN requests c ON c.rowid = (SELECT f.rowid FROM requests f
            WHERE f.request_id = r.request_id AND f.cancels ORDER BY f.timestamp_ms, f.partition, f.place LIMIT 1)"""
        selected = f"{columns}, {_IS_MISSING}, r.revision FROM requests r {outcomes} {cancellations}"
        for row in self._file.execute(f"SELECT {selected} WHERE {condition} {_ORDER}"):
            message = _read(self._topics.requests, row)
            outcome = None if row[6] is None else self._outcome(row[6:])
            cancels = None if row[12] is None else decode_cancellation(_read(self._topics.requests, row[12:]).message)
            yield Submitted(message, decode_submission(message.message), bool(row[-2]), outcome, cancels, row[-1])

    def _outcome(self, row: Sequence[Any]) -> PublishedOutcome:
        (outcome,) = self._check.outcomes([_read(self._topics.results, row)])
        return outcome

    def _insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        names = f"{_MESSAGE}, request_id, " + ("cancels, revision" if table == "requests" else "revision, lacking")
        self._file.executemany(f"INSERT INTO {table} ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return self._file.execute(statement, parameters).fetchall()


def _stored(consumed: ConsumedMessage) -> tuple[Any, ...]:
    message, place = consumed.message, (consumed.partition, consumed.offset, consumed.timestamp_ms)
    return *place, message.key, message.value, headers_as_text(message.headers)


def _read(topic: str, row: Sequence[Any]) -> ConsumedMessage:
    partition, offset, timestamp_ms, key, value, headers = row[:6]
    return ConsumedMessage(topic, partition, offset, timestamp_ms, Message(key, value, headers_from_text(headers)))


def in_batches(items: Iterator[_T]) -> Iterator[Sequence[_T]]:
    while batch := list(islice(items, BATCH)):
        yield batch

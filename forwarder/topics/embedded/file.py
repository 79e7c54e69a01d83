"""The SQLite file of the embedded log: tables, statements, the commands of a transaction, and where errors are translated:

    sqlite3.Error, OSError  ->  LogUnavailable, in `reaching_file`

Blocks: called from threads of the log. Uses the file, and lock files next to it."""

import fcntl
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Final, NamedTuple, assert_never
from urllib.parse import quote

from forwarder.topics.port import (
    ConsumedMessage,
    GroupBusy,
    Lag,
    LogUnavailable,
    Message,
    headers_as_text,
    headers_from_text,
    moment_of,
)
from forwarder.topics.publishing import partition_of

_VERSION = 1
_BUSY_SECONDS = 5.0
_CHECKPOINT_PAGES = 4_000  # 16 MB: rare enough not to slow down a burst, often enough for a short recovery

_TABLES = (
    "create table topics (id integer primary key, name text not null unique, partitions integer not null)",
    # The offset of a partition's next message. Kept apart from the messages, so that deleting them never lowers it.
    """create table heads (topic integer not null, partition integer not null, next_offset integer not null,
       primary key (topic, partition)) without rowid""",
    # With a rowid, messages are appended at the end of the table; ordered by their key they would be spread all over it.
    """create table messages (topic integer not null, partition integer not null, offset integer not null,
       timestamp_ms integer not null, key blob not null, value blob not null, headers text not null,
       primary key (topic, partition, offset))""",
    """create table commits (group_name text not null, topic integer not null, partition integer not null,
       next_offset integer not null, primary key (topic, group_name, partition)) without rowid""",
)

MAX_READ_BYTES: Final = 1024 * 1024
"""How much to read from one partition at once, like a Kafka fetch; exceeded by at most one message."""

Entry = tuple[bytes, bytes, str, int | None]
Row = tuple[int, int, int, int, bytes, bytes, str]


class TopicEntry(NamedTuple):
    """A topic's row in the file."""

    id: int
    partitions: int


@contextmanager
def reaching_file(doing: str) -> Iterator[None]:
    """Raise `LogUnavailable` if the file fails the block: disk full, locked for too long, damaged, gone."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise LogUnavailable(f"{doing}: {error}") from error


def open_file(path: Path) -> sqlite3.Connection:
    """A connection for one thread. Creates the file and its tables if they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock_path(path, "open").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # SQLite does not wait if two processes turn on the write-ahead log at once
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = full")
            connection.execute("pragma fullfsync = on")  # for macOS, where a sync does nothing without it
            connection.execute(f"pragma wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            _create_tables(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _create_tables(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("pragma user_version").fetchone()
    if version == _VERSION:
        return
    if version != 0:
        raise sqlite3.DatabaseError(f"the file is of version {version}; this program knows version {_VERSION}")
    with writing(connection):
        for table in _TABLES:
            connection.execute(table)
        connection.execute(f"pragma user_version = {_VERSION}")


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the file's write lock from its start; committed and synced at its end."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def topic_entry(connection: sqlite3.Connection, name: str) -> TopicEntry | None:
    """The topic, if it exists."""
    row = connection.execute("select id, partitions from topics where name = ?", (name,)).fetchone()
    return None if row is None else TopicEntry(*row)


def create_topic(connection: sqlite3.Connection, name: str, partitions: int) -> TopicEntry:
    """Create it, inside a transaction."""
    made = connection.execute("insert into topics (name, partitions) values (?, ?)", (name, partitions)).lastrowid
    entry = TopicEntry(made or 0, partitions)
    connection.executemany("insert into heads values (?, ?, 0)", [(entry.id, each) for each in range(partitions)])
    return entry


def known_topic(connection: sqlite3.Connection, name: str) -> TopicEntry:
    """The topic. Raises `sqlite3.DatabaseError` if it is not there, for example because the file was replaced."""
    topic = topic_entry(connection, name)
    if topic is None:
        raise sqlite3.DatabaseError(f"topic {name} is not in the file")
    return topic


def heads(connection: sqlite3.Connection, topic: TopicEntry) -> dict[int, int]:
    """For each partition, the offset of its next message."""
    return dict(connection.execute("select partition, next_offset from heads where topic = ?", (topic.id,)))


def append(
    connection: sqlite3.Connection, topic: TopicEntry, rows: Iterable[Row], new_heads: Mapping[int, int]
) -> None:
    """Store `rows` and move the heads, inside a transaction."""
    connection.executemany("insert into messages values (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.executemany(
        "update heads set next_offset = ? where topic = ? and partition = ?",
        [(offset, topic.id, partition) for partition, offset in new_heads.items()],
    )


def entry_of(message: Message) -> Entry:
    """The key, the value and the headers as the file keeps them, and the partition that was chosen."""
    return message.key, message.value, headers_as_text(message.headers), message.partition


def read(
    connection: sqlite3.Connection, name: str, topic: TopicEntry, partition: int, offset: int, max_messages: int
) -> list[ConsumedMessage]:
    """A partition's messages from `offset` on, so many or `MAX_READ_BYTES` of them, whichever is reached first."""
    rows = connection.execute(
        """select offset, timestamp_ms, key, value, headers from messages
           where topic = ? and partition = ? and offset >= ? order by offset limit ?""",
        (topic.id, partition, offset, max_messages),
    )
    found: list[ConsumedMessage] = []
    read = 0
    with closing(rows):
        for at, timestamp_ms, key, value, text in rows:
            found.append(
                ConsumedMessage(name, partition, at, timestamp_ms, Message(key, value, headers_from_text(text)))
            )
            read += found[-1].message.size
            if read >= MAX_READ_BYTES:
                break
    return found


def committed(connection: sqlite3.Connection, topic: TopicEntry, group: str) -> dict[int, int]:
    """For each partition that the group knows, the offset from which it resumes."""
    rows = connection.execute(
        "select partition, next_offset from commits where topic = ? and group_name = ?", (topic.id, group)
    )
    return dict(rows)


def commit(connection: sqlite3.Connection, topic: TopicEntry, group: str, offsets: Mapping[int, int]) -> None:
    """Advance the group's offsets, inside a transaction; never lower them."""
    connection.executemany(
        """insert into commits (group_name, topic, partition, next_offset) values (?, ?, ?, ?)
           on conflict do update set next_offset = max(next_offset, excluded.next_offset)""",
        [(group, topic.id, partition, offset) for partition, offset in offsets.items()],
    )


def lock_group(path: Path, topic: str, group: str) -> IO[bytes]:
    """Become the one consumer of `group` on `topic`, until the file is closed or this process ends, however it ends.

    Raises `GroupBusy` or `LogUnavailable`.
    """
    with reaching_file(f"lock group {group}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock_path(path, f"{topic}@{group}").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise GroupBusy(f"group {group} has a consumer of {topic} already: the embedded log takes one") from error
    return lock


def _lock_path(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}.{quote(name, safe='@')}.lock")


@dataclass(frozen=True, slots=True)
class Append:
    """Messages for a topic, prepared by `entry_of`. Creates the topic if it is missing."""

    topic: str
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Commit:
    """The offsets from which a group resumes, one for each partition. Without any, it only registers the group."""

    topic: str
    group: str
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Create:
    """Create a topic unless it exists. `partitions`: None for the default number."""

    topic: str
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class NoOp:
    """To check whether a transaction succeeds."""


Command = Append | Commit | Create | NoOp


def execute_all(
    connection: sqlite3.Connection, commands: Iterable[Command], *, partitions: int, now_ms: int
) -> list[bool]:
    """Execute all of `commands`, or none. For each, whether it created its topic. New topics get `partitions` partitions."""
    with writing(connection):
        transaction = _Transaction(connection, partitions, now_ms)
        results = [transaction.execute(command) for command in commands]
        transaction.store()
    return results


@dataclass(slots=True)
class _OpenTopic:
    """A topic during the transaction: where its partitions end, and the rows to store."""

    entry: TopicEntry
    heads: dict[int, int]
    rows: list[Row] = field(default_factory=list)


class _Transaction:
    def __init__(self, connection: sqlite3.Connection, partitions: int, now_ms: int) -> None:
        self._connection = connection
        self._partitions = partitions
        self._now_ms = now_ms
        self._topics: dict[str, _OpenTopic] = {}

    def execute(self, command: Command) -> bool:
        match command:
            case Append(topic, entries):
                return self._append(topic, entries)
            case Commit(topic, group, offsets):
                return self._commit(topic, group, offsets)
            case Create(topic, partitions):
                return self._open(topic, partitions or self._partitions)[1]
            case NoOp():
                return False
            case _:
                assert_never(command)

    def store(self) -> None:
        """Writes the appended messages, once per topic, however many commands there were."""
        for topic in self._topics.values():
            if topic.rows:
                append(self._connection, topic.entry, topic.rows, topic.heads)

    def _append(self, name: str, entries: Sequence[Entry]) -> bool:
        topic, created = self._open(name, self._partitions)
        heads, rows, (topic_id, partitions) = topic.heads, topic.rows, topic.entry
        for key, value, headers, chosen in entries:
            partition = partition_of(key, partitions, chosen)
            offset = heads[partition]
            heads[partition] = offset + 1
            rows.append((topic_id, partition, offset, self._now_ms, key, value, headers))
        return created

    def _commit(self, name: str, group: str, offsets: Mapping[int, int]) -> bool:
        topic, created = self._open(name, self._partitions)
        commit(self._connection, topic.entry, group, dict.fromkeys(topic.heads, 0) | dict(offsets))
        return created

    def _open(self, name: str, partitions: int) -> tuple[_OpenTopic, bool]:
        found = self._topics.get(name)
        if found is not None:
            return found, False
        entry = topic_entry(self._connection, name)
        created = entry is None
        entry = entry or create_topic(self._connection, name, partitions)
        topic = self._topics[name] = _OpenTopic(entry, heads(self._connection, entry))
        return topic, created


def list_topics(path: Path) -> dict[str, int]:
    """Every topic and its number of partitions. Raises `LogUnavailable`."""
    with reaching_file(f"read {path}"), closing(open_file(path)) as connection:
        return dict(connection.execute("select name, partitions from topics order by name"))


def topic_offsets(path: Path, name: str) -> dict[int, range]:
    """For each partition of the topic, the offsets that it holds; none if there is no such topic. Raises `LogUnavailable`."""
    with reaching_file(f"read {path}"), closing(open_file(path)) as connection:
        topic = topic_entry(connection, name)
        if topic is None:
            return {}
        first = first_offsets(connection, topic)
        return {each: range(first.get(each, head), head) for each, head in sorted(heads(connection, topic).items())}


def offsets_at(path: Path, name: str, since_ms: Sequence[int]) -> list[dict[int, int]]:
    """`offsets_since` of each of these times, in one pass; empty if there is no such topic. Raises `LogUnavailable`."""
    with reaching_file(f"read {path}"), closing(open_file(path)) as connection:
        topic = topic_entry(connection, name)
        if topic is None:
            return [{} for _ in since_ms]
        ends = heads(connection, topic)
        found = [dict(ends) for _ in since_ms]
        firsts = ", ".join(["min(case when timestamp_ms >= ? then offset end)"] * len(since_ms))
        rows = connection.execute(
            f"select partition, {firsts} from messages where topic = ? group by partition",  # noqa: S608 - only placeholders
            (*since_ms, topic.id),
        )
        for partition, *offsets in rows:
            for places, offset in zip(found, offsets, strict=True):
                if offset is not None:
                    places[partition] = offset
        return found


def committed_offsets(path: Path, name: str, group: str) -> dict[int, int]:
    """As `committed`; empty if there is no such topic. Raises `LogUnavailable`."""
    with reaching_file(f"read {path}"), closing(open_file(path)) as connection:
        topic = topic_entry(connection, name)
        return {} if topic is None else committed(connection, topic, group)


def group_lag(path: Path, name: str, group: str) -> list[Lag]:
    """The lag of `group` in each partition of the topic; none if there is no such topic. Raises `LogUnavailable`."""
    with reaching_file(f"read {path}"), closing(open_file(path)) as connection:
        topic = topic_entry(connection, name)
        if topic is None:
            return []
        done = committed(connection, topic, group)
        first = first_offsets(connection, topic)  # earlier messages were deleted and are not lag
        ends = heads(connection, topic)
        begun = {each: max(done.get(each, 0), first.get(each, end)) for each, end in ends.items()}
        return [
            Lag(each, end - begun[each], _appended_at(connection, topic, each, begun[each]))
            for each, end in sorted(ends.items())
        ]


def _appended_at(connection: sqlite3.Connection, topic: TopicEntry, partition: int, offset: int) -> datetime | None:
    rows = connection.execute(
        "select timestamp_ms from messages where topic = ? and partition = ? and offset >= ? order by offset limit 1",
        (topic.id, partition, offset),
    )
    found = rows.fetchone()
    return None if found is None else moment_of(found[0])


def first_offsets(connection: sqlite3.Connection, topic: TopicEntry) -> dict[int, int]:
    """For each partition that has messages, the offset of the first."""
    rows = connection.execute(
        "select partition, min(offset) from messages where topic = ? group by partition", (topic.id,)
    )
    return dict(rows)


def offsets_since(connection: sqlite3.Connection, topic: TopicEntry, *, since_ms: int) -> dict[int, int]:
    """For each partition, the offset of the first message appended at that time or later, else of its next message."""
    ends = heads(connection, topic)  # first: a message appended between the two queries is found by its time
    rows = connection.execute(
        "select partition, min(offset) from messages where topic = ? and timestamp_ms >= ? group by partition",
        (topic.id, since_ms),
    )
    return {**ends, **dict(rows)}

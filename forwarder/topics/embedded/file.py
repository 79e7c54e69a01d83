"""The SQLite file of the embedded log: its tables and statements, and where errors are translated:

    sqlite3.Error, OSError  ->  LogUnavailable, in `reaching_file`

Blocks: called from threads of the log. Uses the file, and lock files next to it."""

import fcntl
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Final, TypeVar
from urllib.parse import quote

from forwarder.topics import port
from forwarder.topics.port import ConsumedMessage, LogUnavailable, Message, partition_of

T = TypeVar("T")
_VERSION = 1
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
        connection = sqlite3.connect(path, timeout=5.0, isolation_level=None)
        with ExitStack() as failed:
            failed.callback(connection.close)
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = full")
            connection.execute("pragma fullfsync = on")  # for macOS, where a sync does nothing without it
            # 4,000 pages are 16 MB: rare enough not to slow down a burst, often enough for a short recovery.
            connection.execute("pragma wal_autocheckpoint = 4000")
            (version,) = connection.execute("pragma user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"the file is of version {version}; this program knows version {_VERSION}")
            if version == 0:
                with writing(connection):
                    for table in _TABLES:
                        connection.execute(table)
                    connection.execute(f"pragma user_version = {_VERSION}")
            failed.pop_all()
    return connection


def query(path: Path, ask: Callable[[sqlite3.Connection], T]) -> T:
    """The result of `ask`, which gets a connection of its own. Raises `LogUnavailable`."""
    with reaching_file(f"read {path}"), closing(open_file(path)) as connection:
        return ask(connection)


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


def lock_group(path: Path, topic: str, group: str) -> IO[bytes]:
    """Become the one consumer of `group` on `topic`, until the file is closed or this process ends, however it ends. Raises
    `GroupBusy` or `LogUnavailable`."""
    with reaching_file(f"lock group {group}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock_path(path, f"{topic}@{group}").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise port.GroupBusy(f"group {group} has a consumer of {topic} already: the embedded log takes one") from error
    return lock


def _lock_path(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}.{quote(name, safe='@')}.lock")


# Within a transaction.


def create(connection: sqlite3.Connection, topic: str, partitions: int) -> bool:
    """Creates the topic unless it exists. Returns whether it did."""
    insert = "insert into topics (name, partitions) values (?, ?) on conflict do nothing"
    created = connection.execute(insert, (topic, partitions))
    places = [(created.lastrowid, each) for each in range(partitions)] if created.rowcount else []
    connection.executemany("insert into heads values (?, ?, 0)", places)
    return bool(places)


def append(connection: sqlite3.Connection, topic: str, messages: Sequence[Message], now_ms: int) -> None:
    topic_id, partitions = connection.execute("select id, partitions from topics where name = ?", (topic,)).fetchone()
    ends, rows = heads(connection, topic), []
    for each in messages:
        partition = partition_of(each.key, partitions, each.partition)
        headers = port.headers_as_text(each.headers)
        rows.append((topic_id, partition, ends[partition], now_ms, each.key, each.value, headers))
        ends[partition] += 1
    connection.executemany("insert into messages values (?, ?, ?, ?, ?, ?, ?)", rows)
    moved = {(ends[partition], topic_id, partition) for _, partition, *_ in rows}
    connection.executemany("update heads set next_offset = ? where topic = ? and partition = ?", moved)


def commit(connection: sqlite3.Connection, topic: str, group: str, offsets: Mapping[int, int]) -> None:
    """Advances the group's offsets, and never lowers them. From its first commit on the group counts for retention."""
    connection.executemany(
        """insert into commits (group_name, topic, partition, next_offset)
           values (?, (select id from topics where name = ?), ?, ?)
           on conflict do update set next_offset = max(next_offset, excluded.next_offset)""",
        [(group, topic, partition, offset) for partition, offset in offsets.items()],
    )


def prune(connection: sqlite3.Connection, before_ms: int) -> bool:
    """Deletes a few messages that are older, and that all groups have committed; a group counts from its first consumer on. Returns
    whether there may be more."""
    room = 500  # so few that no publisher has to wait for it
    committed_by_all = "select min(next_offset) from commits where topic = ? and partition = ?"
    oldest = "select offset, timestamp_ms from messages where topic = ? and partition = ? order by offset limit ?"
    delete = "delete from messages where topic = ? and partition = ? and offset <= ?"
    with writing(connection):
        for place in connection.execute("select topic, partition from heads").fetchall():
            (safe,) = connection.execute(committed_by_all, place).fetchone()
            rows = connection.execute(oldest, (*place, room)).fetchall()
            end = 0  # from the first message up to one that has to stay
            while end < len(rows) and rows[end][1] < before_ms and (safe is None or rows[end][0] < safe):
                end += 1
            if end:
                connection.execute(delete, (*place, rows[end - 1][0]))
            room -= end
    return room == 0


# Reading. Without such a topic the results are empty.


def topics(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(connection.execute("select name, partitions from topics order by name"))


def heads(connection: sqlite3.Connection, topic: str) -> dict[int, int]:
    """For each partition, the offset of its next message."""
    asked = "select partition, next_offset from heads where topic = (select id from topics where name = ?)"
    return dict(connection.execute(asked, (topic,)))


def held(connection: sqlite3.Connection, topic: str) -> dict[int, range]:
    """For each partition, the offsets that it holds."""
    asked = """select partition, min(offset) from messages
               where topic = (select id from topics where name = ?) group by partition"""
    first = dict(connection.execute(asked, (topic,)))
    return {each: range(first.get(each, end), end) for each, end in sorted(heads(connection, topic).items())}


def offsets_at(connection: sqlite3.Connection, topic: str, since_ms: Sequence[int]) -> list[dict[int, int]]:
    """See `port.TopicAdmin.offsets_at`. In one pass."""
    ends = heads(connection, topic)  # first: a message appended between the two queries is found by its time
    found = [dict(ends) for _ in since_ms]
    firsts = ", ".join(["min(case when timestamp_ms >= ? then offset end)"] * len(since_ms))
    rows = connection.execute(
        f"select partition, {firsts} from messages "  # noqa: S608 - only placeholders
        "where topic = (select id from topics where name = ?) group by partition",
        (*since_ms, topic),
    )
    for partition, *offsets in rows:
        for places, offset in zip(found, offsets, strict=True):
            if offset is not None:
                places[partition] = offset
    return found


def read(
    connection: sqlite3.Connection, topic: str, partition: int, offset: int, max_messages: int
) -> list[ConsumedMessage]:
    """A partition's messages from `offset` on, so many or `MAX_READ_BYTES` of them, whichever is reached first."""
    rows = connection.execute(
        """select offset, timestamp_ms, key, value, headers from messages
           where topic = (select id from topics where name = ?) and partition = ? and offset >= ? order by offset limit ?""",
        (topic, partition, offset, max_messages),
    )
    found: list[ConsumedMessage] = []
    size = 0
    with closing(rows):
        for at, timestamp_ms, key, value, headers in rows:
            message = Message(key, value, port.headers_from_text(headers))
            found.append(ConsumedMessage(topic, partition, at, timestamp_ms, message))
            size += message.size
            if size >= MAX_READ_BYTES:
                break
    return found


def committed(connection: sqlite3.Connection, topic: str, group: str) -> dict[int, int]:
    """For each partition that the group knows, the offset from which it resumes."""
    asked = """select partition, next_offset from commits
               where topic = (select id from topics where name = ?) and group_name = ?"""
    return dict(connection.execute(asked, (topic, group)))


def lag(connection: sqlite3.Connection, topic: str, group: str) -> list[port.Lag]:
    """The lag of `group` in each partition. Deleted messages are not lag."""
    done, found = committed(connection, topic, group), []
    asked = """select timestamp_ms from messages where topic = (select id from topics where name = ?)
               and partition = ? and offset >= ? order by offset limit 1"""
    for partition, kept in held(connection, topic).items():
        begun = max(done.get(partition, 0), kept.start)
        oldest = connection.execute(asked, (topic, partition, begun)).fetchone()
        found.append(port.Lag(partition, kept.stop - begun, oldest and port.moment_of(oldest[0])))
    return found

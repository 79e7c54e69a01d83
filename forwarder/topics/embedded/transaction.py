"""The commands of the embedded log's writer, and how many of them are executed in one transaction of its file."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from forwarder.topics.embedded import file as embedded_file
from forwarder.topics.embedded.file import Entry, Row, TopicEntry, writing
from forwarder.topics.publishing import partition_of


@dataclass(frozen=True, slots=True)
class Append:
    """Messages for a topic, prepared by `embedded_file.entry_of`. Creates the topic if it is missing."""

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
        """Write what was appended, once for each topic, however many commands there were."""
        for topic in self._topics.values():
            if topic.rows:
                embedded_file.append(self._connection, topic.entry, topic.rows, topic.heads)

    def _append(self, name: str, entries: Sequence[Entry]) -> bool:
        topic, created = self._open(name, self._partitions)
        heads, rows, (topic_id, partitions) = topic.heads, topic.rows, topic.entry
        for key, value, headers in entries:
            partition = partition_of(key, partitions)
            offset = heads[partition]
            heads[partition] = offset + 1
            rows.append((topic_id, partition, offset, self._now_ms, key, value, headers))
        return created

    def _commit(self, name: str, group: str, offsets: Mapping[int, int]) -> bool:
        topic, created = self._open(name, self._partitions)
        embedded_file.commit(self._connection, topic.entry, group, dict.fromkeys(topic.heads, 0) | dict(offsets))
        return created

    def _open(self, name: str, partitions: int) -> tuple[_OpenTopic, bool]:
        found = self._topics.get(name)
        if found is not None:
            return found, False
        entry = embedded_file.topic_entry(self._connection, name)
        created = entry is None
        entry = entry or embedded_file.create_topic(self._connection, name, partitions)
        topic = self._topics[name] = _OpenTopic(entry, embedded_file.heads(self._connection, entry))
        return topic, created

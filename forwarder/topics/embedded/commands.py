"""What can be asked of the embedded log's writer, and how a number of such orders are carried out in one transaction.

Writes to the log's file through the connection it is given.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from forwarder.topics.embedded import file as embedded_file
from forwarder.topics.embedded.file import Entry, Row, TopicEntry, writing
from forwarder.topics.partitioning import partition_of


@dataclass(frozen=True, slots=True)
class Append:
    """Messages for a topic, as `embedded_file.entry_of` prepares them. The topic is made where it is missing."""

    topic: str
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Commit:
    """A group goes on from these offsets, one for each partition; none at all makes the group known."""

    topic: str
    group: str
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Create:
    """A topic, unless it exists. `partitions` None for as many as there are by default."""

    topic: str
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """To see whether a transaction succeeds."""


Order = Append | Commit | Create | Nothing


def carry_out(connection: sqlite3.Connection, orders: Iterable[Order], *, partitions: int, now_ms: int) -> list[bool]:
    """All of `orders`, or none. For each, whether a topic was made for it. New topics have so many `partitions`."""
    with writing(connection):
        transaction = _Transaction(connection, partitions, now_ms)
        answers = [transaction.carry_out(order) for order in orders]
        transaction.store()
    return answers


@dataclass(slots=True)
class _OpenTopic:
    """A topic while the transaction lasts: where its partitions end, and what will be stored."""

    entry: TopicEntry
    heads: dict[int, int]
    rows: list[Row] = field(default_factory=list)


class _Transaction:
    def __init__(self, connection: sqlite3.Connection, partitions: int, now_ms: int) -> None:
        self._connection = connection
        self._partitions = partitions
        self._now_ms = now_ms
        self._topics: dict[str, _OpenTopic] = {}

    def carry_out(self, order: Order) -> bool:
        match order:
            case Append(topic, entries):
                return self._append(topic, entries)
            case Commit(topic, group, offsets):
                return self._commit(topic, group, offsets)
            case Create(topic, partitions):
                return self._open(topic, partitions or self._partitions)[1]
            case Nothing():
                return False
            case _:
                assert_never(order)

    def store(self) -> None:
        """Write what was appended: once for each topic, however many orders there were."""
        for topic in self._topics.values():
            if topic.rows:
                embedded_file.append(self._connection, topic.entry, topic.rows, topic.heads)

    def _append(self, name: str, entries: Sequence[Entry]) -> bool:
        topic, made = self._open(name, self._partitions)
        heads, rows, (topic_id, partitions) = topic.heads, topic.rows, topic.entry
        for key, value, headers in entries:
            partition = partition_of(key, partitions)
            offset = heads[partition]
            heads[partition] = offset + 1
            rows.append((topic_id, partition, offset, self._now_ms, key, value, headers))
        return made

    def _commit(self, name: str, group: str, offsets: Mapping[int, int]) -> bool:
        topic, made = self._open(name, self._partitions)
        embedded_file.commit(self._connection, topic.entry, group, dict.fromkeys(topic.heads, 0) | dict(offsets))
        return made

    def _open(self, name: str, partitions: int) -> tuple[_OpenTopic, bool]:
        found = self._topics.get(name)
        if found is not None:
            return found, False
        entry = embedded_file.topic_entry(self._connection, name)
        made = entry is None
        entry = entry or embedded_file.create_topic(self._connection, name, partitions)
        topic = self._topics[name] = _OpenTopic(entry, embedded_file.heads(self._connection, entry))
        return topic, made

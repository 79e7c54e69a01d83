"""Offsets of the embedded log: first and last of each topic, by time, and committed ones of groups. Blocks; read-only."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from forwarder.topics.embedded.file import TopicEntry, committed, heads, open_file, reaching_file, topic_entry
from forwarder.topics.port import Lag, moment_of


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

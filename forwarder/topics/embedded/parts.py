"""The parts of the embedded log as the stages use them.

They touch its file, through the process's writer and through readers of their own.
"""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from forwarder.topics.embedded import file as embedded_file
from forwarder.topics.embedded.commands import Append, Commit, Create, Nothing
from forwarder.topics.embedded.file import TopicEntry, entry_of, list_topics, topic_offsets
from forwarder.topics.embedded.reader import EmbeddedReader
from forwarder.topics.embedded.writer import EmbeddedWriter
from forwarder.topics.port import ConsumedMessage, Lag, LogUnavailable, Message, refuse_too_large
from forwarder.topics.readiness import RecentFailure

_READY_SECONDS = 0.8


class EmbeddedPublisher:
    """See `port.Publisher`. Calls of one process share transactions, and so the time that the disk takes to sync."""

    def __init__(self, writer: EmbeddedWriter, time_limit: float) -> None:
        self._writer = writer
        self._time_limit = time_limit
        self._failure = RecentFailure()

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        refuse_too_large(messages)
        if not messages:
            return
        append = Append(topic, [entry_of(message) for message in messages])
        try:
            await self._writer.carry_out(append, within=self._time_limit)
        except LogUnavailable:
            self._failure.happened()
            raise
        self._failure.over()

    async def ready(self) -> bool:
        if self._failure.recent():
            return False
        try:
            await self._writer.carry_out(Nothing(), within=_READY_SECONDS)
        except LogUnavailable:
            return False
        return True


class EmbeddedConsumer:
    """See `port.Consumer`. Owns every partition, for as long as it is open."""

    def __init__(
        self, topic: str, group: str, writer: EmbeddedWriter, reader: EmbeddedReader, time_limit: float
    ) -> None:
        self._topic = topic
        self._group = group
        self._writer = writer
        self._reader = reader
        self._time_limit = time_limit

    async def open(self) -> frozenset[int]:
        """Go on from what the group has committed; the partitions. The topic and the group are known from now on."""
        await self._move_on({})
        self._reader.next = await self._reader.query(self._committed)
        return frozenset(self._reader.next)

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        return await self._reader.take(max_messages, wait_seconds)

    async def commit(self, deliveries: Sequence[ConsumedMessage]) -> None:
        past: dict[int, int] = {}
        for delivery in deliveries:
            past[delivery.partition] = max(past.get(delivery.partition, 0), delivery.offset + 1)
        if past:
            await self._move_on(past)

    async def lag(self) -> Sequence[Lag]:
        return await self._reader.query(self._lag)

    async def _move_on(self, offsets: Mapping[int, int]) -> None:
        await self._writer.carry_out(Commit(self._topic, self._group, offsets), within=self._time_limit)

    def _committed(self, connection: sqlite3.Connection, topic: TopicEntry) -> dict[int, int]:
        return embedded_file.committed(connection, topic, self._group)

    def _lag(self, connection: sqlite3.Connection, topic: TopicEntry) -> Sequence[Lag]:
        done = self._committed(connection, topic)
        first = embedded_file.first_offsets(connection, topic)  # what is before it was pruned, and is behind nobody
        heads = embedded_file.heads(connection, topic)
        return [Lag(each, head - max(done[each], first.get(each, head))) for each, head in sorted(heads.items())]


class EmbeddedTail:
    """See `port.Tail`."""

    def __init__(self, topic: str, writer: EmbeddedWriter, reader: EmbeddedReader, time_limit: float) -> None:
        self._topic = topic
        self._writer = writer
        self._reader = reader
        self._time_limit = time_limit

    async def open(self, *, from_beginning: bool) -> None:
        """Begin there, or at the end. The topic is known from now on."""
        await self._writer.carry_out(Create(self._topic), within=self._time_limit)
        await self.seek_to_end()
        if from_beginning:
            self._reader.next = dict.fromkeys(self._reader.next, 0)

    async def seek_to_end(self) -> None:
        self._reader.next = await self._reader.query(embedded_file.heads)

    async def seek_to_time(self, moment: datetime) -> Mapping[int, int]:
        since_ms = round(moment.timestamp() * 1000)
        self._reader.next = await self._reader.query(partial(embedded_file.offsets_since, since_ms=since_ms))
        return dict(self._reader.next)

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        return await self._reader.take(max_messages, wait_seconds)


class EmbeddedAdmin:
    """See `port.TopicAdmin`."""

    def __init__(self, path: Path, writer: EmbeddedWriter, time_limit: float) -> None:
        self._path = path
        self._writer = writer
        self._time_limit = time_limit

    async def create(self, partitions: Mapping[str, int]) -> Sequence[str]:
        return [
            name
            for name, count in partitions.items()
            if await self._writer.carry_out(Create(name, count), within=self._time_limit)
        ]

    async def list(self) -> Mapping[str, int]:
        return await asyncio.to_thread(list_topics, self._path)

    async def offsets(self, topic: str) -> Mapping[int, range]:
        return await asyncio.to_thread(topic_offsets, self._path, topic)

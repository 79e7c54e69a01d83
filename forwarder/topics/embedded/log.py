"""The log in one SQLite file: its publisher, consumer, tail and admin, which share the process's one writer.

Durable: an acknowledged message is synced to disk. Several processes of one machine may use it at once; each group has one
consumer.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

from forwarder.process.clock import Clock, SystemClock
from forwarder.topics.embedded.file import Create, NoOp, lock_group
from forwarder.topics.embedded.offsets import committed_offsets, group_lag, list_topics, offsets_at, topic_offsets
from forwarder.topics.embedded.reader import EmbeddedConsumer, EmbeddedReader, EmbeddedTail
from forwarder.topics.embedded.writer import EmbeddedPublisher, EmbeddedWriter, Retention
from forwarder.topics.port import (
    Consumer,
    GapFound,
    Lag,
    PartitionsChanged,
    Publisher,
    Tail,
    TopicAdmin,
    TopicState,
)


class EmbeddedLog:
    """See `port.Log`. `path` is the file; its directory is created if it is missing. For one event loop.

    Topics are created when they are first used, with `partitions` partitions. Messages older than `retention` are deleted once
    every group that ever consumed their topic has committed them. `publish_timeout_seconds` limits one publish or commit.
    """

    def __init__(
        self,
        path: Path,
        *,
        partitions: int = 8,
        retention: timedelta = timedelta(days=7),
        publish_timeout_seconds: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        self._path = path
        self._partitions = partitions
        self._retention = retention
        self._time_limit = publish_timeout_seconds
        self._clock = clock or SystemClock()
        self._writer: EmbeddedWriter | None = None
        self._open_parts = 0

    def publisher(self) -> AbstractAsyncContextManager[Publisher]:
        return self._publisher()

    def consumer(
        self,
        topic: str,
        *,
        group: str,
        on_partitions: PartitionsChanged,
        on_gap: GapFound | None = None,  # noqa: ARG002 - see below
    ) -> AbstractAsyncContextManager[Consumer]:
        """See `port.Log.consumer`. Entering it raises `GroupBusy` while the group has another consumer. There are no gaps:
        messages and offsets are in one file, and messages that a group has not committed are kept."""
        return self._consumer(topic, group, on_partitions)

    def tail(self, topic: str, *, from_beginning: bool = False) -> AbstractAsyncContextManager[Tail]:
        return self._tail(topic, from_beginning=from_beginning)

    def admin(self) -> AbstractAsyncContextManager[TopicAdmin]:
        return self._admin()

    @asynccontextmanager
    async def _publisher(self) -> AsyncIterator[Publisher]:
        async with self._writing() as writer:
            yield EmbeddedPublisher(writer, self._time_limit)

    @asynccontextmanager
    async def _consumer(self, topic: str, group: str, on_partitions: PartitionsChanged) -> AsyncIterator[Consumer]:
        with await asyncio.to_thread(lock_group, self._path, topic, group):
            async with self._writing() as writer, self._reading(topic, writer) as reader:
                consumer = EmbeddedConsumer(topic, group, writer, reader, self._time_limit)
                await on_partitions(await consumer.open())
                yield consumer

    @asynccontextmanager
    async def _tail(self, topic: str, *, from_beginning: bool) -> AsyncIterator[Tail]:
        async with self._writing() as writer, self._reading(topic, writer) as reader:
            tail = EmbeddedTail(topic, writer, reader, self._time_limit)
            await tail.open(from_beginning=from_beginning)
            yield tail

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[TopicAdmin]:
        async with self._writing() as writer:
            yield EmbeddedAdmin(self._path, writer, self._time_limit, self._retention)

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[EmbeddedWriter]:
        """The process's writer, shared by all open parts."""
        writer = self._writer = self._writer or self._new_writer()
        self._open_parts += 1
        try:
            await writer.execute(NoOp(), within=self._time_limit)
            yield writer
        finally:
            self._open_parts -= 1
            if self._open_parts == 0:
                self._writer = None
                await writer.close()

    def _new_writer(self) -> EmbeddedWriter:
        writer = EmbeddedWriter(
            self._path,
            partitions=self._partitions,
            retention=Retention(self._retention, self._clock),
            clock=self._clock,
        )
        writer.start()
        return writer

    @asynccontextmanager
    async def _reading(self, topic: str, writer: EmbeddedWriter) -> AsyncIterator[EmbeddedReader]:
        with writer.subscribed(topic) as published:
            reader = EmbeddedReader(self._path, topic, published)
            try:
                yield reader
            finally:
                await reader.close()


class EmbeddedAdmin:
    """See `port.TopicAdmin`."""

    def __init__(self, path: Path, writer: EmbeddedWriter, time_limit: float, retention: timedelta) -> None:
        self._path = path
        self._writer = writer
        self._time_limit = time_limit
        self._retention = retention

    async def create(self, partitions: Mapping[str, int], *, retention: timedelta | None = None) -> Sequence[str]:  # noqa: ARG002 - it is the same for all of them
        return [
            name
            for name, count in partitions.items()
            if await self._writer.execute(Create(name, count), within=self._time_limit)
        ]

    async def list(self) -> Mapping[str, int]:
        return await asyncio.to_thread(list_topics, self._path)

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        existing = await self.list()
        return {name: TopicState(existing[name], 1, 1) for name in topics if name in existing}

    async def members(self, group: str) -> int | None:  # noqa: ARG002 - only taking its lock would show
        return None

    async def offsets(self, topic: str) -> Mapping[int, range]:
        return await asyncio.to_thread(topic_offsets, self._path, topic)

    async def offsets_at(self, topic: str, moments: Sequence[datetime]) -> Sequence[Mapping[int, int]]:
        since_ms = [round(each.timestamp() * 1000) for each in moments]
        return await asyncio.to_thread(offsets_at, self._path, topic, since_ms)

    async def settings(self, topic: str) -> Mapping[str, str]:  # noqa: ARG002 - none has any
        return {}

    async def retention(self, topic: str) -> timedelta | None:  # noqa: ARG002 - it is the same for all of them
        return self._retention

    async def committed(self, topic: str, *, group: str) -> Mapping[int, int]:
        return await asyncio.to_thread(committed_offsets, self._path, topic, group)

    async def lag(self, topic: str, *, group: str) -> Sequence[Lag]:
        return await asyncio.to_thread(group_lag, self._path, topic, group)

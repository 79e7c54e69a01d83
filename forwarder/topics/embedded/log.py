"""The log in one SQLite file: its publisher, consumer, tail and admin, which share the process's one writer.

Durable: an acknowledged message is synced to disk. Several processes of one machine may use it at once; each group has one
consumer."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from forwarder.process.clock import Clock, SystemClock
from forwarder.topics.embedded import file
from forwarder.topics.embedded.file import (
    Commit,
    Create,
    NoOp,
    TopicEntry,
    committed_offsets,
    group_lag,
    list_topics,
    lock_group,
    offsets_at,
    offsets_since,
    open_file,
    reaching_file,
    topic_offsets,
)
from forwarder.topics.embedded.writer import EmbeddedPublisher, EmbeddedWriter, Retention
from forwarder.topics.port import (
    ConsumedMessage,
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
    async def _reading(self, topic: str, writer: EmbeddedWriter) -> "AsyncIterator[EmbeddedReader]":
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

    async def create(
        self,
        partitions: Mapping[str, int],
        *,
        retention: timedelta | None = None,  # noqa: ARG002 - it is the same for all of them
        replicas: int | None = None,  # noqa: ARG002 - as above
    ) -> Sequence[str]:
        return [
            name
            for name, count in partitions.items()
            if await self._writer.execute(Create(name, count), within=self._time_limit)
        ]

    async def grow(self, partitions: Mapping[str, int]) -> None:
        raise NotImplementedError

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


T = TypeVar("T")
_POLL_SECONDS = 0.05  # how soon messages published by another process are noticed


class EmbeddedReader:
    """Shared by `EmbeddedConsumer` and `EmbeddedTail`. `published` is set when this process has published to the topic.

    One caller of `take` at a time; it may be cancelled without losing a message. Methods raise `LogUnavailable`.
    """

    def __init__(self, path: Path, topic: str, published: asyncio.Event) -> None:
        self._path = path
        self._name = topic
        self._published = published
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedded-log-reader")
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._rotation = 0
        self.next: dict[int, int] = {}
        """For each partition, the offset to read next."""

    async def close(self) -> None:
        """Close the connection and end the thread."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    async def take(self, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        """The next messages; empty when none came within `wait_seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            self._published.clear()
            messages = await self.query(partial(self._read, positions=dict(self.next), max_messages=max_messages))
            if messages or loop.time() >= deadline:
                break
            await self._wait_for_more(deadline)
        self._rotation += 1
        for message in messages:
            self.next[message.partition] = message.offset + 1
        return messages

    async def query(self, ask: Callable[[sqlite3.Connection, TopicEntry], T]) -> T:
        """The result of `ask`, called in the reader's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._query, ask)

    def _query(self, ask: Callable[[sqlite3.Connection, TopicEntry], T]) -> T:
        try:
            with reaching_file(f"read {self._path}"):
                connection = self._opened()
                return ask(connection, file.known_topic(connection, self._name))
        except BaseException:
            self._drop()
            raise

    def _read(
        self, connection: sqlite3.Connection, topic: TopicEntry, positions: Mapping[int, int], max_messages: int
    ) -> list[ConsumedMessage]:
        """From each partition in turn, starting with another one each time, so that none waits for a busy one."""
        # Before reading, so that no later change is missed.
        (self._version,) = connection.execute("pragma data_version").fetchone()
        heads = file.heads(connection, topic)
        found: list[ConsumedMessage] = []
        for each in range(topic.partitions):
            partition = (each + self._rotation) % topic.partitions
            if positions[partition] < heads[partition] and len(found) < max_messages:
                room = max_messages - len(found)
                found += file.read(connection, self._name, topic, partition, positions[partition], room)
        return found

    async def _wait_for_more(self, deadline: float) -> None:
        """Return when there may be new messages, or at the deadline."""
        loop = asyncio.get_running_loop()
        while (remaining := deadline - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_POLL_SECONDS, remaining)):
                    await self._published.wait()
                    return
            if await self.query(self._changed):
                return

    def _changed(self, connection: sqlite3.Connection, _topic: TopicEntry) -> bool:
        """Whether the file was written since it was last read."""
        (version,) = connection.execute("pragma data_version").fetchone()
        return bool(version != self._version)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_file(self._path)
        return self._connection

    def _drop(self) -> None:
        """Closes the connection after an error: the next query opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class EmbeddedConsumer:
    """See `port.Consumer`. Owns every partition while it is open."""

    def __init__(
        self, topic: str, group: str, writer: EmbeddedWriter, reader: EmbeddedReader, time_limit: float
    ) -> None:
        self._topic = topic
        self._group = group
        self._writer = writer
        self._reader = reader
        self._time_limit = time_limit

    async def open(self) -> frozenset[int]:
        """Resume from the group's commits; returns the partitions. Creates the topic and the group if they are new."""
        await self._commit({})
        self._reader.next = await self._reader.query(self._committed)
        return frozenset(self._reader.next)

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        return await self._reader.take(max_messages, wait_seconds)

    @property
    def unreadable(self) -> Mapping[int, int]:
        return {}

    async def commit(self, messages: Sequence[ConsumedMessage]) -> None:
        offsets: dict[int, int] = {}
        for message in messages:
            offsets[message.partition] = max(offsets.get(message.partition, 0), message.offset + 1)
        if offsets:
            await self._commit(offsets)

    async def _commit(self, offsets: Mapping[int, int]) -> None:
        await self._writer.execute(Commit(self._topic, self._group, offsets), within=self._time_limit)

    def _committed(self, connection: sqlite3.Connection, topic: TopicEntry) -> dict[int, int]:
        return file.committed(connection, topic, self._group)


class EmbeddedTail:
    """See `port.Tail`."""

    def __init__(self, topic: str, writer: EmbeddedWriter, reader: EmbeddedReader, time_limit: float) -> None:
        self._topic = topic
        self._writer = writer
        self._reader = reader
        self._time_limit = time_limit

    async def open(self, *, from_beginning: bool) -> None:
        """Start at the beginning, or at the end. Creates the topic if it is new."""
        await self._writer.execute(Create(self._topic), within=self._time_limit)
        await self.seek_to_end()
        if from_beginning:
            self._reader.next = dict.fromkeys(self._reader.next, 0)

    async def seek_to_end(self) -> None:
        self._reader.next = await self._reader.query(file.heads)

    async def seek(self, offsets: Mapping[int, int]) -> None:
        self._reader.next = {**self._reader.next, **offsets}

    async def seek_to_time(self, moment: datetime) -> Mapping[int, int]:
        since_ms = round(moment.timestamp() * 1000)
        self._reader.next = await self._reader.query(partial(offsets_since, since_ms=since_ms))
        return dict(self._reader.next)

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        return await self._reader.take(max_messages, wait_seconds)

    async def positions(self) -> Mapping[int, int]:
        return dict(self._reader.next)

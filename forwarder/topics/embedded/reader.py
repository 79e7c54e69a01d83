"""Reads messages from the embedded log's file, in a thread with a connection of its own."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from forwarder.topics.embedded import file as embedded_file
from forwarder.topics.embedded.file import Commit, Create, TopicEntry, open_file, reaching_file
from forwarder.topics.embedded.offsets import offsets_since
from forwarder.topics.embedded.writer import EmbeddedWriter
from forwarder.topics.port import ConsumedMessage

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
                return ask(connection, embedded_file.known_topic(connection, self._name))
        except BaseException:
            self._drop()
            raise

    def _read(
        self, connection: sqlite3.Connection, topic: TopicEntry, positions: Mapping[int, int], max_messages: int
    ) -> list[ConsumedMessage]:
        """From each partition in turn, starting with another one each time, so that none waits for a busy one."""
        # Before reading, so that no later change is missed.
        (self._version,) = connection.execute("pragma data_version").fetchone()
        heads = embedded_file.heads(connection, topic)
        found: list[ConsumedMessage] = []
        for each in range(topic.partitions):
            partition = (each + self._rotation) % topic.partitions
            if positions[partition] < heads[partition] and len(found) < max_messages:
                room = max_messages - len(found)
                found += embedded_file.read(connection, self._name, topic, partition, positions[partition], room)
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
        return embedded_file.committed(connection, topic, self._group)


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
        self._reader.next = await self._reader.query(embedded_file.heads)

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

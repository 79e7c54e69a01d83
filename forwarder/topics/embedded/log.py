"""The log in one SQLite file: its publisher, consumer, tail and admin, which share the process's one writer. Durable: an
acknowledged message is synced to disk. Several processes of one machine may use it at once; each group has one consumer."""

import asyncio
import logging
import math
import sqlite3
from asyncio import Future
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from forwarder.process.clock import Clock, SystemClock
from forwarder.process.loops import detached
from forwarder.topics import port
from forwarder.topics.embedded import file
from forwarder.topics.port import ConsumedMessage, LogUnavailable, Message, partition_of

T = TypeVar("T")
_MAX_MESSAGES = 4_000  # in one transaction
_IDLE_SECONDS = 60.0  # how often an idle writer checks whether to prune
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class EmbeddedLog:
    """See `port.Log`. `path` is the file; its directory is created if it is missing. For one event loop. Topics are created when
    they are first used, with `partitions` partitions. Messages older than `retention` are deleted once every group that ever
    consumed their topic has committed them. `publish_timeout_seconds` limits one publish or commit."""

    path: Path
    partitions: int = field(default=8, kw_only=True)
    retention: timedelta = field(default=timedelta(days=7), kw_only=True)
    publish_timeout_seconds: float = field(default=10.0, kw_only=True)
    clock: Clock = field(default_factory=SystemClock, kw_only=True)

    def __post_init__(self) -> None:
        self._writer: EmbeddedWriter | None = None
        self._open_parts = 0

    def publisher(self) -> AbstractAsyncContextManager[port.Publisher]:
        return self._writing()

    @asynccontextmanager
    async def consumer(
        self, topic: str, *, group: str, on_partitions: port.PartitionsChanged, on_gap: port.GapFound | None = None
    ) -> AsyncIterator[port.Consumer]:
        """See `port.Log.consumer`. Entering it raises `GroupBusy` while the group has another consumer. There are no gaps:
        messages and offsets are in one file, and messages that a group has not committed are kept."""
        del on_gap
        with await asyncio.to_thread(file.lock_group, self.path, topic, group):
            async with self._writing() as writer, aclosing(EmbeddedConsumer(topic, writer, group)) as consumer:
                await on_partitions(await consumer.open())
                yield consumer

    @asynccontextmanager
    async def tail(self, topic: str, *, from_beginning: bool = False) -> AsyncIterator[port.Tail]:
        async with self._writing() as writer, aclosing(EmbeddedTail(topic, writer)) as tail:
            await writer.create(topic)
            await tail.seek_to_end()
            if from_beginning:
                tail.next = dict.fromkeys(tail.next, 0)
            yield tail

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[port.TopicAdmin]:
        async with self._writing() as writer:
            yield EmbeddedAdmin(writer, self.retention)

    @asynccontextmanager
    async def _writing(self) -> "AsyncIterator[EmbeddedWriter]":
        self._writer = writer = self._writer or EmbeddedWriter(self)
        self._open_parts += 1
        try:
            await writer.execute(lambda *_: None)
            yield writer
        finally:
            self._open_parts -= 1
            if self._open_parts == 0:
                self._writer = None
                await writer.close()


class _FileThread:
    """One connection to the file and the thread that uses it. Opens the file when it is needed, and again after an error."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._connection: sqlite3.Connection | None = None

    async def run(self, doing: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work`. Raises `LogUnavailable`, which says `doing`."""

        def call() -> T:
            try:
                with file.reaching_file(f"{doing} {self.path}"):
                    self._connection = self._connection or file.open_file(self.path)
                    return work(self._connection)
            except BaseException:
                self._drop()
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_Command = Callable[[sqlite3.Connection, int], object]
"""Changes the file within a transaction that others share; also gets the time of the transaction in milliseconds."""
_Pending = tuple[_Command, "Future[object]", int]  # the last is its weight


class EmbeddedWriter:
    """Writes to the file for one process, also as `port.Publisher`. While one transaction is being synced to the disk, the commands
    that come meanwhile are collected for the next. Deletes old messages between transactions. Must be closed."""

    def __init__(self, log: EmbeddedLog) -> None:
        self.path = log.path
        self._log = log
        self.prune_at = log.clock.monotonic()
        self.subscribers: dict[str, set[asyncio.Event]] = defaultdict(set)
        """For each topic, what to set whenever this process has published to it."""
        self._failed_at = -math.inf
        self._partitions: Mapping[str, int] = {}
        self._queue: list[_Pending] = []
        self._queued = asyncio.Event()
        self._closing = False
        self._file = _FileThread(log.path, "embedded-log-writer")
        self._task = detached(self._run())

    async def close(self) -> None:
        self._closing = True
        self._queued.set()
        await asyncio.wait({self._task})

    async def create(self, topic: str, partitions: int | None = None) -> bool:
        """Create the topic unless it exists; returns whether it did not. `partitions`: None for the default number."""
        count = partitions or self._log.partitions
        return bool(await self.execute(lambda connection, _: file.create(connection, topic, count)))

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        refused = port.too_large(messages)
        accepted = [each for index, each in enumerate(messages) if refused is None or index not in refused.sizes]

        def append(connection: sqlite3.Connection, now_ms: int) -> None:
            file.create(connection, topic, self._log.partitions)
            file.append(connection, topic, accepted, now_ms)

        if accepted:
            try:
                await self.execute(append, weight=len(accepted))
            except LogUnavailable:
                self._failed_at = asyncio.get_running_loop().time()
                raise
            self._failed_at = -math.inf
            for published in self.subscribers[topic]:
                published.set()
        if refused is not None:
            raise refused

    def partition(self, topic: str, key: str) -> int | None:
        if topic not in self._partitions:
            with suppress(LogUnavailable):
                self._partitions = file.query(self.path, file.topics)
        partitions = self._partitions.get(topic)
        return None if partitions is None else partition_of(key.encode(), partitions)

    async def ready(self) -> bool:
        with suppress(LogUnavailable):
            if asyncio.get_running_loop().time() - self._failed_at >= port.UNREADY_SECONDS:
                await self.execute(lambda *_: None, within=0.8)
                return True
        return False

    async def execute(self, command: _Command, *, weight: int = 1, within: float | None = None) -> object:
        """The result of `command` once it is synced to the disk. Raises `LogUnavailable`, also if that takes longer than `within`
        seconds. A command that has not begun by then is dropped."""
        limit = within or self._log.publish_timeout_seconds
        result: Future[object] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(limit):
                self._queue.append((command, result, weight))
                self._queued.set()
                return await result
        except TimeoutError as error:
            raise LogUnavailable(f"write to {self.path}: not synced within {limit:g} s") from error

    async def _run(self) -> None:
        wait, clock = _IDLE_SECONDS, self._log.clock
        while self._queue or not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._queued.wait()
            count = weight = 0
            while count < len(self._queue) and weight < _MAX_MESSAGES:
                weight += self._queue[count][2]
                count += 1
            batch, self._queue = self._queue[:count], self._queue[count:]
            if not self._queue and not self._closing:
                self._queued.clear()
            if batch:
                await self._write(batch)
            wait = _IDLE_SECONDS
            began_at = clock.monotonic()  # read first, so that messages that expire meanwhile are not put off
            if began_at >= self.prune_at:
                before_ms = int((clock.now() - self._log.retention).timestamp() * 1000)
                try:
                    if await self._file.run("prune", partial(file.prune, before_ms=before_ms)):
                        wait = 0.01  # for callers, between two steps of pruning
                    else:
                        self.prune_at = began_at + 600.0
                except LogUnavailable as unavailable:
                    _log.warning("log.not_pruned", extra={"reason": str(unavailable)})
        await self._file.close()

    async def _write(self, batch: Sequence[_Pending]) -> None:
        now_ms = int(self._log.clock.now().timestamp() * 1000)

        def transaction(connection: sqlite3.Connection) -> list[object]:
            with file.writing(connection):
                # Begun by now, which may have taken a while: commands that were given up meanwhile are left out.
                return [None if result.cancelled() else command(connection, now_ms) for command, result, _ in batch]

        try:
            done = await self._file.run("write to", transaction)
        except Exception as error:  # noqa: BLE001 - any error is raised by the callers, and the writer continues
            for _, result, _ in batch:
                if not result.done():
                    failure = copy(error)  # one for each caller, because each raises its own
                    failure.__cause__ = error
                    result.set_exception(failure)
        else:
            for (_, result, _), value in zip(batch, done, strict=True):
                if not result.done():
                    result.set_result(value)


class EmbeddedTail:
    """See `port.Tail`. One caller of `receive` at a time; it may be cancelled without losing a message."""

    def __init__(self, topic: str, writer: EmbeddedWriter) -> None:
        self.topic, self.writer = topic, writer
        self.file = _FileThread(writer.path, "embedded-log-reader")
        self._rotation = 0
        self.next: dict[int, int] = {}  # for each partition, the offset to read next
        self._published = asyncio.Event()
        writer.subscribers[topic].add(self._published)

    async def aclose(self) -> None:
        self.writer.subscribers[self.topic].discard(self._published)
        await self.file.close()

    async def seek_to_end(self) -> None:
        self.next = await self.file.run("read", partial(file.heads, topic=self.topic))

    async def seek(self, offsets: Mapping[int, int]) -> None:
        self.next = {**self.next, **offsets}

    async def positions(self) -> Mapping[int, int]:
        return dict(self.next)

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            self._published.clear()
            messages = await self._take(max_messages)
            remaining = deadline - loop.time()
            if messages or remaining <= 0:
                return messages
            with suppress(TimeoutError):
                # Messages published by another process are noticed so soon.
                async with asyncio.timeout(min(0.05, remaining)):
                    await self._published.wait()

    async def _take(self, max_messages: int) -> Sequence[ConsumedMessage]:
        """From each partition in turn, starting with another one each time, so that none waits for a busy one."""
        positions = dict(self.next)

        def read(connection: sqlite3.Connection) -> list[ConsumedMessage]:
            ends = file.heads(connection, self.topic)
            if not ends:
                raise sqlite3.DatabaseError(f"topic {self.topic} is not in the file")  # which was replaced
            found: list[ConsumedMessage] = []
            for each in range(len(ends)):
                partition = (each + self._rotation) % len(ends)
                room = max_messages - len(found)
                if positions[partition] < ends[partition] and room > 0:
                    found += file.read(connection, self.topic, partition, positions[partition], room)
            return found

        messages = await self.file.run("read", read)
        self._rotation += 1
        for message in messages:
            self.next[message.partition] = message.offset + 1
        return messages


class EmbeddedConsumer(EmbeddedTail):
    """See `port.Consumer`. Owns every partition while it is open. In addition to what a tail does, it commits."""

    def __init__(self, topic: str, writer: EmbeddedWriter, group: str) -> None:
        super().__init__(topic, writer)
        self._group = group

    async def open(self) -> frozenset[int]:
        """Resume from the group's commits; returns the partitions. Creates the topic and the group if they are new."""
        await self.writer.create(self.topic)
        await self.seek_to_end()
        await self._commit(dict.fromkeys(self.next, 0))
        self.next = await self.file.run("read", partial(file.committed, topic=self.topic, group=self._group))
        return frozenset(self.next)

    @property
    def unreadable(self) -> Mapping[int, int]:
        return {}

    async def commit(self, messages: Sequence[ConsumedMessage]) -> None:
        # `file.commit` never lowers an offset, so that only the largest of a partition counts.
        offsets = {each.partition: each.offset + 1 for each in sorted(messages, key=attrgetter("offset"))}
        if offsets:
            await self._commit(offsets)

    async def _commit(self, offsets: Mapping[int, int]) -> None:
        await self.writer.execute(lambda connection, _: file.commit(connection, self.topic, self._group, offsets))


class EmbeddedAdmin:
    def __init__(self, writer: EmbeddedWriter, retention: timedelta) -> None:
        self._writer, self._retention = writer, retention

    async def create(
        self, partitions: Mapping[str, int], *, retention: timedelta | None = None, replicas: int | None = None
    ) -> Sequence[str]:
        del retention, replicas  # which are the same for all of them
        return [name for name, count in partitions.items() if await self._writer.create(name, count)]

    async def grow(self, partitions: Mapping[str, int]) -> None:
        raise NotImplementedError

    async def list(self) -> Mapping[str, int]:
        return await self._query(file.topics)

    async def describe(self, topics: Collection[str]) -> Mapping[str, port.TopicState]:
        existing = await self.list()
        return {name: port.TopicState(existing[name], 1, 1) for name in topics if name in existing}

    async def members(self, group: str) -> int | None:  # noqa: ARG002 - only taking its lock would show
        return None

    async def offsets(self, topic: str) -> Mapping[int, range]:
        return await self._query(partial(file.held, topic=topic))

    async def offsets_at(self, topic: str, moments: Sequence[datetime]) -> Sequence[Mapping[int, int]]:
        since_ms = [round(each.timestamp() * 1000) for each in moments]
        return await self._query(partial(file.offsets_at, topic=topic, since_ms=since_ms))

    async def settings(self, topic: str) -> Mapping[str, str]:  # noqa: ARG002 - none has any
        return {}

    async def retention(self, topic: str) -> timedelta | None:  # noqa: ARG002 - it is the same for all of them
        return self._retention

    async def committed(self, topic: str, *, group: str) -> Mapping[int, int]:
        return await self._query(partial(file.committed, topic=topic, group=group))

    async def lag(self, topic: str, *, group: str) -> Sequence[port.Lag]:
        return await self._query(partial(file.lag, topic=topic, group=group))

    async def _query(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(file.query, self._writer.path, ask)

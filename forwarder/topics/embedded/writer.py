"""The one thread of a process that writes to the embedded log's file, and deletes old messages between transactions.

While one transaction is being synced to the disk, the commands that come meanwhile are collected for the next.
"""

import asyncio
import logging
import sqlite3
import threading
from asyncio import Future
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from queue import Empty, SimpleQueue

from forwarder.process.clock import Clock
from forwarder.topics.embedded.file import (
    Append,
    Command,
    NoOp,
    entry_of,
    execute_all,
    list_topics,
    open_file,
    reaching_file,
    writing,
)
from forwarder.topics.port import LogUnavailable, Message, too_large
from forwarder.topics.publishing import RecentFailure, partition_of

_READY_SECONDS = 0.8
_PRUNE_BATCH = 500  # so few that no publisher has to wait for it
_PRUNE_INTERVAL_SECONDS = 600.0


class Retention:
    """Deletes old messages that all groups have committed. A group counts from its first consumer on."""

    def __init__(self, keep: timedelta, clock: Clock) -> None:
        self._keep = keep
        self._clock = clock
        self._due_at = clock.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to prune."""
        return self._clock.monotonic() >= self._due_at

    def prune(self, connection: sqlite3.Connection) -> bool:
        """Deletes a few messages. Returns whether there may be more; if not, it is not due again for a while."""
        began_at = self._clock.monotonic()  # read first, so that messages that expire meanwhile are not put off
        before_ms = int((self._clock.now() - self._keep).timestamp() * 1000)
        room = _PRUNE_BATCH
        with writing(connection):
            for topic, partition in connection.execute("select topic, partition from heads").fetchall():
                room -= _prune(connection, topic, partition, before_ms, max_rows=room)
        if room > 0:
            self._due_at = began_at + _PRUNE_INTERVAL_SECONDS
        return room == 0


def _prune(connection: sqlite3.Connection, topic: int, partition: int, before_ms: int, *, max_rows: int) -> int:
    """Delete from the first message up to one that has to stay. Returns how many."""
    (safe,) = connection.execute(
        "select min(next_offset) from commits where topic = ? and partition = ?", (topic, partition)
    ).fetchone()
    rows = connection.execute(
        "select offset, timestamp_ms from messages where topic = ? and partition = ? order by offset limit ?",
        (topic, partition, max_rows),
    )
    expired = list(takewhile(lambda row: row[1] < before_ms and (safe is None or row[0] < safe), rows))
    if expired:
        connection.execute(
            "delete from messages where topic = ? and partition = ? and offset <= ?", (topic, partition, expired[-1][0])
        )
    return len(expired)


_log = logging.getLogger(__name__)
_MAX_MESSAGES = 4_000
_MAX_CALLS = 2_048  # further callers wait before their command is queued
_IDLE_SECONDS = 60.0  # how often an idle writer checks whether to prune
_PRUNING_SECONDS = 0.01  # for callers, between two steps of pruning


@dataclass(frozen=True, slots=True)
class _Pending:
    command: Command
    result: "Future[bool]"

    @property
    def weight(self) -> int:
        return len(self.command.entries) if isinstance(self.command, Append) else 1


class EmbeddedWriter:
    """Runs from `start` to `close`. New topics get `partitions` partitions.

    `subscribed` notifies the readers of this process of new messages on a topic.
    """

    def __init__(
        self,
        path: Path,
        *,
        partitions: int,
        retention: Retention,
        clock: Clock,
    ) -> None:
        self._path = path
        self._partitions = partitions
        self._retention = retention
        self._clock = clock
        self._subscribers: dict[str, set[asyncio.Event]] = {}
        self._queue: SimpleQueue[_Pending | None] = SimpleQueue()
        self._slots = asyncio.Semaphore(_MAX_CALLS)
        self._loop = asyncio.get_running_loop()
        self._connection: sqlite3.Connection | None = None  # the thread's alone
        self._thread = threading.Thread(target=self._run, name="embedded-log-writer", daemon=True)

    def start(self) -> None:
        """Start the thread. The file is opened for the first command, which fails if it cannot be opened."""
        self._thread.start()

    async def close(self) -> None:
        """Stop, once every queued command is done."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    @contextmanager
    def subscribed(self, topic: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever this process has published to `topic`, as long as the block runs."""
        published = asyncio.Event()
        self._subscribers.setdefault(topic, set()).add(published)
        try:
            yield published
        finally:
            self._subscribers[topic].discard(published)

    @property
    def topics(self) -> Mapping[str, int]:
        """The file's topics and their numbers of partitions; empty if they cannot be read now. Blocks."""
        try:
            return list_topics(self._path)
        except LogUnavailable:
            return {}

    async def execute(self, command: Command, *, within: float) -> bool:
        """Return once `command` is synced to the disk, and whether it created its topic.

        Raises `LogUnavailable`, also if that takes longer than `within` seconds. A command that has not begun by then is dropped.
        """
        try:
            async with asyncio.timeout(within), self._slots:
                result: Future[bool] = self._loop.create_future()
                self._queue.put(_Pending(command, result))
                return await result
        except TimeoutError as error:
            raise LogUnavailable(f"write to {self._path}: not synced within {within:g} s") from error

    def _run(self) -> None:
        wait, ended = _IDLE_SECONDS, False
        while not ended:
            batch, ended = self._collect(wait)
            results = self._execute(batch)
            self._loop.call_soon_threadsafe(self._resolve, batch, results)
            wait = self._prune()
        self._drop()

    def _collect(self, wait: float) -> tuple[list[_Pending], bool]:
        """The commands queued already, or within `wait` seconds; and whether the writer is closing."""
        batch: list[_Pending] = []
        weight = 0
        with suppress(Empty):
            pending = self._queue.get(timeout=wait)
            while pending is not None:
                batch.append(pending)
                weight += pending.weight
                if weight >= _MAX_MESSAGES:
                    return batch, False
                pending = self._queue.get_nowait()
            return batch, True
        return batch, False

    def _execute(self, batch: Sequence[_Pending]) -> Sequence[bool | Exception]:
        if not batch:
            return ()
        now_ms = int(self._clock.now().timestamp() * 1000)
        # Evaluated after the transaction has begun, which may take a while: commands cancelled by then are left out.
        commands = (NoOp() if pending.result.cancelled() else pending.command for pending in batch)
        try:
            with reaching_file(f"write to {self._path}"):
                return execute_all(self._opened(), commands, partitions=self._partitions, now_ms=now_ms)
        except Exception as error:  # noqa: BLE001 - any error is raised by the callers, and the thread continues
            self._drop()
            return [error] * len(batch)

    def _prune(self) -> float:
        """Prunes a little if it is due. Returns for how many seconds the thread may then wait."""
        if not self._retention.due:
            return _IDLE_SECONDS
        try:
            with reaching_file(f"prune {self._path}"):
                return _PRUNING_SECONDS if self._retention.prune(self._opened()) else _IDLE_SECONDS
        except LogUnavailable as unavailable:
            _log.warning("log.not_pruned", extra={"reason": str(unavailable)})
            self._drop()
            return _IDLE_SECONDS

    def _resolve(self, batch: Sequence[_Pending], results: Sequence[bool | Exception]) -> None:
        """In the event loop: resolve the futures of callers that still wait."""
        for pending, result in zip(batch, results, strict=True):
            if pending.result.done():
                continue
            if isinstance(result, Exception):
                pending.result.set_exception(_copy_of(result))
            else:
                pending.result.set_result(result)
        appended = {pending.command.topic for pending in batch if isinstance(pending.command, Append)}
        for topic in appended:
            for published in self._subscribers.get(topic, ()):
                published.set()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_file(self._path)
        return self._connection

    def _drop(self) -> None:
        """Closes the connection after an error: the next batch opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _copy_of(error: Exception) -> Exception:
    """A copy for each of many callers, because each raises its own."""
    another = copy(error)
    another.__cause__ = error
    return another


class EmbeddedPublisher:
    """See `port.Publisher`. Calls within one process share transactions, and so the time for a sync to disk."""

    def __init__(self, writer: EmbeddedWriter, time_limit: float) -> None:
        self._writer = writer
        self._time_limit = time_limit
        self._failure = RecentFailure()
        self._partitions: Mapping[str, int] = {}

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        refused = too_large(messages)
        sizes = {} if refused is None else refused.sizes
        entries = [entry_of(message) for index, message in enumerate(messages) if index not in sizes]
        if entries:
            try:
                await self._writer.execute(Append(topic, entries), within=self._time_limit)
            except LogUnavailable:
                self._failure.record_failure()
                raise
            self._failure.record_success()
        if refused is not None:
            raise refused

    def partition(self, topic: str, key: str) -> int | None:
        if topic not in self._partitions:
            self._partitions = self._writer.topics
        partitions = self._partitions.get(topic)
        return None if partitions is None else partition_of(key.encode(), partitions)

    async def ready(self) -> bool:
        if self._failure.recent():
            return False
        try:
            await self._writer.execute(NoOp(), within=_READY_SECONDS)
        except LogUnavailable:
            return False
        return True

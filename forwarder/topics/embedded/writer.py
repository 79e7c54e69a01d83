"""The one thread of a process that writes to the embedded log's file, many callers' messages in one transaction.

Touches the file alone. While one transaction is being synced to the disk, what is asked for meanwhile gathers for the next.
"""

import asyncio
import logging
import sqlite3
import threading
from asyncio import Future
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from forwarder.process.clock import Clock
from forwarder.topics.embedded.commands import Append, Nothing, Order, carry_out
from forwarder.topics.embedded.file import open_file, reaching_file
from forwarder.topics.embedded.retention import Retention
from forwarder.topics.port import LogUnavailable

_log = logging.getLogger(__name__)
_MESSAGES_A_TRANSACTION = 4_000
_CALLS_WAITING = 2_048  # beyond these, callers wait before they are taken in
_IDLE_SECONDS = 60.0  # how often an idle writer looks whether there is something to prune
_PRUNING_SECONDS = 0.01  # left to callers between one step of pruning and the next


@dataclass(frozen=True, slots=True)
class _Asked:
    order: Order
    answer: "Future[bool]"

    @property
    def weight(self) -> int:
        return len(self.order.entries) if isinstance(self.order, Append) else 1


class EmbeddedWriter:
    """Started by `start`, ended by `close`. New topics have so many `partitions`.

    `on_append` is called in the event loop with the topics that have something new.
    """

    def __init__(
        self,
        path: Path,
        *,
        partitions: int,
        retention: Retention,
        clock: Clock,
        on_append: Callable[[Collection[str]], None],
    ) -> None:
        self._path = path
        self._partitions = partitions
        self._retention = retention
        self._clock = clock
        self._on_append = on_append
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._room = asyncio.Semaphore(_CALLS_WAITING)
        self._loop = asyncio.get_running_loop()
        self._connection: sqlite3.Connection | None = None  # the thread's alone
        self._thread = threading.Thread(target=self._run, name="embedded-log-writer", daemon=True)

    def start(self) -> None:
        """Begin to work. The file is opened at the first order, whose caller hears of it if it cannot be."""
        self._thread.start()

    async def close(self) -> None:
        """End, once everything that was asked for is done."""
        self._asked.put(None)
        await asyncio.to_thread(self._thread.join)

    async def carry_out(self, order: Order, *, within: float) -> bool:
        """Return once `order` is synced to the disk; whether a topic was made for it.

        Raises `LogUnavailable`, also when that takes longer than `within` seconds; what has not begun by then is not done.
        """
        try:
            async with asyncio.timeout(within), self._room:
                answer: Future[bool] = self._loop.create_future()
                self._asked.put(_Asked(order, answer))
                return await answer
        except TimeoutError as error:
            raise LogUnavailable(f"write to {self._path}: not synced within {within:g} s") from error

    def _run(self) -> None:
        wait, ended = _IDLE_SECONDS, False
        while not ended:
            batch, ended = self._gather(wait)
            answers = self._attempt(batch)
            self._loop.call_soon_threadsafe(self._answer, batch, answers)
            wait = self._prune()
        self._drop()

    def _gather(self, wait: float) -> tuple[list[_Asked], bool]:
        """What was asked for by now, or within `wait` seconds; and whether that is all there will ever be."""
        batch: list[_Asked] = []
        weight = 0
        with suppress(Empty):
            asked = self._asked.get(timeout=wait)
            while asked is not None:
                batch.append(asked)
                weight += asked.weight
                if weight >= _MESSAGES_A_TRANSACTION:
                    return batch, False
                asked = self._asked.get_nowait()
            return batch, True
        return batch, False

    def _attempt(self, batch: Sequence[_Asked]) -> Sequence[bool | Exception]:
        if not batch:
            return ()
        now_ms = int(self._clock.now().timestamp() * 1000)
        # Looked at when the transaction has begun, which may have been waited for: what was given up by then is left out.
        orders = (Nothing() if asked.answer.cancelled() else asked.order for asked in batch)
        try:
            with reaching_file(f"write to {self._path}"):
                return carry_out(self._opened(), orders, partitions=self._partitions, now_ms=now_ms)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told to those who wait, and the thread goes on
            self._drop()
            return [error] * len(batch)

    def _prune(self) -> float:
        """Prune a little, where it is due; the seconds in which nothing else needs to be done."""
        if not self._retention.due:
            return _IDLE_SECONDS
        try:
            with reaching_file(f"prune {self._path}"):
                return _PRUNING_SECONDS if self._retention.prune(self._opened()) else _IDLE_SECONDS
        except LogUnavailable as unavailable:
            _log.warning("log.not_pruned", extra={"reason": str(unavailable)})
            self._drop()
            return _IDLE_SECONDS

    def _answer(self, batch: Sequence[_Asked], answers: Sequence[bool | Exception]) -> None:
        """In the event loop: tell those who still wait."""
        for asked, answer in zip(batch, answers, strict=True):
            if asked.answer.done():
                continue
            if isinstance(answer, Exception):
                asked.answer.set_exception(_copy_of(answer))
            else:
                asked.answer.set_result(answer)
        appended = {asked.order.topic for asked in batch if isinstance(asked.order, Append)}
        if appended:
            self._on_append(appended)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_file(self._path)
        return self._connection

    def _drop(self) -> None:
        """Whatever is wrong with the connection, the next batch begins with a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _copy_of(error: Exception) -> Exception:
    """For one of many who are told of it: each raises its own."""
    another = copy(error)
    another.__cause__ = error
    return another

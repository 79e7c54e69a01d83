"""Learns how submissions end by tailing the results topic, for whoever waits for one of them. Touches the log alone.

Many waiters share one tail. It rests while nobody waits: what is published then costs nothing here. A waiter is entered, and the
tail is at the topic's end, before its submission is published, so that its outcome cannot pass by unseen.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic_core import to_json

from forwarder.observability.metrics import UNREADABLE_RESULTS, WAITING
from forwarder.process.clock import Clock
from forwarder.process.loops import first_of
from forwarder.reservation.outcome import Status
from forwarder.topics.codec import Undecodable, decode_data, header, subject
from forwarder.topics.port import ConsumedMessage, LogUnavailable, Message, Tail

_BATCH = 1_000
_RECEIVE_SECONDS = 1.0
_PAUSE_SECONDS = 0.5
_START_SECONDS = 2.0
"""How long a first waiter lets the tail come to its place before it submits all the same."""

_ERRORS = range(400, 600)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OutcomeEvent:
    """How a submission stands: its reservation's id, the record as JSON, and the problem where there is one.

    `cancellation`: how its cancellation stands, where that is what was told; `revision`: that of the event which told it.
    """

    status: Status
    reservation_id: int
    record: bytes
    problem: Mapping[str, Any] | None
    cancellation: Mapping[str, Any] | None = None
    revision: int = 0


OutcomeFilter = Callable[[OutcomeEvent], bool]
"""Whether that is what somebody waits for."""

_Waiter = tuple[asyncio.Future[OutcomeEvent | None], OutcomeFilter]


class OutcomeListener:
    """Hands outcomes to those who wait, at most `max_waiting` at a time. Without `run` under way, nobody waits.

    `linger_seconds`: how long the tail goes on after the last waiter left, so that it need not start for each of a few callers.
    """

    def __init__(self, tail: Tail, clock: Clock, *, max_waiting: int = 10_000, linger_seconds: float = 5.0) -> None:
        self._tail = tail
        self._clock = clock
        self._max_waiting = max_waiting
        self._linger_seconds = linger_seconds
        self._waiting: dict[str, list[_Waiter]] = {}
        self._count = 0
        self._last_left = float("-inf")
        self._wanted = asyncio.Event()
        self._following = asyncio.Event()
        self._running = False

    @property
    def following(self) -> bool:
        """Whether the tail is in its place: what is published from now on will be heard."""
        return self._following.is_set()

    async def run(self) -> None:
        """Follow the topic whenever somebody waits, until cancelled. Then all who wait are let go at once, without outcome."""
        self._running = True
        try:
            while True:
                await self._wanted.wait()
                await self._follow()
        finally:
            self._running = False
            self._following.set()
            for future, _ in [waiter for waiters in self._waiting.values() for waiter in waiters]:
                _settle(future, None)

    @asynccontextmanager
    async def expecting(
        self, request_id: str, ends: OutcomeFilter = lambda _: True
    ) -> AsyncIterator["OutcomeWaiter | None"]:
        """Wait for the first event of that submission that `ends` it, which is to be caused inside; None where there is no place
        to wait."""
        if not self._running or self._count >= self._max_waiting:
            yield None
            return
        future: asyncio.Future[OutcomeEvent | None] = asyncio.get_running_loop().create_future()
        waiter = (future, ends)
        self._enter(request_id, waiter)
        try:
            await self._start()
            yield OutcomeWaiter(future, self._clock)
        finally:
            self._leave(request_id, waiter)

    def _enter(self, request_id: str, waiter: _Waiter) -> None:
        self._waiting.setdefault(request_id, []).append(waiter)
        self._count += 1
        WAITING.inc()

    def _leave(self, request_id: str, waiter: _Waiter) -> None:
        waiters = self._waiting[request_id]
        waiters.remove(waiter)
        if not waiters:
            del self._waiting[request_id]
        self._count -= 1
        self._last_left = self._clock.monotonic()
        WAITING.dec()

    async def _start(self) -> None:
        if not self._following.is_set():
            self._wanted.set()
            await first_of(self._following.wait(), self._clock.sleep(_START_SECONDS))

    async def _follow(self) -> None:
        """Read from the topic's end on until nobody has waited for a while."""
        try:
            await self._tail.seek_to_end()
        except LogUnavailable:
            await self._pause()
            return
        self._following.set()
        while self._count or self._clock.monotonic() - self._last_left < self._linger_seconds:
            await self._receive()
        # Nothing is awaited between that look and here: whoever comes next starts the tail anew.
        self._following.clear()
        self._wanted.clear()

    async def _receive(self) -> None:
        try:
            deliveries = await self._tail.receive(max_messages=_BATCH, wait_seconds=_RECEIVE_SECONDS)
        except LogUnavailable:
            await self._pause()
            return
        for delivery in deliveries:
            self._deliver(delivery)

    async def _pause(self) -> None:
        _log.warning("outcomes.unavailable", waiting=self._count)
        await self._clock.sleep(_PAUSE_SECONDS)

    def _deliver(self, delivery: ConsumedMessage) -> None:
        waiters = self._waiting.get(subject(delivery.message.headers) or "")
        if waiters is None:
            return
        try:
            settled = _settled(delivery.message)
        except (Undecodable, KeyError, TypeError, ValueError):
            UNREADABLE_RESULTS.labels("waiters").inc()
            _log.warning(
                "outcome.undecodable", topic=delivery.topic, partition=delivery.partition, offset=delivery.offset
            )
            return
        for future, ends in waiters:
            if ends(settled):
                _settle(future, settled)


class OutcomeWaiter:
    """One waiter's place."""

    def __init__(self, future: asyncio.Future[OutcomeEvent | None], clock: Clock) -> None:
        self._future = future
        self._clock = clock

    async def within(self, seconds: float, gone: Callable[[], Awaitable[None]]) -> OutcomeEvent | None:
        """The outcome; None when it did not come in time, or when `gone` returned first: nobody is there any more."""
        if not self._future.done():
            await first_of(self._future, self._clock.sleep(seconds), gone())
        return None if self._future.cancelled() else self._future.result()


def _settled(message: Message) -> OutcomeEvent:
    """What `message` tells, with all that its readers answer from: nothing is left for them to stumble over."""
    data = decode_data(message)
    status, record, cancellation = Status(data["status"]), data["reservation"], data.get("cancellation")
    if not isinstance(record, dict) or not isinstance(cancellation, dict | None):
        raise TypeError("a record is a JSON object, and so is how a cancellation stands")
    if type(record["id"]) is not int:
        raise TypeError("a reservation's id is a number")
    _require_problem(record.get("problem"))
    if cancellation is not None:
        _require_problem(cancellation.get("problem"), missing=status is Status.CANCELLED)
    _, _, revision = (header(message.headers, "ce_id") or "").rpartition(".")
    # Written before the number is read: so it is JSON that goes out, whatever came in.
    return OutcomeEvent(
        status, record["id"], to_json(record, inf_nan_mode="null"), record.get("problem"), cancellation, int(revision)
    )


def _require_problem(problem: object, *, missing: bool = True) -> None:
    """Raise where it is none, or `missing` where it may not be."""
    if problem is None and missing:
        return
    status = problem.get("status") if isinstance(problem, dict) else None
    if type(status) is not int or status not in _ERRORS:
        raise TypeError("a problem is a JSON object with an HTTP status")


def _settle(future: asyncio.Future[OutcomeEvent | None], settled: OutcomeEvent | None) -> None:
    if not future.done():
        future.set_result(settled)

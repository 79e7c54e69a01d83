"""Lets HTTP requests wait for the outcome of a submission, by tailing the results topic. All waiters share one tail. It pauses
while there are no waiters: events then cost nothing here. A waiter is registered, and the tail is at the end of the topic, before
the submission is published, so that its outcome cannot be missed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, assert_never

import structlog
from msgspec import convert
from pydantic_core import to_json

from forwarder.observability.metrics import UNREADABLE_RESULTS, WAITING
from forwarder.process.clock import Clock
from forwarder.process.loops import FAULTS, Outage, Where, contained, first_of, forever
from forwarder.process.shares import Shares
from forwarder.reservation.outcome import Status
from forwarder.topics import codec
from forwarder.topics.codec import Undecodable, decode_data, header, subject
from forwarder.topics.port import ConsumedMessage, LogUnavailable, Message, Tail

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OutcomeEvent:
    """The state of a submission: the id of its reservation, the record as JSON, and the problem if there is one. `cancellation`:
    the state of its cancellation, if the event is about that; `revision`: that of the event. `similar_to`: the request ids of
    others for the same stay and guest."""

    status: Status
    reservation_id: int
    record: bytes
    problem: Mapping[str, Any] | None
    cancellation: Mapping[str, Any] | None = None
    revision: int = 0
    similar_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DuplicateOf:
    """The submission has no outcome of its own: it is a duplicate of the one with this `request_id`."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ConflictingBody:
    """The submission with this `fingerprint` was not made: its idempotency key was used before with another body."""

    fingerprint: str


Heard = OutcomeEvent | DuplicateOf | ConflictingBody  # the events that a waiter can receive


@dataclass(eq=False, slots=True)
class OutcomeWaiter:
    """One registered waiter: for an outcome that `matches`, or the conflict of the body with this `fingerprint`."""

    matches: Callable[[OutcomeEvent], bool]
    fingerprint: str
    clock: Clock
    heard: asyncio.Future[Heard | None]

    async def within(self, seconds: float, gone: Callable[[], Awaitable[None]]) -> Heard | None:
        """The outcome, or the original to wait for; None if neither came in time, or if `gone` (the caller left) returned first."""
        if not self.heard.done():
            await first_of(self.heard, self.clock.sleep(seconds), gone())
        return None if self.heard.cancelled() else self.heard.result()

    def wants(self, event: Heard) -> bool:
        match event:
            case OutcomeEvent():
                return self.matches(event)
            case ConflictingBody(fingerprint):
                return fingerprint == self.fingerprint
            case DuplicateOf():
                return True
            case _:
                assert_never(event)


class OutcomeListener:
    """Delivers outcomes to at most `max_waiting` waiters at a time, shared among their parties. Waiting is possible only while
    `run` is running."""

    def __init__(self, tail: Tail, clock: Clock, *, max_waiting: int = 10_000) -> None:
        self._tail, self._clock = tail, clock
        self._outage, self._faults = Outage(Where.WAITERS, clock), Outage(Where.WAITERS, clock)
        self.places = Shares(max_waiting)
        self._waiting: dict[str, list[OutcomeWaiter]] = {}
        self._last_leave = float("-inf")
        self._wanted = asyncio.Event()
        self.following = asyncio.Event()
        """Set while the tail is at the end of the topic: it will see events published from now on."""
        self._running = False

    async def run(self) -> None:
        """Follows the topic while there are waiters, until cancelled. Then all waiters return at once, without an outcome."""
        self._running = True
        try:
            await forever(self._follow, name=Where.WAITERS, clock=self._clock, outages=(), outage=self._faults)
        finally:
            self._running = False
            self.following.set()
            for waiter in chain(*self._waiting.values()):
                if not waiter.heard.done():
                    waiter.heard.set_result(None)

    @asynccontextmanager
    async def expecting(
        self,
        request_id: str,
        matches: Callable[[OutcomeEvent], bool] = lambda _: True,
        *,
        party: Hashable = None,
        size: int = 0,
        fingerprint: str = "",
    ) -> AsyncIterator[OutcomeWaiter | None]:
        """A waiter for the first event of the submission that `matches`, or for the report that it is a duplicate, or that its
        body, the one with `fingerprint`, conflicts with an earlier one; the block publishes the submission. None if waiting is
        impossible now, or `party` has used up its share of waiters. `size`: bytes kept in memory meanwhile; each 8 KiB count as
        one more waiter."""
        places = 1 + size // (8 * 1024)
        if not self._running or not self.places.take(party, places):
            yield None
            return
        waiter = OutcomeWaiter(matches, fingerprint, self._clock, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(request_id, []).append(waiter)
        WAITING.inc()
        try:
            if not self.following.is_set():
                self._wanted.set()
                # If it takes longer, the submission is published anyway.
                await first_of(self.following.wait(), self._clock.sleep(2.0))
            yield waiter
        finally:
            waiters = self._waiting[request_id]
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[request_id]
            self._last_leave = self._clock.monotonic()
            WAITING.dec()
            self.places.give_back(party, places)

    async def _follow(self) -> None:
        await self._wanted.wait()
        linger = 5.0  # after the last waiter left the tail runs on: a few callers need not restart it each time
        try:
            while not self.following.is_set() or self._waiting or self._clock.monotonic() - self._last_leave < linger:
                try:
                    if not self.following.is_set():
                        await self._tail.seek_to_end()
                        self.following.set()
                    messages = await self._tail.receive(max_messages=1_000, wait_seconds=1.0)
                except LogUnavailable as error:
                    self._outage.failed(error)
                    await self._clock.sleep(0.5)  # shorter than other outage pauses: callers are waiting
                    continue
                self._outage.over()
                self._faults.over()
                for found in messages:
                    self._dispatch(found)
            # No await since that check: the next waiter starts the tail again.
            self._wanted.clear()
        finally:
            self.following.clear()

    def _dispatch(self, found: ConsumedMessage) -> None:
        topic, partition, offset = found.topic, found.partition, found.offset
        try:
            if waiters := self._waiting.get(subject(found.message.headers) or ""):
                try:
                    event = _decode(found.message)
                except (Undecodable, KeyError, TypeError, ValueError):
                    UNREADABLE_RESULTS.labels("waiters").inc()
                    _log.warning("outcome.undecodable", topic=topic, partition=partition, offset=offset)
                    return
                for waiter in waiters:
                    if waiter.wants(event) and not waiter.heard.done():
                        waiter.heard.set_result(event)
        except FAULTS as error:  # the other events are still dispatched
            UNREADABLE_RESULTS.labels("waiters").inc()
            contained(Where.WAITERS, error, partition=partition, offset=offset)


def _decode(message: Message) -> Heard:
    """The event in `message`, with everything validated that responses use."""
    data = decode_data(message)
    match header(message.headers, "ce_type"):
        case codec.DUPLICATE:
            return DuplicateOf(convert(data["duplicateOf"], str))
        case codec.CONFLICT:
            return ConflictingBody(convert(data["fingerprint"], str))
    status, record, cancellation = Status(data["status"]), data["reservation"], data.get("cancellation")
    if not (isinstance(record, dict) and isinstance(cancellation, dict | None) and type(record["id"]) is int):
        raise TypeError("a record with its id is a JSON object, and so is a cancellation")
    _require_problem(record.get("problem"))
    if cancellation is not None:
        _require_problem(cancellation.get("problem"), optional=status is Status.CANCELLED)
    _, _, revision = (header(message.headers, "ce_id") or "").rpartition(".")
    similar_to = tuple(str(each) for each in data.get("similarTo", ()))
    text = to_json(record, inf_nan_mode="null")  # so that it is valid JSON in any case
    return OutcomeEvent(status, record["id"], text, record.get("problem"), cancellation, int(revision), similar_to)


def _require_problem(problem: object, *, optional: bool = True) -> None:
    status = problem.get("status") if isinstance(problem, dict) else None
    if not (problem is None and optional) and (type(status) is not int or status not in range(400, 600)):
        raise TypeError("a problem is a JSON object with an HTTP status")

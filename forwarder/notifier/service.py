"""The notifier: its loops, how they start, and how they stop cleanly.

Its intake queues a batch of result events for the subscribed endpoints, in one statement, then commits the offsets. An event that
is received again is recognized by its id and queued once. An endpoint gets events appended after it was added.

On SIGTERM it receives and claims nothing more, lets running posts end within the grace period, and records them. A delivery whose
notifier is killed is due again when its claim expires.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar

import structlog

from forwarder.notifier.dispatcher import EndpointDispatcher
from forwarder.notifier.events import Event, decode_event
from forwarder.notifier.parts import NotifierParts
from forwarder.notifier.posting import Poster
from forwarder.observability import metrics
from forwarder.process.containment import FAULTS, Blame, Fault, Where, as_fault, by_halves
from forwarder.process.loops import Outage, cancel_all, forever, keep_trying
from forwarder.store.deliveries import NewDelivery
from forwarder.store.submissions.port import StoreUnavailable, Unstorable
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.codec import Undecodable, is_outcome
from forwarder.topics.port import ConsumedMessage, Consumer, LogUnavailable
from forwarder.topics.reading import read_last

_log = structlog.get_logger(__name__)

_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)

_LOOKED_AT: Final = 1_000
"""Events of each partition, as workers look at."""
_LOST_FOR: Final = timedelta(hours=1)

T = TypeVar("T")

_Received = tuple[ConsumedMessage, Event | None]
"""A message and its event; None if decoding raised an unexpected exception."""


class Intake:
    """Queues what one consumer receives. `start` is called with the endpoints that something was queued for."""

    def __init__(self, parts: NotifierParts, *, start: Callable[[Iterable[str]], None]) -> None:
        self._parts = parts
        self._start = start
        self._blame = Blame(Where.WEBHOOK_INTAKE, parts.clock.sleep)

    async def ingest_next(self, consumer: Consumer) -> None:
        """Processes one batch: receive, queue, commit. Raises `LogUnavailable`; and `Unworkable` if nothing can be queued, without
        committing."""
        settings = self._parts.settings
        messages = await consumer.receive(max_messages=settings.intake_batch, wait_seconds=settings.intake_wait_seconds)
        if not messages:
            return
        queued: list[NewDelivery] = []

        async def queue(received: Sequence[_Received]) -> None:
            events = [(message, event or decode_event(message.message)) for message, event in received]
            queued.extend(await self._through_outages(partial(self._queue_wanted, events)))

        # Without any endpoint nothing needs to be decoded.
        if await self._through_outages(self._parts.endpoints.any_enabled):
            await by_halves(
                queue,
                list(_decoded(messages)),
                where=Where.WEBHOOK_INTAKE,
                set_aside=_skip,
                outages=_OUTAGES,
                refusals=(Unstorable,),
                refused=_skip_unstorable,
                blame=self._blame,
            )
        await consumer.commit(messages)
        metrics.WEBHOOKS_QUEUED.inc(len(queued))
        self._start(dict.fromkeys(one.endpoint_id for one in queued))
        if not queued and len(messages) < settings.intake_batch:
            # Without subscribers an occasional batch is enough: each costs a commit.
            await self._parts.clock.sleep(settings.idle_seconds)

    async def queue_again(self) -> None:
        """Queues the newest events, of which a database that took over may lack the deliveries, although their offsets are
        committed. Those that it has are recognised."""
        since_ms = int((self._parts.clock.now() - _LOST_FOR).timestamp() * 1000)
        newest = await read_last(self._parts.log, self._parts.topics.results, _LOOKED_AT)
        events = [(message, event) for message, event in _decoded(newest) if event and message.timestamp_ms >= since_ms]
        for first in range(0, len(events), self._parts.settings.intake_batch):
            await self._queue_wanted(events[first : first + self._parts.settings.intake_batch])

    async def _queue_wanted(self, events: Sequence[tuple[ConsumedMessage, Event]]) -> Sequence[NewDelivery]:
        endpoints = await self._parts.endpoints.enabled_of({event.workspace_id for _, event in events})
        wanted = [
            NewDelivery(endpoint.id, event.id, event.type, event.body, event.trace)
            for message, event in events
            for endpoint in endpoints
            if endpoint.workspace_id == event.workspace_id
            and endpoint.takes(kind=event.type, account_id=event.account_id, property_id=event.property_id)
            and message.timestamp_ms >= int(endpoint.created_at.timestamp() * 1000)
        ]
        await self._parts.queue.queue(wanted, now=self._parts.clock.now())
        return wanted

    async def _through_outages(self, step: Callable[[], Awaitable[T]]) -> T:
        return await keep_trying(step, name=Where.WEBHOOK_INTAKE, clock=self._parts.clock, outages=_OUTAGES[:2])


def _decoded(messages: Sequence[ConsumedMessage]) -> Iterable[_Received]:
    for message in messages:
        try:
            if is_outcome(message.message):
                yield message, decode_event(message.message)
        except Undecodable as error:
            _log_unreadable(message, str(error))
        except FAULTS as error:
            as_fault(error)
            yield message, None


async def _skip(received: _Received, fault: Fault) -> None:
    _log_unreadable(received[0], str(fault))


async def _skip_unstorable(received: _Received, refusal: Exception) -> None:
    _log_unreadable(received[0], f"the store cannot hold it: {refusal}")


def _log_unreadable(message: ConsumedMessage, error: str) -> None:
    """It stays on the topic for other readers; no endpoint can be sent it."""
    metrics.UNREADABLE_RESULTS.labels("notifier").inc()
    _log.error("webhook_event.undecodable", partition=message.partition, offset=message.offset, error=error)


class Notifier:
    """One notifier. `run` runs it until it stops."""

    def __init__(self, parts: NotifierParts) -> None:
        self._parts = parts
        self._consumer: Consumer | None = None
        self._outage = Outage(Where.WEBHOOK_EVENTS, parts.clock)
        """Of the loop whose step does not return while it works."""
        self._dispatcher = EndpointDispatcher(parts, Poster(parts))
        self._intake = Intake(parts, start=self._dispatcher.start)
        self._changes = parts.queue.changes

    def consuming(self) -> bool:
        return self._consumer is not None

    @property
    def unreadable(self) -> Mapping[int, int]:
        """See `Consumer.unreadable`."""
        return {} if self._consumer is None else self._consumer.unreadable

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then stop cleanly. Loops go on after outages and faults."""
        clock, loops = self._parts.clock, []
        for name, step, outage in (
            (Where.WEBHOOK_EVENTS, self._consume, self._outage),
            (Where.WEBHOOK_SWEEP, self._sweep, None),
        ):
            loop = forever(step, name=name, clock=clock, outages=_OUTAGES, outage=outage)
            loops.append(asyncio.create_task(loop, name=name))
        try:
            await stop.wait()
        finally:
            self._dispatcher.stopping = True
            await cancel_all(loops)
            cancelled = await self._dispatcher.finish(self._parts.settings.grace_seconds)
            _log.info("notifier.stopped", cancelled=cancelled)

    async def _consume(self) -> None:
        parts = self._parts
        async with parts.log.consumer(
            parts.topics.results, group=parts.settings.group, on_partitions=_any_partitions, on_gap=parts.on_gap
        ) as consumer:
            self._consumer = consumer
            try:
                while True:
                    await self._intake.ingest_next(consumer)
                    self._outage.over()
            finally:
                self._consumer = None

    async def _sweep(self) -> None:
        """Starts runs for due deliveries: retries, and those that other notifiers queued or left behind. In another database first
        queues what that may have lost."""
        changes = self._parts.queue.changes
        if changes != self._changes:
            await self._intake.queue_again()
            self._changes = changes
        self._dispatcher.start(await self._parts.queue.endpoints_due(now=self._parts.clock.now()))
        await self._parts.clock.sleep(self._parts.settings.sweep_seconds)


async def _any_partitions(partitions: frozenset[int]) -> None:
    """Logs the assignment. Nothing else depends on it, because an event is queued only once."""
    _log.info("webhook_partitions.assigned", partitions=sorted(partitions))

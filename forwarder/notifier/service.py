"""The notifier: its loops, how they start, and how they stop cleanly.

On SIGTERM it receives and claims nothing more, lets running posts end within the grace period, and records them. A delivery whose
notifier is killed is due again when its claim expires.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from forwarder.notifier.backoff import Backoff
from forwarder.notifier.dispatcher import EndpointDispatcher, EndpointRunner
from forwarder.notifier.intake import Intake
from forwarder.notifier.posting import Poster
from forwarder.notifier.settings import NotifierSettings
from forwarder.process.clock import Clock
from forwarder.process.containment import Where
from forwarder.process.loops import Outage, cancel_all, forever
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import TenancyUnavailable, Unsealer
from forwarder.topics.port import Consumer, GapFound, Log, LogUnavailable, Topics
from forwarder.webhooks.port import Sender

if TYPE_CHECKING:
    from forwarder.store.delivery_queue import Deliveries
    from forwarder.tenancy.sql.endpoints import Endpoints

_log = structlog.get_logger(__name__)

_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)
_PRUNE_SECONDS = 60.0
_PRUNE = 1000


@dataclass(frozen=True, slots=True)
class NotifierParts:
    """The ports of the notifier."""

    log: Log
    topics: Topics
    queue: "Deliveries"
    endpoints: "Endpoints"
    unsealer: Unsealer
    sender: Sender
    clock: Clock
    settings: NotifierSettings
    on_gap: GapFound | None = None


class Notifier:
    """One notifier. `run` runs it until it stops."""

    def __init__(self, parts: NotifierParts) -> None:
        self._parts = parts
        settings, clock, queue, endpoints = parts.settings, parts.clock, parts.queue, parts.endpoints
        self._stopping = False
        self._consumer: Consumer | None = None
        self._outages = {Where.WEBHOOK_EVENTS: Outage(Where.WEBHOOK_EVENTS, clock)}
        """The outages of loops whose step does not return while it works."""
        backoff = Backoff(clock, settings)
        poster = Poster(queue, endpoints, parts.unsealer, parts.sender, clock, record_batch=settings.record_batch)
        runner = EndpointRunner(queue, endpoints, poster, backoff, clock, settings, may_continue=self._may_continue)
        self._dispatcher = EndpointDispatcher(runner.run, backoff, max_endpoints=settings.max_endpoints)
        self._intake = Intake(queue, endpoints, clock, settings, start=self._dispatcher.start)

    def consuming(self) -> bool:
        """Whether it consumes the results topic, and so is ready."""
        return self._consumer is not None

    @property
    def unreadable(self) -> Mapping[int, int]:
        """See `Consumer.unreadable`."""
        return {} if self._consumer is None else self._consumer.unreadable

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then stop cleanly. Loops go on after outages and faults."""
        loops = [asyncio.create_task(self._forever(name, step), name=name) for name, step in self._loops().items()]
        try:
            await stop.wait()
        finally:
            self._stopping = True
            await cancel_all(loops)
            cancelled = await self._dispatcher.finish(self._parts.settings.grace_seconds)
            _log.info("notifier.stopped", cancelled=cancelled)

    async def _forever(self, name: Where, step: Callable[[], Awaitable[None]]) -> None:
        outage = self._outages.get(name)
        await forever(step, name=name, clock=self._parts.clock, outages=_OUTAGES, outage=outage)

    def _loops(self) -> Mapping[Where, Callable[[], Awaitable[None]]]:
        return {
            Where.WEBHOOK_EVENTS: self._consume,
            Where.WEBHOOK_SWEEP: self._sweep,
            Where.WEBHOOK_PRUNE: self._prune,
        }

    def _may_continue(self) -> bool:
        return not self._stopping and not self._dispatcher.crowded

    async def _consume(self) -> None:
        parts = self._parts
        async with parts.log.consumer(
            parts.topics.results, group=parts.settings.group, on_partitions=_any_partitions, on_gap=parts.on_gap
        ) as consumer:
            self._consumer = consumer
            try:
                while True:
                    await self._intake.ingest_next(consumer)
                    self._outages[Where.WEBHOOK_EVENTS].over()
            finally:
                self._consumer = None

    async def _sweep(self) -> None:
        """Starts runs for due deliveries: retries, and those that other notifiers queued or left behind."""
        self._dispatcher.start(await self._parts.queue.endpoints_due(now=self._parts.clock.now()))
        await self._parts.clock.sleep(self._parts.settings.sweep_seconds)

    async def _prune(self) -> None:
        before = self._parts.clock.now() - timedelta(days=self._parts.settings.keep_days)
        if await self._parts.queue.prune(before=before, limit=_PRUNE) < _PRUNE:
            await self._parts.clock.sleep(_PRUNE_SECONDS)


async def _any_partitions(partitions: frozenset[int]) -> None:
    """Logs the assignment. Nothing else depends on it, because an event is queued only once."""
    _log.info("webhook_partitions.assigned", partitions=sorted(partitions))

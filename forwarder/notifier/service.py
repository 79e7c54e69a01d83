"""The notifier: its loops, how they start, and how they stop cleanly.

On SIGTERM it receives and claims nothing more, lets running posts end within the grace period, and records them. A delivery whose
notifier is killed is due again when its claim expires.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from forwarder.notifier.dispatcher import EndpointDispatcher
from forwarder.notifier.intake import Intake
from forwarder.notifier.parts import NotifierParts
from forwarder.notifier.posting import Poster
from forwarder.process.containment import Where
from forwarder.process.loops import Outage, cancel_all, forever
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.port import Consumer, LogUnavailable

if TYPE_CHECKING:
    pass

_log = structlog.get_logger(__name__)

_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)
_PRUNE_SECONDS = 60.0
_PRUNE = 1000


class Notifier:
    """One notifier. `run` runs it until it stops."""

    def __init__(self, parts: NotifierParts) -> None:
        self._parts = parts
        self._consumer: Consumer | None = None
        self._outage = Outage(Where.WEBHOOK_EVENTS, parts.clock)
        """Of the loop whose step does not return while it works."""
        self._dispatcher = EndpointDispatcher(parts, Poster(parts))
        self._intake = Intake(parts, start=self._dispatcher.start)

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
            (Where.WEBHOOK_PRUNE, self._prune, None),
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

"""Intake: a batch of result events is queued for the endpoints that take them, in one statement, then its offsets are committed.

An event that comes again is known by its id and queued once. An endpoint is sent what the log took after the endpoint was added.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog

from forwarder.notifier.events import Event, decode_event
from forwarder.notifier.settings import NotifierSettings
from forwarder.observability import metrics
from forwarder.process.clock import Clock
from forwarder.process.loops import by_halves, keep_trying
from forwarder.store.submissions.port import StoreUnavailable, Unstorable
from forwarder.store.webhooks.port import DeliveryQueue, NewDelivery
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.tenancy.webhooks import EndpointReader
from forwarder.topics.codec import Undecodable
from forwarder.topics.port import ConsumedMessage, Consumer

_log = structlog.get_logger(__name__)

_Received = tuple[ConsumedMessage, Event]
"""A message, and the event that it brought."""


class Intake:
    """Takes in what one consumer delivers. `start`: told the endpoints that something was queued for."""

    def __init__(
        self,
        queue: DeliveryQueue,
        endpoints: EndpointReader,
        clock: Clock,
        settings: NotifierSettings,
        *,
        start: Callable[[Iterable[str]], None],
    ) -> None:
        self._queue = queue
        self._endpoints = endpoints
        self._clock = clock
        self._settings = settings
        self._start = start

    async def take_next(self, consumer: Consumer) -> None:
        """One batch: receive, queue, commit. Raises `LogUnavailable`."""
        deliveries = await consumer.receive(
            max_messages=self._settings.intake_batch, wait_seconds=self._settings.intake_wait_seconds
        )
        if not deliveries:
            return
        queued: list[NewDelivery] = []

        async def queue(received: Sequence[_Received]) -> None:
            queued.extend(await self._queue_wanted(received))

        # Where there is no endpoint at all, nothing needs to be read.
        received = list(_decoded(deliveries)) if await self._any_enabled() else ()
        if received:
            await by_halves(queue, received, name="webhook_intake", refusal=Unstorable, set_aside=_pass_over)
        await consumer.commit(deliveries)
        metrics.WEBHOOKS_QUEUED.inc(len(queued))
        self._start(dict.fromkeys(one.endpoint_id for one in queued))
        if not queued and len(deliveries) < self._settings.intake_batch:
            # Where nobody wants anything, a batch now and then is enough: each costs a commit to the log.
            await self._clock.sleep(self._settings.idle_seconds)

    async def _any_enabled(self) -> bool:
        found: list[bool] = []

        async def step() -> None:
            found.append(await self._endpoints.any_enabled())

        await self._through_outages(step)
        return found[-1]

    async def _queue_wanted(self, received: Sequence[_Received]) -> Sequence[NewDelivery]:
        wanted: list[NewDelivery] = []

        async def step() -> None:
            wanted[:] = await self._wanted(received)
            await self._queue.queue(wanted, now=self._clock.now())

        await self._through_outages(step)
        return wanted

    async def _through_outages(self, step: Callable[[], Awaitable[None]]) -> None:
        outages = (StoreUnavailable, TenancyUnavailable)
        await keep_trying(step, name="webhook_intake", clock=self._clock, outages=outages)

    async def _wanted(self, received: Sequence[_Received]) -> list[NewDelivery]:
        endpoints = await self._endpoints.enabled_of({event.workspace_id for _, event in received})
        return [
            NewDelivery(endpoint.id, event.id, event.type, event.body)
            for delivery, event in received
            for endpoint in endpoints
            if endpoint.workspace_id == event.workspace_id
            and endpoint.takes(event.type)
            and delivery.timestamp_ms >= int(endpoint.created_at.timestamp() * 1000)
        ]


def _decoded(deliveries: Sequence[ConsumedMessage]) -> Iterable[_Received]:
    for delivery in deliveries:
        try:
            yield delivery, decode_event(delivery.message)
        except Undecodable as error:
            _note_unreadable(delivery, str(error))


async def _pass_over(received: _Received, refusal: Exception) -> None:
    _note_unreadable(received[0], f"the store cannot hold it: {refusal}")


def _note_unreadable(delivery: ConsumedMessage, error: str) -> None:
    """It stays on the topic, where everybody else reads it; here nobody could be told of it."""
    metrics.UNREADABLE_RESULTS.labels("notifier").inc()
    _log.error("webhook_event.undecodable", partition=delivery.partition, offset=delivery.offset, error=error)

"""Intake: queues a batch of result events for the subscribed endpoints, in one statement, then commits the offsets.

An event that is received again is recognized by its id and queued once. An endpoint gets events appended after it was added.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from forwarder.notifier.events import Event, decode_event
from forwarder.notifier.parts import NotifierParts
from forwarder.observability import metrics
from forwarder.process.containment import FAULTS, Blame, Fault, Where, as_fault, by_halves
from forwarder.process.loops import keep_trying
from forwarder.store.deliveries import NewDelivery
from forwarder.store.submissions.port import StoreUnavailable, Unstorable
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.codec import Undecodable, is_outcome
from forwarder.topics.port import ConsumedMessage, Consumer, LogUnavailable

if TYPE_CHECKING:
    pass

_log = structlog.get_logger(__name__)

_OUTAGES = (StoreUnavailable, TenancyUnavailable, LogUnavailable)

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
        settings, enabled = self._parts.settings, False
        messages = await consumer.receive(max_messages=settings.intake_batch, wait_seconds=settings.intake_wait_seconds)
        if not messages:
            return
        queued: list[NewDelivery] = []

        async def queue(received: Sequence[_Received]) -> None:
            queued.extend(await self._queue_wanted(received))

        async def any_enabled() -> None:
            nonlocal enabled
            enabled = await self._parts.endpoints.any_enabled()

        await self._through_outages(any_enabled)
        # Without any endpoint nothing needs to be decoded.
        if received := list(_decoded(messages)) if enabled else ():
            await by_halves(
                queue,
                received,
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

    async def _queue_wanted(self, received: Sequence[_Received]) -> Sequence[NewDelivery]:
        wanted: list[NewDelivery] = []

        async def step() -> None:
            events = [(message, event or decode_event(message.message)) for message, event in received]
            endpoints = await self._parts.endpoints.enabled_of({event.workspace_id for _, event in events})
            wanted[:] = [
                NewDelivery(endpoint.id, event.id, event.type, event.body, event.trace)
                for message, event in events
                for endpoint in endpoints
                if endpoint.workspace_id == event.workspace_id
                and endpoint.takes(kind=event.type, account_id=event.account_id, property_id=event.property_id)
                and message.timestamp_ms >= int(endpoint.created_at.timestamp() * 1000)
            ]
            await self._parts.queue.queue(wanted, now=self._parts.clock.now())

        await self._through_outages(step)
        return wanted

    async def _through_outages(self, step: Callable[[], Awaitable[None]]) -> None:
        await keep_trying(step, name=Where.WEBHOOK_INTAKE, clock=self._parts.clock, outages=_OUTAGES[:2])


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

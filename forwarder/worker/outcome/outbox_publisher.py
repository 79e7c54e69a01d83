"""Result events, from the outbox to the results topic: at least once each, with a stable id.

What was just recorded is published from memory; what a crash or an outage left behind is found in the outbox and published again.
Only an event whose turn it is goes out from memory: otherwise it might overtake an earlier one of its submission, and so it waits
for that one in the outbox. A failure's dead letter goes out just before its event.
"""

from collections.abc import Sequence
from datetime import timedelta

import structlog

from forwarder.observability import metrics
from forwarder.operations.dead_letter_messages import letter_message
from forwarder.process.batching import Batcher
from forwarder.process.clock import Clock
from forwarder.store.submissions.port import Recorder, StoreUnavailable
from forwarder.store.submissions.work import OutboxEvent
from forwarder.topics.codec import encode_result
from forwarder.topics.port import LogUnavailable, Publisher, Topics
from forwarder.worker.parts import WorkerSettings

_log = structlog.get_logger(__name__)

_FIRST = 1
_BATCH = 500
_MAX_IN_MEMORY = 20_000


class OutboxPublisher:
    """Publishes events and then deletes them from the outbox: many at once, since a statement's cost hardly depends on how many it
    deletes. Those that a crash keeps from being deleted are published once more."""

    def __init__(
        self, recorder: Recorder, publisher: Publisher, topics: Topics, clock: Clock, settings: WorkerSettings
    ) -> None:
        self._recorder = recorder
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._republish_seconds = settings.republish_seconds
        self._in_memory = 0
        self._batches: Batcher[OutboxEvent, None] = Batcher(
            self._publish, max_items=_BATCH, pause_seconds=settings.pause_seconds
        )
        self._published: set[tuple[str, int]] = set()
        self._to_delete: Batcher[OutboxEvent, None] = Batcher(
            self._delete, max_items=_MAX_IN_MEMORY, pause_seconds=settings.delete_pause_seconds
        )

    def publish_soon(self, events: Sequence[OutboxEvent]) -> None:
        """Publish with the next batch. While the log is away only so many are kept in memory; the outbox has them all."""
        for event in events:
            if self._in_turn(event) and self._in_memory < _MAX_IN_MEMORY:
                self._in_memory += 1
                self._batches.post(event)

    def _in_turn(self, entry: OutboxEvent) -> bool:
        """Whether those before it of its submission are published; each of them went out in its turn."""
        event = entry.event
        return entry.in_turn or event.revision == _FIRST or (event.request_id, event.revision - 1) in self._published

    async def drain(self) -> None:
        """Return once everything so far was published, or given back to the outbox."""
        await self._batches.drain()
        await self._to_delete.drain()

    async def republish(self) -> None:
        """Wait a while; then publish what was recorded a while ago and is still in the outbox."""
        await self._clock.sleep(self._republish_seconds / 2)
        now = self._clock.now()
        before = now - timedelta(seconds=self._republish_seconds)
        entries = await self._recorder.republish(before=before, now=now, limit=_BATCH)
        metrics.UNPUBLISHED_RESULTS.set(len(entries))
        if entries:
            _log.info("results.republished", count=len(entries))
            await self._publish_now(entries)
            await self._recorder.published([entry.id for entry in entries])

    async def _publish(self, events: Sequence[OutboxEvent]) -> Sequence[None]:
        try:
            await self._publish_now(events)
        except LogUnavailable as error:
            _log.warning("results.left_in_outbox", count=len(events), error=str(error))
        else:
            for entry in events:
                self._published.add((entry.event.request_id, entry.event.revision))
                self._to_delete.post(entry)
        finally:
            self._in_memory -= len(events)
        return [None] * len(events)

    async def _delete(self, events: Sequence[OutboxEvent]) -> Sequence[None]:
        try:
            await self._recorder.published([entry.id for entry in events])
        except StoreUnavailable as error:
            _log.warning("results.left_in_outbox", count=len(events), error=str(error))
        finally:
            self._published.difference_update((entry.event.request_id, entry.event.revision) for entry in events)
        return [None] * len(events)

    async def _publish_now(self, events: Sequence[OutboxEvent]) -> None:
        letters = [letter_message(entry.dead_letter) for entry in events if entry.dead_letter is not None]
        if letters:
            await self._publisher.publish(self._topics.dead_letters, letters)
            metrics.DEAD_LETTERS.inc(len(letters))
        await self._publisher.publish(self._topics.results, [encode_result(entry.event) for entry in events])
        metrics.RESULTS_PUBLISHED.inc(len(events))

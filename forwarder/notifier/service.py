"""The notifier: its loops, how they start, and how they stop cleanly.

Its intake queues a batch of result events for the subscribed endpoints, in one statement, then commits the offsets. An event that
is received again is recognized by its id and queued once. An endpoint gets events appended after it was added.

Its dispatcher posts what is due. A failing endpoint is paused for a while and then tried with a single post, until one succeeds.
One that hangs delays only its own posts; even if many hang, half of the places are reserved for the others. How long an endpoint
has been failing is known to this process alone.

On SIGTERM it receives and claims nothing more, lets running posts end within the grace period, and records them. A delivery whose
notifier is killed is due again when its claim expires."""

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

import structlog

from forwarder.notifier.posting import Decision, Event, NotifierParts, NotifierSettings, Poster, decode_event
from forwarder.observability import metrics
from forwarder.oversight.audit import OUTAGES
from forwarder.process import loops
from forwarder.process.clock import Clock
from forwarder.process.loops import FAULTS, Blame, Fault, Outage, Where, cancel_all, contained, forever
from forwarder.store.deliveries import NewDelivery
from forwarder.store.submissions.port import StoreUnavailable, Unstorable
from forwarder.tenancy.port import CannotOpen, TenancyUnavailable
from forwarder.topics.codec import Undecodable, is_outcome
from forwarder.topics.port import ConsumedMessage, Consumer, read_last

_UNBROKEN_SECONDS: Final = 3600.0
"""Failed posts no further apart are one unbroken failure: longer than any backoff, and the wait for a place after it."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _EndpointBackoff:
    """`failing_since`: the first of an unbroken series of failures. `failed_at`, `failed_wall`: the last, by either clock."""

    failures: int = 0
    until: float = -math.inf
    failing_since: float = math.inf
    failed_at: float = -math.inf
    failed_wall: float = -math.inf


class Backoff:
    """The state of the endpoints whose last post failed."""

    def __init__(self, clock: Clock, settings: NotifierSettings) -> None:
        self._clock, self._settings = clock, settings
        self.failing: dict[str, _EndpointBackoff] = {}

    def is_waiting(self, endpoint_id: str) -> bool:
        state = self.failing.get(endpoint_id)
        return state is not None and self._clock.monotonic() < state.until

    def failing_seconds(self, endpoint_id: str) -> float:
        """How long every post of this process to it has failed, without the time of outages on our side."""
        now, state = self._clock.monotonic(), self.failing.get(endpoint_id)
        if state is None:
            return 0.0
        # By the wall clock too: if it jumped, the time between two attempts is uncertain.
        since_last = max(now - state.failed_at, self._clock.now().timestamp() - state.failed_wall)
        return max(now - state.failing_since, 0.0) if since_last <= _UNBROKEN_SECONDS else 0.0

    def record_failure(
        self, endpoint_id: str, *, retry_after_seconds: float = 0.0, endpoint_failed: bool = False
    ) -> None:
        """Leave it alone: for 1 s, twice as long each time, or as long as it asked for. `endpoint_failed`: every post to it failed;
        otherwise the fault was ours, or it accepted some."""
        state = self.failing.setdefault(endpoint_id, _EndpointBackoff())
        if endpoint_failed:
            if not self.failing_seconds(endpoint_id):
                state.failing_since = self._clock.monotonic()
            state.failed_at, state.failed_wall = self._clock.monotonic(), self._clock.now().timestamp()
        else:
            state.failing_since = math.inf
        state.failures += 1
        exponential = min(2.0 ** min(state.failures - 1, 16), self._settings.max_backoff_seconds)
        asked_for = min(retry_after_seconds, self._settings.max_retry_after_seconds)
        state.until = self._clock.monotonic() + max(exponential, asked_for)


class EndpointDispatcher:
    """Posts to the endpoints that have something due, at most once at a time for each. `stopping` ends runs after their posts."""

    def __init__(self, parts: NotifierParts, poster: Poster) -> None:
        self._parts, self._poster = parts, poster
        self.backoff = Backoff(parts.clock, parts.settings)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failing: set[str] = set()
        self.stopping = False
        self._crowded = False
        """Whether a working endpoint found no place last time. Then runs end after a few posts, so that others get a turn."""

    def start(self, endpoint_ids: Iterable[str]) -> None:
        """Starts runs for these endpoints. Endpoints that are backed off, running already or without a place stay due."""
        wanted = [one for one in endpoint_ids if one not in self._running and not self.backoff.is_waiting(one)]
        random.shuffle(wanted)  # so that it is not always the same ones that find no place
        wanted.sort(key=self.backoff.failing.__contains__)
        self._crowded, places = False, self._parts.settings.max_endpoints
        for endpoint_id in wanted:
            failing = endpoint_id in self.backoff.failing
            if len(self._running) >= places or (failing and len(self._failing) >= places // 2):
                self._crowded = not failing
                return
            if failing:
                self._failing.add(endpoint_id)
            task = self._running[endpoint_id] = loops.detached(self.run(endpoint_id))
            task.add_done_callback(partial(self._end, endpoint_id))

    def _end(self, endpoint_id: str, ended: asyncio.Future[None]) -> None:
        del self._running[endpoint_id]
        self._failing.discard(endpoint_id)
        if not ended.cancelled() and (error := ended.exception()) is not None:
            contained(Where.WEBHOOK_ENDPOINT, error, endpoint_id=endpoint_id)

    async def finish(self, seconds: float) -> int:
        """Wait up to `seconds` for the runs to end, then cancel the rest. Returns how many were cancelled."""
        if not self._running:
            return 0
        _, late = await asyncio.wait(list(self._running.values()), timeout=seconds)
        await cancel_all(late)
        return len(late)

    async def run(self, endpoint_id: str) -> None:
        """Posts the due deliveries, a few at a time, until nothing is due or the endpoint fails. A claimed delivery that could not
        be recorded is due again when its claim expires. Does not raise: an endpoint whose run fails is paused for a while."""
        try:
            while await self._post_some(endpoint_id) and not (self.stopping or self._crowded):
                pass
        except CannotOpen as error:
            seconds = self._parts.settings.max_retry_after_seconds
            self.backoff.record_failure(endpoint_id, retry_after_seconds=seconds)
            _log.error("webhook.secret_not_readable", endpoint_id=endpoint_id, error=str(error))
        except (StoreUnavailable, TenancyUnavailable) as error:
            self.backoff.record_failure(endpoint_id)
            _log.warning("webhook.interrupted", endpoint_id=endpoint_id, error=str(error))
        except FAULTS as error:  # as said
            self.backoff.record_failure(endpoint_id)
            contained(Where.WEBHOOK_ENDPOINT, error, endpoint_id=endpoint_id)

    async def _post_some(self, endpoint_id: str) -> bool:
        """Posts one batch; whether to continue. Reads the endpoint each time: a new URL or secret has effect at once."""
        queue, settings = self._parts.queue, self._parts.settings
        endpoint = await self._parts.endpoints.endpoint(endpoint_id)
        if endpoint is None or not endpoint.enabled:
            await queue.stop(endpoint_id, now=self._parts.clock.now())
            return False
        opened, now = self._poster.opened(endpoint), self._parts.clock.now()
        count = 1 if endpoint_id in self.backoff.failing else settings.in_flight
        until = now + timedelta(seconds=2 * settings.post_seconds)
        if not (claimed := await queue.claim(endpoint_id, now=now, until=until, limit=count)):
            return False
        failing = self.backoff.failing_seconds(endpoint_id)
        posts = (self._poster.post(opened, one, failing_seconds=failing) for one in claimed)
        decisions: list[Decision] = []
        for result in await asyncio.gather(*posts, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            decisions.append(result)
        await self._poster.disable_if_dead(endpoint, decisions)
        # A single success shows that the endpoint works; refused deliveries wait for their own next attempt.
        retry_after = max(each.retry_after_seconds for each in decisions)
        works = any(each.outcome == "delivered" for each in decisions)
        if works and not retry_after:
            self.backoff.failing.pop(endpoint_id, None)
        else:
            self.backoff.record_failure(endpoint_id, retry_after_seconds=retry_after, endpoint_failed=not works)
        return works and not retry_after


_Received = tuple[ConsumedMessage, Event | None]
"""A message and its event; None if decoding raised an unexpected exception."""


class Notifier:
    def __init__(self, parts: NotifierParts, *, jitter: Callable[[], float] = random.random) -> None:
        self._parts = parts
        self._consumer: Consumer | None = None
        self._outage = Outage(Where.WEBHOOK_EVENTS, parts.clock)
        """Of the loop whose step does not return while it works."""
        self.dispatcher = EndpointDispatcher(parts, Poster(parts, jitter=jitter))
        where, blame = Where.WEBHOOK_INTAKE, Blame(Where.WEBHOOK_INTAKE, parts.clock.sleep)
        outages = (StoreUnavailable, TenancyUnavailable)
        self._through_outages = partial(loops.keep_trying, name=where, clock=parts.clock, outages=outages)
        self._by_halves = partial(loops.by_halves, where=where, set_aside=_skip, outages=OUTAGES, blame=blame)
        self._changes = parts.queue.identity.changes

    def consuming(self) -> bool:
        return self._consumer is not None

    @property
    def unreadable(self) -> Mapping[int, int]:
        return {} if self._consumer is None else self._consumer.unreadable

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then stop cleanly. Loops go on after outages and faults."""
        run = partial(forever, clock=self._parts.clock, outages=OUTAGES)
        events = run(self._consume, name=Where.WEBHOOK_EVENTS, outage=self._outage)
        named = {Where.WEBHOOK_EVENTS: events, Where.WEBHOOK_SWEEP: run(self._sweep, name=Where.WEBHOOK_SWEEP)}
        running = [asyncio.create_task(loop, name=name) for name, loop in named.items()]
        try:
            await stop.wait()
        finally:
            self.dispatcher.stopping = True
            await cancel_all(running)
            cancelled = await self.dispatcher.finish(self._parts.settings.grace_seconds)
            _log.info("notifier.stopped", cancelled=cancelled)

    async def _consume(self) -> None:
        parts = self._parts
        async with parts.log.consumer(
            parts.topics.results, group=parts.settings.group, on_partitions=_any_partitions, on_gap=parts.on_gap
        ) as consumer:
            self._consumer = consumer
            try:
                while True:
                    await self.ingest_next(consumer)
                    self._outage.over()
            finally:
                self._consumer = None

    async def _sweep(self) -> None:
        """Starts runs for due deliveries: retries, and those that other notifiers queued or left behind. First queues what another
        database that took over may have lost."""
        parts, changes = self._parts, self._parts.queue.identity.changes
        if changes != self._changes:
            # The newest events: their deliveries may be missing, although their offsets are committed. Others are recognised.
            since_ms = int((parts.clock.now() - timedelta(hours=1)).timestamp() * 1000)
            newest = await read_last(parts.log, parts.topics.results, 1_000)  # as workers do
            events = [(each, event) for each, event in _decoded(newest) if event and each.timestamp_ms >= since_ms]
            for first in range(0, len(events), parts.settings.intake_batch):
                await self._queue_wanted(events[first : first + parts.settings.intake_batch])
            self._changes = changes
        self.dispatcher.start(await parts.queue.endpoints_due(now=parts.clock.now()))
        await parts.clock.sleep(parts.settings.sweep_seconds)

    async def ingest_next(self, consumer: Consumer) -> None:
        """Receives a batch, queues, commits. Raises `LogUnavailable`; and `Unworkable` if nothing can be queued, without
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
            await self._by_halves(queue, list(_decoded(messages)), refusals=(Unstorable,), refused=_skip)
        await consumer.commit(messages)
        metrics.WEBHOOKS_QUEUED.inc(len(queued))
        self.dispatcher.start(dict.fromkeys(one.endpoint_id for one in queued))
        if not queued and len(messages) < settings.intake_batch:
            # Without subscribers an occasional batch is enough: each costs a commit.
            await self._parts.clock.sleep(settings.idle_seconds)

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


def _decoded(messages: Sequence[ConsumedMessage]) -> Iterable[_Received]:
    for message in messages:
        try:
            if is_outcome(message.message):
                yield message, decode_event(message.message)
        except Undecodable as error:
            _log_unreadable(message, str(error))
        except FAULTS as error:
            loops.as_fault(error)
            yield message, None


async def _skip(received: _Received, why: Fault | Exception) -> None:
    _log_unreadable(received[0], f"the store cannot hold it: {why}" if isinstance(why, Exception) else str(why))


def _log_unreadable(message: ConsumedMessage, error: str) -> None:
    metrics.UNREADABLE_RESULTS.labels("notifier").inc()
    _log.error("webhook_event.undecodable", partition=message.partition, offset=message.offset, error=error)


async def _any_partitions(partitions: frozenset[int]) -> None:
    """Logs the assignment. Nothing else depends on it, because an event is queued only once."""
    _log.info("webhook_partitions.assigned", partitions=sorted(partitions))

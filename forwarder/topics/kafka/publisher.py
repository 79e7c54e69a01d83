"""Appends to Kafka with an idempotent producer that waits for all in-sync replicas and is replaced when it is broken. Messages are
gathered into record batches here rather than by aiokafka: a batch that a topic refuses for its size must be the only one in flight
to its partition, so that it can be sent again in pieces, in order. The cost of publishing, here and in the brokers, depends on the
number of requests, and of batches in them, far more than on the number of messages."""

import asyncio
import copy
import logging
import math
from asyncio import Future
from collections import deque
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer, errors
from aiokafka.errors import KafkaError

from forwarder.process.loops import detached
from forwarder.topics import port
from forwarder.topics.kafka.admin import kafka_admin
from forwarder.topics.kafka.connection import KafkaConnection, milliseconds, reaching_kafka, unavailable
from forwarder.topics.kafka.internals import abandon_producer, make_closable, metadata_task, take_back_numbers
from forwarder.topics.port import LogUnavailable, Message, MessageTooLarge

_log = logging.getLogger(__name__)
_BURST = 3  # messages sent together; with fewer there is little to share
_LIMIT_SECONDS = 60.0

# Brokers refuse a batch that is larger than the topic or its segments allow, as a whole.
_TooLarge = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)


class KafkaPublisher:
    """See `port.Publisher`. Partitions by murmur2 of the key, like other clients. After the time limit the messages may still be
    stored: an idempotent producer keeps trying. The queue is limited to two batches for each partition, one of them in flight;
    beyond that `publish` waits, within its time limit. Concurrent calls share batches, and wait at most four milliseconds for
    that."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._accumulator: BatchAccumulator | None = None
        self._starting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._failed_at = -math.inf
        self._limits: dict[str, tuple[int | None, float]] = {}
        """The maximum message size of topics in bytes, None if the brokers do not report it; and when that was asked."""

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        never = port.too_large(messages)
        sizes = {} if never is None else dict(never.sizes)
        sent = [each for index, each in enumerate(messages) if index not in sizes] if sizes else messages
        refused = await self._send(topic, sent) if sent else ()
        if refused:
            sizes |= {index: each.size for index, each in enumerate(messages) if id(each) in refused}
        if not sizes:
            return
        limit, asked_at = self._limits.get(topic, (None, -math.inf))
        now = asyncio.get_running_loop().time()
        if refused and now - asked_at >= _LIMIT_SECONDS:
            with suppress(LogUnavailable, KeyError, ValueError):
                async with kafka_admin(self._connection) as admin:
                    limit = int((await admin.settings(topic))["max.message.bytes"])
            self._limits[topic] = (limit, now)
        raise MessageTooLarge(sizes, limit if refused else port.MAX_MESSAGE_BYTES)

    async def _send(self, topic: str, messages: Sequence[Message]) -> Collection[int]:
        """Publishes; returns the ids of messages that were refused for their size. Raises `LogUnavailable`."""
        within = self._connection.publish_timeout_seconds
        until = asyncio.get_running_loop().time() + within
        accumulator = self._current()
        try:
            if accumulator is None:
                async with asyncio.timeout_at(until):
                    accumulator = await self.accumulator()
            refused = await accumulator.publish(topic, messages, until)
        except (KafkaError, OSError) as error:
            # A failed batch leaves a gap in the sequence numbers by which brokers recognise duplicates, and they refuse what comes
            # after it; a new producer starts a new sequence. If there was no room in time, or no such topic, it had no number yet.
            unnumbered = isinstance(error, OSError | errors.KafkaTimeoutError | errors.UnknownTopicOrPartitionError)
            if accumulator is not None and not unnumbered:
                self._replace(accumulator)
            self._current()
            self._failed_at = asyncio.get_running_loop().time()
            raise unavailable(f"publish to {topic}", within, error) from error
        self._failed_at = -math.inf
        return refused

    async def ready(self) -> bool:
        if asyncio.get_running_loop().time() - self._failed_at < port.UNREADY_SECONDS:
            return False
        try:
            async with reaching_kafka("ask for metadata", within=0.8):
                accumulator = await self.accumulator()
                return bool(await accumulator.producer.client.force_metadata_update())
        except LogUnavailable:
            return False

    def partition(self, topic: str, key: str) -> int | None:
        partitions = 0 if self._accumulator is None else self._accumulator.partitions(topic)
        return port.partition_of(key.encode(), partitions) if partitions else None

    async def accumulator(self) -> "BatchAccumulator":
        """The current producer's accumulator. Starts a producer if there is none: at first, or after a broken one."""
        if (current := self._current()) is not None:
            return current
        async with self._starting:
            if self._accumulator is None:
                producer = AIOKafkaProducer(
                    **self._connection.arguments,
                    enable_idempotence=True,
                    acks="all",
                    linger_ms=0,
                    # For one partition: well below the 1 MB a broker takes by default, and half of its queue.
                    max_batch_size=256 * 1024,
                    max_request_size=port.MAX_MESSAGE_BYTES + 16 * 1024,
                    request_timeout_ms=milliseconds(self._connection.request_timeout_seconds),
                )
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._accumulator = BatchAccumulator(producer, pause_seconds=0.004)
            return self._accumulator

    async def close(self) -> None:
        """Closes the producer, and those it replaced, once they have published their messages."""
        if self._accumulator is not None:
            self._replace(self._accumulator)
        if self._closing:
            await asyncio.wait(self._closing)

    def _current(self) -> "BatchAccumulator | None":
        """The current producer's accumulator; None if there is none. Replaces an unusable one: called before each publish and after
        a failed one, because readiness may never be checked."""
        if self._accumulator is not None and self._accumulator.metadata.done():
            self._replace(self._accumulator)
        return self._accumulator

    def _replace(self, accumulator: "BatchAccumulator") -> None:
        if self._accumulator is accumulator:
            self._accumulator = None
            task = asyncio.create_task(self._stop(accumulator))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _stop(self, accumulator: "BatchAccumulator") -> None:
        """Publishes the remaining messages, and closes the producer. Gives up messages that it cannot publish in time."""
        producer, connection = accumulator.producer, self._connection
        try:
            async with asyncio.timeout(connection.publish_timeout_seconds):
                await accumulator.drain()
                make_closable(producer.client)
                await producer.stop()
        except TimeoutError:
            _log.warning(
                "kafka producer closed before everything was acknowledged", extra={"client": connection.client_id}
            )
            await abandon_producer(producer, within=connection.request_timeout_seconds)


class _Batch:
    """Messages for one partition, until they are acknowledged. `builder` is aiokafka's."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.messages: list[Message] = []
        self.refused: set[int] = set()  # the messages that are too large for the topic, by `id`
        self._done = False
        self._error: BaseException | None = None
        self._waiters: list[Future[None]] = []

    def add(self, message: Message) -> bool:
        """Adds `message` if there is room, as always for the first one; False otherwise."""
        headers = list(message.headers)
        if self.builder.append(timestamp=None, key=message.key, value=message.value, headers=headers) is None:
            return False
        self.messages.append(message)
        return True

    def complete(self, error: BaseException | None) -> None:
        self._done, self._error = True, error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def acknowledged(self, until: float | None = None) -> None:
        """Returns once it is complete. Raises its error, or `TimeoutError` at `until`, on the loop's clock."""
        if not self._done:
            loop = asyncio.get_running_loop()
            waiter: Future[None] = loop.create_future()
            self._waiters.append(waiter)

            def expire() -> None:
                if not waiter.done():
                    waiter.set_exception(TimeoutError())

            # A timer of its own costs a third of what `asyncio.timeout` does.
            timer = None if until is None else loop.call_at(until, expire)
            try:
                await waiter
            finally:
                if timer is not None:
                    timer.cancel()
        if self._error is not None:
            raise copy.copy(self._error)  # each waiter raises its own copy, with a traceback of its own


@dataclass(eq=False, slots=True)
class _PartitionQueue:
    """The batch of one partition that is being filled, and the one before it that is in flight. `room` is set when the batch that
    was being filled is sent."""

    topic: str
    partition: int
    filling: _Batch | None = None
    in_flight: _Batch | None = None
    room: asyncio.Event = field(default_factory=asyncio.Event)


class BatchAccumulator:
    """Sends the batches of one producer. Each partition has at most one in flight; messages that come meanwhile fill the next.
    Ready messages are sent together and at once, so that they share requests. Only after a burst does the next send wait, until
    `pause_seconds` have passed. So single messages never wait, and bursts share requests."""

    def __init__(self, producer: AIOKafkaProducer, *, pause_seconds: float) -> None:
        self.producer = producer
        self.metadata = metadata_task(producer.client)
        self._pause_seconds = pause_seconds
        self._loop = asyncio.get_running_loop()
        self._queues: dict[tuple[str, int], _PartitionQueue] = {}
        self._partitions: dict[str, int] = {}  # looked up again after each send
        self._not_before = 0.0
        self._next_send: asyncio.Handle | None = None
        self._sends: set[asyncio.Task[None]] = set()

    def partitions(self, topic: str) -> int:
        """The number of partitions of `topic` that the client knows; 0 if it knows none."""
        known = self._partitions.get(topic)
        if known is None:
            known = self._partitions[topic] = len(self.producer.client.cluster.partitions_for_topic(topic) or ())
        return known

    async def publish(self, topic: str, messages: Sequence[Message], until: float) -> Collection[int]:
        """Returns once all of `messages` are acknowledged or refused for their size: the ids of the refused ones. Messages of
        one key are stored in order. Raises `KafkaError`, or `TimeoutError` at `until`, on the loop's clock. Then, and after a
        cancellation, some of them may still be published."""
        partitions = self.partitions(topic)
        if not partitions:
            async with asyncio.timeout_at(until):
                partitions = len(await self.producer.partitions_for(topic))
        joined: dict[_Batch, None] = {}
        for message in messages:
            partition = port.partition_of(message.key, partitions, message.partition)
            queue = self._queues.get((topic, partition))
            if queue is None:
                queue = self._queues[topic, partition] = _PartitionQueue(topic, partition)
            while True:
                if queue.filling is None:
                    queue.filling = _Batch(self.producer.create_batch())
                    if queue.in_flight is None:
                        self._schedule_send()
                if queue.filling.add(message):
                    break
                queue.room.clear()
                async with asyncio.timeout_at(until):
                    await queue.room.wait()
            joined[queue.filling] = None
        for batch in joined:
            await batch.acknowledged(until)
        return {each for batch in joined for each in batch.refused}

    async def drain(self) -> None:
        """Returns once every queued message is acknowledged or has failed. Ends the pause, and disables others."""
        self._pause_seconds = self._not_before = 0.0
        if self._next_send is not None:
            self._next_send.cancel()
            self._next_send = None
        while held := [batch for queue in self._queues.values() for batch in (queue.filling, queue.in_flight) if batch]:
            self._schedule_send()
            for batch in held:
                with suppress(Exception):
                    await batch.acknowledged()

    def _schedule_send(self) -> None:
        if self._next_send is None:
            self._next_send = self._loop.call_at(self._not_before, lambda: self._start(self._send_ready()))

    def _start(self, sending: Coroutine[Any, Any, None]) -> None:
        task = detached(sending)
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)

    async def _send_ready(self) -> None:
        self._next_send = None
        self._partitions.clear()
        count = 0
        for queue in tuple(self._queues.values()):
            batch = queue.filling
            if batch is not None and queue.in_flight is None:
                # No message may be added from here on: aiokafka numbers a batch before it writes it out.
                queue.filling, queue.in_flight = None, batch
                queue.room.set()
                count += len(batch.messages)
                try:
                    future = await self.producer.send_batch(batch.builder, queue.topic, partition=queue.partition)
                except Exception as error:  # noqa: BLE001 - any error is raised by the waiters
                    self._complete(queue, batch, error)
                else:
                    future.add_done_callback(partial(self._on_response, queue, batch))
        if count >= _BURST:
            self._not_before = self._loop.time() + self._pause_seconds

    def _on_response(self, queue: _PartitionQueue, batch: _Batch, future: Future[Any]) -> None:
        error = _error_of(future)
        if isinstance(error, _TooLarge):
            self._start(self._send_in_pieces(queue, batch))
        else:
            self._complete(queue, batch, error)

    async def _send_in_pieces(self, queue: _PartitionQueue, whole: _Batch) -> None:
        """Sends `whole`, which was refused for its size, in halves, down to single refused messages. It stays the batch in flight
        meanwhile, which keeps the order."""
        pieces = deque([whole.messages])
        error: BaseException | None = None
        try:
            while pieces:
                messages = pieces.popleft()
                if messages is not whole.messages:
                    batch = _Batch(self.producer.create_batch())
                    for message in messages:
                        batch.add(message)
                    future = await self.producer.send_batch(batch.builder, queue.topic, partition=queue.partition)
                    await asyncio.wait([future])
                    if (error := _error_of(future)) is None:
                        continue
                    if not isinstance(error, _TooLarge):
                        break
                take_back_numbers(self.producer, queue.topic, queue.partition, len(messages))
                error, middle = None, len(messages) // 2
                if middle:
                    pieces.extendleft((messages[middle:], messages[:middle]))
                else:
                    whole.refused.add(id(messages[0]))
        except Exception as failure:  # noqa: BLE001 - as in `_send_ready`
            error = failure
        self._complete(queue, whole, error)

    def _complete(self, queue: _PartitionQueue, batch: _Batch, error: BaseException | None) -> None:
        queue.in_flight = None
        batch.complete(error)
        if queue.filling is not None:
            self._schedule_send()


def _error_of(future: Future[Any]) -> BaseException | None:
    """The future's error. A cancelled future counts as a failure: its batch may or may not be stored."""
    return KafkaError("cancelled") if future.cancelled() else future.exception()

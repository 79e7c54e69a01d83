"""Appends to Kafka with an idempotent producer that waits for all in-sync replicas and is replaced when it is broken."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

from forwarder.topics.kafka.accumulator import BatchAccumulator
from forwarder.topics.kafka.admin import kafka_admin
from forwarder.topics.kafka.connection import KafkaConnection, connecting, milliseconds, reaching_kafka, unavailable
from forwarder.topics.kafka.internals import abandon_producer, make_closable
from forwarder.topics.port import MAX_MESSAGE_BYTES, LogUnavailable, Message, MessageTooLarge, too_large
from forwarder.topics.publishing import RecentFailure, partition_of

_log = logging.getLogger(__name__)
_BATCH_BYTES = (
    256 * 1024
)  # for one partition; well below the 1 MB a broker takes by default, and the limit of the queue
_PROTOCOL_BYTES = 16 * 1024
_READY_SECONDS = 0.8
_PAUSE_SECONDS = 0.010
_LIMIT_SECONDS = 60.0


class KafkaPublisher:
    """See `port.Publisher`. Partitions by murmur2 of the key, like other clients.

    After the time limit the messages may still be stored: an idempotent producer keeps trying. The queue is limited to two
    batches for each partition, one of them in flight; beyond that `publish` waits, within its time limit. Concurrent calls
    share batches, and wait at most ten milliseconds for that.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._accumulator: BatchAccumulator | None = None
        self._starting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._failure = RecentFailure()
        self._limits: dict[str, tuple[int | None, float]] = {}

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        never = too_large(messages)
        sizes = {} if never is None else dict(never.sizes)
        sent = [each for index, each in enumerate(messages) if index not in sizes] if sizes else messages
        refused = await self._send(topic, sent) if sent else ()
        sizes |= {index: each.size for index, each in enumerate(messages) if id(each) in refused} if refused else {}
        if sizes:
            raise MessageTooLarge(sizes, await self._limit_of(topic) if refused else MAX_MESSAGE_BYTES)

    async def _send(self, topic: str, messages: Sequence[Message]) -> Collection[int]:
        """Publishes; returns the ids of messages that were refused for their size. Raises `LogUnavailable`."""
        try:
            refused = await self._publish_one(topic, messages)
            if refused is None:
                async with reaching_kafka(_doing(topic), within=self._connection.publish_timeout_seconds):
                    refused = await self._publish_all(await self.accumulator(), topic, messages)
        except LogUnavailable:
            self._replace_if_unusable()
            self._failure.record_failure()
            raise
        self._failure.record_success()
        return refused

    async def _limit_of(self, topic: str) -> int | None:
        """The maximum message size of `topic` in bytes, at most a minute old; None if the brokers do not report it."""
        now = asyncio.get_running_loop().time()
        limit, asked_at = self._limits.get(topic, (None, -_LIMIT_SECONDS))
        if now - asked_at >= _LIMIT_SECONDS:
            with suppress(LogUnavailable, KeyError, ValueError):
                async with kafka_admin(self._connection) as admin:
                    limit = int((await admin.settings(topic))["max.message.bytes"])
            self._limits[topic] = (limit, now)
        return limit

    async def ready(self) -> bool:
        if self._failure.recent():
            return False
        try:
            async with reaching_kafka("ask for metadata", within=_READY_SECONDS):
                accumulator = await self.accumulator()
                return bool(await accumulator.producer.client.force_metadata_update())
        except LogUnavailable:
            return False

    def partition(self, topic: str, key: str) -> int | None:
        partitions = 0 if self._accumulator is None else self._accumulator.partitions(topic)
        return partition_of(key.encode(), partitions) if partitions else None

    async def accumulator(self) -> BatchAccumulator:
        """The current producer's accumulator. Starts a producer if there is none: at first, or after a broken one."""
        self._replace_if_unusable()
        if self._accumulator is None:
            async with self._starting:
                if self._accumulator is None:
                    limit = self._connection.publish_timeout_seconds
                    producer = await _start(self._connection)
                    self._accumulator = BatchAccumulator(producer, pause_seconds=_PAUSE_SECONDS, limit_seconds=limit)
        return self._accumulator

    async def close(self) -> None:
        """Closes the producer, and those it replaced, once they have published their messages."""
        if self._accumulator is not None:
            self._replace(self._accumulator)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _publish_one(self, topic: str, messages: Sequence[Message]) -> Collection[int] | None:
        """The fast path of most calls: a single message that joins a batch at once, without a timer of its own. None if it
        cannot."""
        self._replace_if_unusable()
        accumulator = self._accumulator
        enqueued = accumulator.enqueue(topic, messages[0]) if accumulator is not None and len(messages) == 1 else None
        if accumulator is None or enqueued is None:
            return None
        batch, acknowledged = enqueued
        try:
            await acknowledged
        except (KafkaError, OSError) as error:
            self._replace_after(error, accumulator)
            raise unavailable(_doing(topic), self._connection.publish_timeout_seconds, error) from error
        return batch.refused

    async def _publish_all(
        self, accumulator: BatchAccumulator, topic: str, messages: Sequence[Message]
    ) -> Collection[int]:
        try:
            return await accumulator.publish(topic, messages)
        except KafkaError as error:
            self._replace_after(error, accumulator)
            raise

    def _replace_after(self, error: Exception, accumulator: BatchAccumulator) -> None:
        if _leaves_a_gap(error):
            self._replace(accumulator)

    def _replace_if_unusable(self) -> None:
        """Replaces an unusable producer. Called before each publish and after a failed one, because readiness may never be
        checked."""
        if self._accumulator is not None and not self._accumulator.usable:
            self._replace(self._accumulator)

    def _replace(self, accumulator: BatchAccumulator) -> None:
        if self._accumulator is accumulator:
            self._accumulator = None
            task = asyncio.create_task(_stop(accumulator, self._connection))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


@asynccontextmanager
async def kafka_publisher(connection: KafkaConnection) -> AsyncIterator[KafkaPublisher]:
    """Connected on entry, else `LogUnavailable`. On exit, publishes or gives up the queued messages within the time limit."""
    publisher = KafkaPublisher(connection)
    try:
        async with connecting(connection, "connect a producer", within=connection.publish_timeout_seconds):
            await publisher.accumulator()
        yield publisher
    finally:
        await publisher.close()


async def _start(connection: KafkaConnection) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(
        **connection.arguments,
        enable_idempotence=True,
        acks="all",
        linger_ms=0,
        max_batch_size=_BATCH_BYTES,
        max_request_size=MAX_MESSAGE_BYTES + _PROTOCOL_BYTES,
        request_timeout_ms=milliseconds(connection.request_timeout_seconds),
    )
    try:
        await producer.start()
    except BaseException:
        await producer.stop()
        raise
    return producer


async def _stop(accumulator: BatchAccumulator, connection: KafkaConnection) -> None:
    """Publishes the remaining messages, and closes the producer. Gives up messages that it cannot publish in time."""
    producer = accumulator.producer
    try:
        async with asyncio.timeout(connection.publish_timeout_seconds):
            await accumulator.drain()
            make_closable(producer.client)
            await producer.stop()
    except TimeoutError:
        _log.warning("kafka producer closed before everything was acknowledged", extra={"client": connection.client_id})
        await abandon_producer(producer, within=connection.request_timeout_seconds)


def _doing(topic: str) -> str:
    return f"publish to {topic}"


def _leaves_a_gap(error: Exception) -> bool:
    """Whether the producer is unusable after `error`.

    A failed batch leaves a gap in the sequence numbers by which brokers recognise duplicates, and they refuse everything after it;
    a new producer starts a new sequence. If there was no room in time, or no such topic, the batch had no number yet.
    """
    return isinstance(error, KafkaError) and not isinstance(error, KafkaTimeoutError | UnknownTopicOrPartitionError)

"""Appending to Kafka: an idempotent producer that waits for all in-sync replicas, and is replaced when it is broken.

Touches Kafka alone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

from forwarder.topics.kafka.batches import BatchAccumulator
from forwarder.topics.kafka.connection import (
    KafkaConnection,
    closable,
    lost_track,
    milliseconds,
    reaching_kafka,
    unavailable,
)
from forwarder.topics.port import MAX_MESSAGE_BYTES, LogUnavailable, Message, refuse_too_large
from forwarder.topics.readiness import RecentFailure

_log = logging.getLogger(__name__)
_BATCH_BYTES = 256 * 1024  # for one partition; well below what a broker takes (1 MB), and the bound of what can pile up
_PROTOCOL_ROOM = 16 * 1024
_READY_SECONDS = 0.8
_PAUSE_SECONDS = 0.010


class KafkaPublisher:
    """See `port.Publisher`. Partitions by murmur2 of the key, as other clients do.

    When a time limit passes, the messages may still be stored later: an idempotent producer goes on trying. What waits
    is bounded by two batches for each partition, one of them under way; beyond it `publish` waits, for no longer than
    its time limit. Calls that come close upon each other share batches, and wait ten milliseconds for it at most.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._batches: BatchAccumulator | None = None
        self._starting = asyncio.Lock()
        self._retirements: set[asyncio.Task[None]] = set()
        self._failure = RecentFailure()

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        refuse_too_large(messages)
        try:
            if not await self._publish_alone(topic, messages):
                async with reaching_kafka(_doing(topic), within=self._connection.publish_timeout_seconds):
                    await self._deliver(await self.started(), topic, messages)
        except LogUnavailable:
            self._retire_where_lost()
            self._failure.happened()
            raise
        self._failure.over()

    async def ready(self) -> bool:
        if self._failure.recent():
            return False
        try:
            async with reaching_kafka("ask for metadata", within=_READY_SECONDS):
                batches = await self.started()
                return bool(await batches.producer.client.force_metadata_update())
        except LogUnavailable:
            return False

    async def started(self) -> BatchAccumulator:
        """Those of the producer in use: started now where there is none, at first or after a broken one."""
        self._retire_where_lost()
        if self._batches is None:
            async with self._starting:
                if self._batches is None:
                    limit = self._connection.publish_timeout_seconds
                    producer = await _start(self._connection)
                    self._batches = BatchAccumulator(producer, pause_seconds=_PAUSE_SECONDS, limit_seconds=limit)
        return self._batches

    async def close(self) -> None:
        """Let go of the producer, and of those it replaced, once they have delivered what they hold."""
        if self._batches is not None:
            self._retire(self._batches)
        if self._retirements:
            await asyncio.wait(self._retirements)

    async def _publish_alone(self, topic: str, messages: Sequence[Message]) -> bool:
        """What most calls ask for, one message that can join a batch at once: without a timer for it. Whether it was that."""
        self._retire_where_lost()
        batches = self._batches
        acknowledged = batches.add(topic, messages[0]) if batches is not None and len(messages) == 1 else None
        if batches is None or acknowledged is None:
            return False
        try:
            await acknowledged
        except (KafkaError, OSError) as error:
            self._look_into(error, batches)
            raise unavailable(_doing(topic), self._connection.publish_timeout_seconds, error) from error
        return True

    async def _deliver(self, batches: BatchAccumulator, topic: str, messages: Sequence[Message]) -> None:
        try:
            await batches.deliver(topic, messages)
        except KafkaError as error:
            self._look_into(error, batches)
            raise

    def _look_into(self, error: Exception, batches: BatchAccumulator) -> None:
        if _leaves_a_gap(error):
            self._retire(batches)

    def _retire_where_lost(self) -> None:
        """Whoever publishes looks, before and after a failure: a process need not be asked whether it is ready."""
        if self._batches is not None and lost_track(self._batches.producer.client):
            self._retire(self._batches)

    def _retire(self, batches: BatchAccumulator) -> None:
        if self._batches is batches:
            self._batches = None
            task = asyncio.create_task(_stop(batches, self._connection))
            self._retirements.add(task)
            task.add_done_callback(self._retirements.discard)


@asynccontextmanager
async def kafka_publisher(connection: KafkaConnection) -> AsyncIterator[KafkaPublisher]:
    """Connected at entering, else `LogUnavailable`; at leaving, what was handed over is delivered or given up in time."""
    publisher = KafkaPublisher(connection)
    try:
        async with reaching_kafka("connect a producer", within=connection.publish_timeout_seconds):
            await publisher.started()
        yield publisher
    finally:
        await publisher.close()


async def _start(connection: KafkaConnection) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(
        bootstrap_servers=connection.bootstrap_servers,
        client_id=connection.client_id,
        enable_idempotence=True,
        acks="all",
        linger_ms=0,
        max_batch_size=_BATCH_BYTES,
        max_request_size=MAX_MESSAGE_BYTES + _PROTOCOL_ROOM,
        request_timeout_ms=milliseconds(connection.request_timeout_seconds),
    )
    try:
        await producer.start()
    except BaseException:
        await producer.stop()
        raise
    return producer


async def _stop(batches: BatchAccumulator, connection: KafkaConnection) -> None:
    """Deliver what they hold, and close their producer. What cannot be delivered in time is given up."""
    producer = batches.producer
    try:
        async with asyncio.timeout(connection.publish_timeout_seconds):
            await batches.drain()
            closable(producer.client)
            await producer.stop()
    except TimeoutError:
        _log.warning("kafka producer closed before everything was acknowledged", extra={"client": connection.client_id})
        await _abandon(producer, connection.request_timeout_seconds)


async def _abandon(producer: AIOKafkaProducer, within: float) -> None:
    """Close without flushing, which aiokafka has no word for: its `stop` waits for brokers for ever."""
    producer._closed = True  # noqa: SLF001 - it warns of producers that are dropped without `stop`
    try:
        async with asyncio.timeout(within):
            await producer._sender.close()  # noqa: SLF001 - the task that goes on trying
    except TimeoutError:
        _log.warning("kafka producer left a request unanswered")
    finally:
        await closable(producer.client).close()


def _doing(topic: str) -> str:
    return f"publish to {topic}"


def _leaves_a_gap(error: Exception) -> bool:
    """Whether the producer can no longer be used.

    A batch that failed leaves a gap in the numbers by which brokers tell batches apart, and they refuse all that
    follow; a new producer counts anew. No room in time, or no such topic, fails before there is a number.
    """
    return isinstance(error, KafkaError) and not isinstance(error, KafkaTimeoutError | UnknownTopicOrPartitionError)

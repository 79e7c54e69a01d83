"""Appending to Kafka: an idempotent producer that waits for all in-sync replicas, and is replaced when it is broken.

Touches Kafka alone. aiokafka's producer batches by itself: while one request to a broker is on its way, what is
published meanwhile gathers for the next, so a lone message goes at once and a crowd shares requests.
"""

import asyncio
import logging
from asyncio import Future
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

from forwarder.topics.kafka_connection import KafkaConnection, look_at, milliseconds, reaching_kafka
from forwarder.topics.partitioning import partition_of
from forwarder.topics.port import MAX_MESSAGE_BYTES, LogUnavailable, Message, refuse_too_large
from forwarder.topics.readiness import RecentFailure

_log = logging.getLogger(__name__)
_BATCH_BYTES = 256 * 1024  # for one partition; well below what a broker takes (1 MB), and the bound of what can pile up
_PROTOCOL_ROOM = 16 * 1024
_READY_SECONDS = 0.8


class KafkaPublisher:
    """See `port.Publisher`. Partitions by murmur2 of the key, as other clients do.

    When a time limit passes, the messages may still be stored later: an idempotent producer goes on trying. What waits
    is bounded by one batch for each partition; beyond it `publish` waits, for no longer than its time limit.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()
        self._retirements: set[asyncio.Task[None]] = set()
        self._failure = RecentFailure()

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        refuse_too_large(messages)
        try:
            async with reaching_kafka(f"publish to {topic}", within=self._connection.publish_timeout_seconds):
                await self._deliver(await self.started(), topic, messages)
        except LogUnavailable:
            self._failure.happened()
            raise
        self._failure.over()

    async def ready(self) -> bool:
        if self._failure.recent():
            return False
        try:
            async with reaching_kafka("ask for metadata", within=_READY_SECONDS):
                producer = await self.started()
                return bool(await producer.client.force_metadata_update())
        except LogUnavailable:
            return False

    async def started(self) -> AIOKafkaProducer:
        """The producer in use: started now where there is none, at first or after a broken one."""
        if self._producer is None:
            async with self._starting:
                if self._producer is None:
                    self._producer = await _start(self._connection)
        return self._producer

    async def close(self) -> None:
        """Let go of the producer, and of those it replaced, once they have delivered what they hold."""
        if self._producer is not None:
            self._retire(self._producer)
        if self._retirements:
            await asyncio.wait(self._retirements)

    async def _deliver(self, producer: AIOKafkaProducer, topic: str, messages: Sequence[Message]) -> None:
        handed_over: list[Future[Any]] = []
        try:
            for message in messages:
                send = producer.send(topic, message.value, message.key, headers=list(message.headers))
                handed_over.append(await send)
            for acknowledged in handed_over:
                await acknowledged
        except BaseException as error:
            for abandoned in handed_over:
                abandoned.add_done_callback(look_at)
            if _leaves_a_gap(error):
                self._retire(producer)
            raise

    def _retire(self, producer: AIOKafkaProducer) -> None:
        if self._producer is producer:
            self._producer = None
            task = asyncio.create_task(_stop(producer, self._connection))
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
        partitioner=_choose_partition,
    )
    try:
        await producer.start()
    except BaseException:
        await producer.stop()
        raise
    return producer


async def _stop(producer: AIOKafkaProducer, connection: KafkaConnection) -> None:
    """Deliver what it holds, and close it. What cannot be delivered in time is given up."""
    try:
        async with asyncio.timeout(connection.publish_timeout_seconds):
            await producer.flush()
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
        await producer.client.close()


def _choose_partition(key: bytes, every: Sequence[int], _available: Sequence[int]) -> int:
    """As aiokafka asks for it. Unlike its own, it remembers the hashes of the keys it has seen."""
    return partition_of(key, len(every))


def _leaves_a_gap(error: BaseException) -> bool:
    """Whether the producer can no longer be used.

    A batch that failed leaves a gap in the numbers by which brokers tell batches apart, and they refuse all that
    follow; a new producer counts anew. No room in time, or no such topic, fails before there is a number.
    """
    return isinstance(error, KafkaError) and not isinstance(error, KafkaTimeoutError | UnknownTopicOrPartitionError)

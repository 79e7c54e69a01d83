"""One member of a Kafka consumer group: commits by hand, is told of its partitions, and joins again after trouble.

Touches Kafka alone.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from forwarder.topics.kafka.connection import KafkaConnection, milliseconds, reaching_kafka
from forwarder.topics.kafka.membership import Membership
from forwarder.topics.kafka.reader import CannotRead, KafkaReader, stop
from forwarder.topics.port import ConsumedMessage, Lag, LogUnavailable, PartitionsChanged

_MAX_POLL_INTERVAL_SECONDS = 300.0
_HEARTBEATS_PER_SESSION = 10  # it is at a heartbeat that a member learns of a rebalance


class KafkaConsumer:
    """See `port.Consumer`. Partitions move eagerly: in a rebalance every member gives up all of its own first.

    A caller that does not call `receive` for five minutes leaves the group: it is told by `on_partitions` that it owns
    nothing, others take over, and it joins again at its next `receive`. An outage is `LogUnavailable` after
    `silence_seconds` of waiting; to recover, the caller has only to go on calling.
    """

    def __init__(self, topic: str, group: str, on_partitions: PartitionsChanged, connection: KafkaConnection) -> None:
        self._topic = topic
        self._group = group
        self._connection = connection
        self._membership = Membership(on_partitions, self._discard)
        self._reader: KafkaReader | None = None
        self._unsettled_seconds = 0.0
        self._careful = False

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        reader = self._reader or await self.join()
        if not await self._settled(wait_seconds):
            return ()
        deliveries = await self._take(reader, max_messages, wait_seconds)
        if self._reader is not reader:
            return ()
        generation = self._membership.generation
        await self._membership.settled()
        return deliveries if generation == self._membership.generation else ()

    async def commit(self, deliveries: Sequence[ConsumedMessage]) -> None:
        if self._reader is None:
            return
        consumer = self._reader.consumer
        past = _past(deliveries, consumer.assignment())
        if not past:
            return
        async with reaching_kafka(f"commit to {self._topic}", within=self._connection.publish_timeout_seconds):
            try:
                await consumer.commit(past)
            except (CommitFailedError, IllegalStateError):
                return  # a rebalance took the partitions: whoever has them now delivers those messages again

    async def lag(self) -> Sequence[Lag]:
        if self._reader is None:
            return ()
        consumer = self._reader.consumer
        owned = sorted(consumer.assignment())
        async with reaching_kafka(f"look how far {self._topic} goes", within=self._connection.publish_timeout_seconds):
            ends = await consumer.end_offsets(owned)
            first = await consumer.beginning_offsets(owned)
            committed = await asyncio.gather(*(consumer.committed(each) for each in owned))
        done = {each: max(offset or 0, first[each]) for each, offset in zip(owned, committed, strict=True)}
        return tuple(Lag(each.partition, max(0, ends[each] - done[each])) for each in owned)

    async def join(self) -> KafkaReader:
        """Become a member of the group. Raises `LogUnavailable`."""
        consumer = self._new_consumer()
        consumer.subscribe([self._topic], listener=self._membership)
        try:
            async with reaching_kafka(f"join {self._group}", within=self._connection.join_timeout_seconds):
                await consumer.start()
        except BaseException:
            await stop(consumer, self._connection)
            raise
        self._reader = KafkaReader(consumer, self._connection, careful=self._careful)
        return self._reader

    async def leave(self) -> None:
        """Stop being one; what was received and not committed is delivered to others."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
            await stop(reader.consumer, self._connection)

    async def _settled(self, wait_seconds: float) -> bool:
        """Whether there are partitions to receive from; `LogUnavailable` when there have been none for too long."""
        if await self._membership.settled(within=wait_seconds):
            self._unsettled_seconds = 0.0
            return True
        self._unsettled_seconds += wait_seconds
        if self._unsettled_seconds >= self._connection.silence_seconds:
            raise LogUnavailable(f"{self._group} has been rebalancing for {self._unsettled_seconds:.0f} s")
        return False

    async def _take(self, reader: KafkaReader, max_messages: int, wait_seconds: float) -> list[ConsumedMessage]:
        limit = wait_seconds + self._connection.request_timeout_seconds
        async with reaching_kafka(f"receive from {self._topic}", within=limit):
            try:
                return await reader.take(max_messages, wait_seconds)
            except CannotRead:
                # What it had taken up is delivered again, from what the group has committed.
                self._careful = True
                await self.leave()
                await self._membership.lost()
                return []
            except KafkaError:
                # aiokafka raises only what it cannot mend: begin anew.
                await self.leave()
                await self._membership.lost()
                raise

    def _discard(self) -> None:
        if self._reader is not None:
            self._reader.discard()

    def _new_consumer(self) -> AIOKafkaConsumer:
        session = self._connection.session_timeout_seconds
        return AIOKafkaConsumer(
            bootstrap_servers=self._connection.bootstrap_servers,
            client_id=self._connection.client_id,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=milliseconds(session),
            rebalance_timeout_ms=milliseconds(session),
            heartbeat_interval_ms=milliseconds(session / _HEARTBEATS_PER_SESSION),
            max_poll_interval_ms=milliseconds(_MAX_POLL_INTERVAL_SECONDS),
            # A request to join is answered when all members have come, or are given up.
            request_timeout_ms=milliseconds(session + self._connection.request_timeout_seconds),
        )


@asynccontextmanager
async def kafka_consumer(
    topic: str, group: str, on_partitions: PartitionsChanged, connection: KafkaConnection
) -> AsyncIterator[KafkaConsumer]:
    """A member from entering on, else `LogUnavailable`; it leaves the group at leaving."""
    consumer = KafkaConsumer(topic, group, on_partitions, connection)
    await consumer.join()
    try:
        yield consumer
    finally:
        await consumer.leave()


def _past(deliveries: Sequence[ConsumedMessage], owned: set[TopicPartition]) -> Mapping[TopicPartition, int]:
    """For each owned partition the offset after the last of `deliveries`."""
    past: dict[TopicPartition, int] = {}
    for delivery in deliveries:
        partition = TopicPartition(delivery.topic, delivery.partition)
        if partition in owned:
            past[partition] = max(past.get(partition, 0), delivery.offset + 1)
    return past

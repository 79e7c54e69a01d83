"""The log on Kafka: its parts, each of which connects when it is entered, and the tail, which reads every partition outside
any group."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from forwarder.topics.kafka.admin import kafka_admin
from forwarder.topics.kafka.connection import KafkaConnection, connecting, milliseconds, reaching_kafka, secured
from forwarder.topics.kafka.consumer import kafka_consumer
from forwarder.topics.kafka.publisher import kafka_publisher
from forwarder.topics.kafka.reader import METADATA_SECONDS, CannotRead, KafkaReader, stop, until_some
from forwarder.topics.kafka.security import KafkaSecurity
from forwarder.topics.port import ConsumedMessage, Consumer, GapFound, PartitionsChanged, Publisher, Tail, TopicAdmin


class KafkaLog:
    """See `port.Log`. Times are seconds; see `KafkaConnection` for what each of them limits.

    Without `security` the brokers are reached in plaintext.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        security: KafkaSecurity | None = None,
        client_id: str = "forwarder",
        publish_timeout_seconds: float = 10.0,
        session_timeout_seconds: float = 10.0,
        silence_seconds: float = 15.0,
        member: str | None = None,
    ) -> None:
        self._connection = KafkaConnection(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            publish_timeout_seconds=publish_timeout_seconds,
            session_timeout_seconds=session_timeout_seconds,
            silence_seconds=silence_seconds,
            member=member,
            security={} if security is None else secured(security),
        )

    def publisher(self) -> AbstractAsyncContextManager[Publisher]:
        return kafka_publisher(self._connection)

    def consumer(
        self, topic: str, *, group: str, on_partitions: PartitionsChanged, on_gap: GapFound | None = None
    ) -> AbstractAsyncContextManager[Consumer]:
        return kafka_consumer(topic, group, on_partitions, self._connection, on_gap)

    def tail(self, topic: str, *, from_beginning: bool = False) -> AbstractAsyncContextManager[Tail]:
        return kafka_tail(topic, self._connection, from_beginning=from_beginning)

    def admin(self) -> AbstractAsyncContextManager[TopicAdmin]:
        return kafka_admin(self._connection)


class KafkaTail:
    """See `port.Tail`. Keeps its own positions, and resumes from them after an error.

    An outage is `LogUnavailable` after `silence_seconds` of waiting; to recover, just keep calling.
    """

    def __init__(self, topic: str, connection: KafkaConnection, *, from_beginning: bool) -> None:
        self._topic = topic
        self._from_beginning = from_beginning
        self._connection = connection
        self._reader: KafkaReader | None = None
        self._next: dict[int, int] = {}
        self._careful = False

    async def seek_to_end(self) -> None:
        reader = self._reader or await self.open()
        async with reaching_kafka(f"find the end of {self._topic}", within=self._connection.publish_timeout_seconds):
            ends = await reader.consumer.end_offsets(reader.consumer.assignment())
        reader.discard()
        self._seek(reader.consumer, ends)

    async def seek(self, offsets: Mapping[int, int]) -> None:
        reader = self._reader or await self.open()
        reader.discard()
        self._seek(reader.consumer, {TopicPartition(self._topic, each): offset for each, offset in offsets.items()})

    async def seek_to_time(self, moment: datetime) -> Mapping[int, int]:
        reader = self._reader or await self.open()
        every, since = reader.consumer.assignment(), max(round(moment.timestamp() * 1000), 0)
        async with reaching_kafka(f"find a time in {self._topic}", within=self._connection.publish_timeout_seconds):
            # The ends first: a message published between the two requests is found by its time.
            ends = await reader.consumer.end_offsets(every)
            found = await reader.consumer.offsets_for_times(dict.fromkeys(every, since))
        reader.discard()
        places = {each: found[each].offset if found.get(each) else end for each, end in ends.items()}
        self._seek(reader.consumer, places)
        return {each.partition: offset for each, offset in places.items()}

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        return await until_some(lambda seconds: self._receive_once(max_messages, seconds), wait_seconds)

    async def _receive_once(self, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        """As `receive`, but also empty, before the time is up, where it starts again after an error."""
        if self._reader is not None and not self._reader.usable:
            await self.close()
        reader = self._reader or await self.open()
        self._assign_new_partitions(reader.consumer)
        messages = await self._take(reader, max_messages, wait_seconds)
        for message in messages:
            self._next[message.partition] = message.offset + 1
        return messages

    async def positions(self) -> Mapping[int, int]:
        reader = self._reader or await self.open()
        async with reaching_kafka(f"read {self._topic}", within=self._connection.request_timeout_seconds):
            return {each.partition: await reader.consumer.position(each) for each in reader.consumer.assignment()}

    async def open(self) -> KafkaReader:
        """Assigns all partitions, at their last positions, or at the end or the beginning. Raises `LogUnavailable`."""
        consumer = self._new_consumer()
        try:
            async with connecting(
                self._connection, f"tail {self._topic}", within=self._connection.publish_timeout_seconds
            ):
                await self._start(consumer)
        except BaseException:
            await stop(consumer, self._connection)
            raise
        self._reader = KafkaReader(consumer, self._connection, careful=self._careful)
        return self._reader

    async def close(self) -> None:
        """Close the connection, and keep the positions."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
            await stop(reader.consumer, self._connection)

    async def _start(self, consumer: AIOKafkaConsumer) -> None:
        consumer.assign([TopicPartition(self._topic, 0)])  # so that `start` fetches the topic's metadata
        await consumer.start()
        every = self._assign_all(consumer)
        if self._next:
            self._seek(consumer, {TopicPartition(self._topic, each): offset for each, offset in self._next.items()})
        elif self._from_beginning:
            self._seek(consumer, await consumer.beginning_offsets(every))
        else:
            self._seek(consumer, await consumer.end_offsets(every))

    def _assign_new_partitions(self, consumer: AIOKafkaConsumer) -> None:
        known = consumer.partitions_for_topic(self._topic) or frozenset()
        added = known - self._next.keys()
        if added:
            self._next.update(dict.fromkeys(added, 0))
            self._assign_all(consumer)
            self._seek(consumer, {TopicPartition(self._topic, each): offset for each, offset in self._next.items()})

    def _assign_all(self, consumer: AIOKafkaConsumer) -> list[TopicPartition]:
        every = [TopicPartition(self._topic, each) for each in sorted(consumer.partitions_for_topic(self._topic))]
        consumer.assign(every)
        return every

    def _seek(self, consumer: AIOKafkaConsumer, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            consumer.seek(partition, offset)
            self._next[partition.partition] = offset

    async def _take(self, reader: KafkaReader, max_messages: int, wait_seconds: float) -> list[ConsumedMessage]:
        limit = wait_seconds + self._connection.request_timeout_seconds
        async with reaching_kafka(f"receive from {self._topic}", within=limit):
            try:
                return await reader.take(max_messages, wait_seconds)
            except CannotRead:
                self._careful = True  # and resume from the same positions
                await self.close()
                return []
            except KafkaError:
                await self.close()  # aiokafka only raises what it cannot recover from: start again
                raise

    def _new_consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **self._connection.arguments,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            metadata_max_age_ms=milliseconds(METADATA_SECONDS),
            request_timeout_ms=milliseconds(self._connection.request_timeout_seconds),
        )


@asynccontextmanager
async def kafka_tail(topic: str, connection: KafkaConnection, *, from_beginning: bool) -> AsyncIterator[KafkaTail]:
    """Connected and in position on entry, else `LogUnavailable`."""
    tail = KafkaTail(topic, connection, from_beginning=from_beginning)
    await tail.open()
    try:
        yield tail
    finally:
        await tail.close()

"""The log on Kafka: its parts, each of which connects when it is entered, and the tail, which reads every partition outside
any group."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from forwarder.topics.kafka.admin import kafka_admin
from forwarder.topics.kafka.connection import KafkaConnection, connecting, milliseconds, reaching_kafka
from forwarder.topics.kafka.consumer import KafkaConsumer
from forwarder.topics.kafka.publisher import kafka_publisher
from forwarder.topics.kafka.reader import METADATA_SECONDS, CannotRead, KafkaReader, stop, until_some
from forwarder.topics.port import ConsumedMessage, Consumer, GapFound, PartitionsChanged, Publisher, Tail, TopicAdmin


class KafkaLog(KafkaConnection):
    """See `port.Log`."""

    def publisher(self) -> AbstractAsyncContextManager[Publisher]:
        return kafka_publisher(self)

    @asynccontextmanager
    async def consumer(
        self, topic: str, *, group: str, on_partitions: PartitionsChanged, on_gap: GapFound | None = None
    ) -> AsyncIterator[Consumer]:
        """A member on entry, else `LogUnavailable`; it leaves the group on exit."""
        consumer = KafkaConsumer(topic, group, on_partitions, self, on_gap)
        await consumer.join()
        try:
            yield consumer
        finally:
            await consumer.leave()

    @asynccontextmanager
    async def tail(self, topic: str, *, from_beginning: bool = False) -> AsyncIterator[Tail]:
        """Connected and in position on entry, else `LogUnavailable`."""
        tail = KafkaTail(topic, self, from_beginning=from_beginning)
        await tail.open()
        try:
            yield tail
        finally:
            await tail.close()

    def admin(self) -> AbstractAsyncContextManager[TopicAdmin]:
        return kafka_admin(self)


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

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        return await until_some(lambda seconds: self._receive_once(max_messages, seconds), wait_seconds)

    async def _receive_once(self, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        """As `receive`, but also empty, before the time is up, where it starts again after an error."""
        if self._reader is not None and not self._reader.usable:
            await self.close()
        reader = self._reader or await self.open()
        added = (reader.consumer.partitions_for_topic(self._topic) or frozenset()) - self._next.keys()
        if added:
            self._next.update(dict.fromkeys(added, 0))
            self._assign_all(reader.consumer)
            self._resume(reader.consumer)
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
        consumer = AIOKafkaConsumer(
            **self._connection.arguments,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            metadata_max_age_ms=milliseconds(METADATA_SECONDS),
            request_timeout_ms=milliseconds(self._connection.request_timeout_seconds),
        )
        try:
            async with connecting(
                self._connection, f"tail {self._topic}", within=self._connection.publish_timeout_seconds
            ):
                consumer.assign([TopicPartition(self._topic, 0)])  # so that `start` fetches the topic's metadata
                await consumer.start()
                every = self._assign_all(consumer)
                if self._next:
                    self._resume(consumer)
                elif self._from_beginning:
                    self._seek(consumer, await consumer.beginning_offsets(every))
                else:
                    self._seek(consumer, await consumer.end_offsets(every))
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

    def _assign_all(self, consumer: AIOKafkaConsumer) -> list[TopicPartition]:
        every = [TopicPartition(self._topic, each) for each in sorted(consumer.partitions_for_topic(self._topic))]
        consumer.assign(every)
        return every

    def _resume(self, consumer: AIOKafkaConsumer) -> None:
        self._seek(consumer, {TopicPartition(self._topic, each): offset for each, offset in self._next.items()})

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

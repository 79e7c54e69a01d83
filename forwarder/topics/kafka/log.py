"""The log on Kafka: its parts, each of which connects when it is entered; the member of a group, and the tail, which reads every
partition outside any group. To recover from an error, just keep calling `receive`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from operator import attrgetter

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition, errors
from aiokafka.errors import KafkaError

from forwarder.topics import port
from forwarder.topics.kafka.admin import kafka_admin
from forwarder.topics.kafka.connection import KafkaConnection, connecting, milliseconds, reaching_kafka
from forwarder.topics.kafka.internals import stop_consumer
from forwarder.topics.kafka.publisher import KafkaPublisher
from forwarder.topics.kafka.reader import CannotRead, KafkaReader
from forwarder.topics.port import ConsumedMessage, GapFound, LogUnavailable, PartitionsChanged

METADATA_SECONDS = 15.0
"""How soon a new partition, or a topic that was missing, is noticed. aiokafka's default is five minutes."""


class KafkaLog(KafkaConnection):
    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[port.Publisher]:
        """Connected on entry, else `LogUnavailable`. On exit, publishes or gives up the queued messages within the time limit."""
        publisher = KafkaPublisher(self)
        try:
            async with connecting(self, "connect a producer", within=self.publish_timeout_seconds):
                await publisher.accumulator()
            yield publisher
        finally:
            await publisher.close()

    @asynccontextmanager
    async def consumer(
        self, topic: str, *, group: str, on_partitions: PartitionsChanged, on_gap: GapFound | None = None
    ) -> AsyncIterator[port.Consumer]:
        """A member on entry, else `LogUnavailable`; it leaves the group on exit."""
        async with aclosing(KafkaConsumer(topic, group, self, on_partitions, on_gap)) as consumer:
            await consumer.join()
            yield consumer

    @asynccontextmanager
    async def tail(self, topic: str, *, from_beginning: bool = False) -> AsyncIterator[port.Tail]:
        """Connected and in position on entry, else `LogUnavailable`."""
        async with aclosing(KafkaTail(topic, self, from_beginning=from_beginning)) as tail:
            await tail.open()
            yield tail

    def admin(self) -> AbstractAsyncContextManager[port.TopicAdmin]:
        return kafka_admin(self)


class _Receiver:
    """Receives from one topic by a reader, which is closed and replaced after an error. An outage raises `LogUnavailable` after
    `silence_seconds` of waiting."""

    def __init__(self, topic: str, connection: KafkaConnection) -> None:
        self._topic, self._connection = topic, connection
        self._reader: KafkaReader | None = None
        self._careful = False

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            received = await self._receive_once(max_messages, max(deadline - loop.time(), 0.0))
            if received or loop.time() >= deadline:
                return received

    async def _receive_once(self, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        """Like `receive`, but may return early and empty after a rebalance, a gap, or an error that it recovered from."""
        raise NotImplementedError

    async def _connected(
        self, consumer: AIOKafkaConsumer, doing: str, start: Callable[[], Awaitable[None]], within: float
    ) -> KafkaReader:
        """Reads from `consumer` once `start` has connected it. Raises `LogUnavailable`."""
        try:
            async with connecting(self._connection, doing, within=within):
                await start()
        except BaseException:
            await stop_consumer(consumer, self._connection)
            raise
        self._reader = KafkaReader(consumer, self._connection, careful=self._careful)
        return self._reader

    async def aclose(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()


class KafkaConsumer(_Receiver, ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """See `port.Consumer`. Rebalances are eager: every member first gives up all of its partitions. A caller that does not call
    `receive` for five minutes leaves the group: `on_partitions` is called with no partitions, others take over, and it joins again
    with its next `receive`."""

    def __init__(
        self, topic: str, group: str, kafka: KafkaConnection, on_partitions: PartitionsChanged, on_gap: GapFound | None
    ) -> None:
        super().__init__(topic, kafka)
        self._group, self._on_partitions, self._on_gap = group, on_partitions, on_gap
        self._rebalancing_seconds = 0.0
        self._owned: frozenset[int] = frozenset()
        self._assigned = asyncio.Event()
        """Set while partitions are assigned, and `on_partitions` has returned: messages are held back until then."""
        self._failure: Exception | None = None
        """What `on_partitions` raised: `receive` raises it; aiokafka would only log it."""
        self._generation = 0  # counts revocations: messages fetched under an earlier generation must not be delivered

    async def _receive_once(self, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        if self._reader is not None and self._reader.metadata.done():
            await self._start_again()
        reader = self._reader or await self.join()
        if not await self._is_assigned(wait_seconds):
            self._rebalancing_seconds += wait_seconds
            if self._rebalancing_seconds >= self._connection.silence_seconds:
                raise LogUnavailable(f"{self._group} has been rebalancing for {self._rebalancing_seconds:.0f} s")
            return ()
        self._rebalancing_seconds = 0.0
        messages = await self._take(reader, max_messages, wait_seconds)
        if self._reader is not reader:
            return ()
        if not messages:
            return ()
        generation = self._generation
        await self._is_assigned(None)
        return messages if generation == self._generation else ()

    async def commit(self, messages: Sequence[ConsumedMessage]) -> None:
        ordered = sorted(messages, key=attrgetter("offset"))
        await self._commit({TopicPartition(each.topic, each.partition): each.offset + 1 for each in ordered})

    @property
    def unreadable(self) -> Mapping[int, int]:
        return {} if self._reader is None else self._reader.unreadable

    async def join(self) -> KafkaReader:
        session = self._connection.session_timeout_seconds
        consumer = AIOKafkaConsumer(
            **self._connection.arguments,
            group_id=self._group,
            group_instance_id=self._connection.member,
            enable_auto_commit=False,
            # Report an offset that the log lacks before the group continues after it.
            auto_offset_reset="none",
            session_timeout_ms=milliseconds(session),
            rebalance_timeout_ms=milliseconds(session),
            # A member learns of a rebalance from the reply to a heartbeat.
            heartbeat_interval_ms=milliseconds(session / 10),
            # Partitions that the brokers did not report at the assignment have no owner until the next refresh.
            metadata_max_age_ms=milliseconds(METADATA_SECONDS),
            max_poll_interval_ms=milliseconds(300.0),
            # The response to a join request comes once all members have joined or were dropped.
            request_timeout_ms=milliseconds(session + self._connection.request_timeout_seconds),
        )
        consumer.subscribe([self._topic], listener=self)
        # In the worst case joining waits for a dead member twice.
        return await self._connected(consumer, f"join {self._group}", consumer.start, 3 * session)

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._reader is None:
            return
        consumer, owned = self._reader.consumer, self._reader.consumer.assignment()
        # A partition lost meanwhile would make the whole commit fail.
        if offsets := {partition: offset for partition, offset in offsets.items() if partition in owned}:
            async with reaching_kafka(f"commit to {self._topic}", within=self._connection.publish_timeout_seconds):
                # Raised where a rebalance took the partitions: their new owner delivers those messages again.
                with suppress(errors.CommitFailedError, errors.IllegalStateError):
                    await consumer.commit(offsets)

    async def _is_assigned(self, within: float | None) -> bool:
        """Wait up to `within` seconds until partitions are assigned and `on_partitions` has returned; False if they are not.
        Raises what `on_partitions` raised."""
        try:
            async with asyncio.timeout(within):
                await self._assigned.wait()
        except TimeoutError:
            return False
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return True

    async def _take(self, reader: KafkaReader, max_messages: int, wait_seconds: float) -> list[ConsumedMessage]:
        limit = wait_seconds + self._connection.request_timeout_seconds
        async with reaching_kafka(f"receive from {self._topic}", within=limit):
            try:
                return await reader.take(max_messages, wait_seconds)
            except port.LogUnreadable:
                return []  # reported by `unreadable`; the other partitions continue
            except CannotRead:
                # Messages that it had fetched are delivered again, from the last commit.
                self._careful = True
                await self._start_again()
                return []
            except (errors.NoOffsetForPartitionError, errors.OffsetOutOfRangeError) as error:
                places = error.args[0]
            except KafkaError:  # aiokafka only raises what it cannot recover from
                await self._start_again()
                raise
        # Begin at the first message, in a partition that the group is new to; and behind a gap, once that is noted.
        consumer, new = reader.consumer, {places: None} if isinstance(places, TopicPartition) else places
        async with reaching_kafka(f"find offsets of {self._topic}", within=self._connection.publish_timeout_seconds):
            first, following = await consumer.beginning_offsets(new), await consumer.end_offsets(new)
        for partition, position in new.items():
            if position is not None:
                if first[partition] <= position <= following[partition]:
                    continue  # a new leader that was not up to date for a moment
                if self._on_gap is not None:
                    await self._on_gap(port.LogGap(self._topic, partition.partition, position, first[partition]))
            if partition in consumer.assignment():
                # Commit the first offset, too, so that messages deleted before the first receive are found as a gap.
                consumer.seek(partition, first[partition])
                await self._commit({partition: first[partition]})
        return []

    async def _start_again(self) -> None:
        await self._lose_partitions()  # first, so that the caller can commit what it has
        await self.aclose()

    async def _lose_partitions(self) -> None:
        self._assigned.clear()
        self._generation += 1
        if self._reader is not None:
            self._reader.discard()
        if self._owned:
            await self._report(frozenset())

    async def on_partitions_revoked(self, _revoked: Collection[TopicPartition]) -> None:
        await self._lose_partitions()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await self._report(frozenset(each.partition for each in assigned))
        self._assigned.set()

    async def _report(self, owned: frozenset[int]) -> None:
        self._owned = owned
        try:
            await self._on_partitions(owned)
        except Exception as failure:  # noqa: BLE001 - see `_failure`
            self._failure = failure


class KafkaTail(_Receiver):
    """See `port.Tail`. Keeps its own positions, and resumes from them after an error."""

    def __init__(self, topic: str, connection: KafkaConnection, *, from_beginning: bool) -> None:
        super().__init__(topic, connection)
        self._from_beginning = from_beginning
        self._next: dict[int, int] = {}

    async def seek_to_end(self) -> None:
        reader = self._reader or await self.open()
        async with reaching_kafka(f"find the end of {self._topic}", within=self._connection.publish_timeout_seconds):
            ends = await reader.consumer.end_offsets(reader.consumer.assignment())
        await self.seek({each.partition: offset for each, offset in ends.items()})

    async def seek(self, offsets: Mapping[int, int]) -> None:
        reader = self._reader or await self.open()
        reader.discard()
        self._seek(reader.consumer, offsets)

    async def _receive_once(self, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        if self._reader is not None and self._reader.metadata.done():
            await self.aclose()
        reader = self._reader or await self.open()
        added = (reader.consumer.partitions_for_topic(self._topic) or frozenset()) - self._next.keys()
        if added:
            self._next.update(dict.fromkeys(added, 0))
            self._assign_all(reader.consumer)
            self._seek(reader.consumer, self._next)
        messages: Sequence[ConsumedMessage] = ()
        limit = wait_seconds + self._connection.request_timeout_seconds
        async with reaching_kafka(f"receive from {self._topic}", within=limit):
            try:
                messages = await reader.take(max_messages, wait_seconds)
            except CannotRead:
                self._careful = True  # and resume from the same positions
                await self.aclose()
            except KafkaError:
                await self.aclose()  # aiokafka only raises what it cannot recover from: start again
                raise
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

        async def start() -> None:
            consumer.assign([TopicPartition(self._topic, 0)])  # so that `start` fetches the topic's metadata
            await consumer.start()
            every = self._assign_all(consumer)
            if not self._next:
                find = consumer.beginning_offsets if self._from_beginning else consumer.end_offsets
                self._next = {each.partition: offset for each, offset in (await find(every)).items()}
            self._seek(consumer, self._next)

        return await self._connected(consumer, f"tail {self._topic}", start, self._connection.publish_timeout_seconds)

    def _assign_all(self, consumer: AIOKafkaConsumer) -> list[TopicPartition]:
        every = [TopicPartition(self._topic, each) for each in sorted(consumer.partitions_for_topic(self._topic))]
        consumer.assign(every)
        return every

    def _seek(self, consumer: AIOKafkaConsumer, offsets: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            consumer.seek(TopicPartition(self._topic, partition), offset)
        self._next |= offsets

"""What other programs may write to a topic of Kafka's, and a reader of ours gets past: nulls, and what its driver cannot read."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC

import pytest
from aiokafka import AIOKafkaProducer

from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import ConsumedMessage, Consumer, Message, moment_of, read_to_end
from tests.support.log.foreign_batches import STANDS_FOR, Raw, topic_with, write_batch
from tests.support.log.messages import SOON, ignore_partitions, lag, new_topic, nothing_more, numbered, take

PARTITIONS = 2
ANY_TIME = {"message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": str(2**63 - 1)}
UNREADABLE: Raw = (b"k", b"foreign", [(STANDS_FOR, b"x")])


@pytest.fixture
def log(kafka_bootstrap: str) -> KafkaLog:
    return KafkaLog(kafka_bootstrap, silence_seconds=3.0)


@pytest.fixture
async def topic(log: KafkaLog) -> str:
    return await new_topic(log, PARTITIONS)


@pytest.fixture
def write(kafka_bootstrap: str, topic: str) -> Callable[..., Awaitable[None]]:
    async def to_partition(partition: int, *records: Raw) -> None:
        await write_batch(kafka_bootstrap, topic, partition, records)

    return to_partition


def places(messages: list[ConsumedMessage], partition: int) -> list[int]:
    return [each.offset for each in messages if each.partition == partition]


Write = Callable[..., Awaitable[None]]


async def test_null_is_nothing(log: KafkaLog, topic: str, write: Write) -> None:
    await write(0, (None, b"v", [("h", None), ("", b"x"), ("", None)]), (b"k", None, []))
    async with log.tail(topic, from_beginning=True) as tail:
        assert [each.message for each in await take(tail, 2)] == [
            Message(b"", b"v", (("h", b""), ("", b"x"), ("", b""))),
            Message(b"k", b""),
        ]


async def test_what_came_with_nulls_can_be_written_again(log: KafkaLog, topic: str, write: Write) -> None:
    await write(0, (None, b"v", [("h", None), ("", None)]))
    async with log.tail(topic, from_beginning=True) as tail, log.publisher() as publisher:
        (came,) = await take(tail, 1)
        await publisher.publish(topic, [came.message])
        (again,) = await take(tail, 1)
    assert again.message == came.message


async def test_what_the_driver_cannot_read_is_delivered_as_unreadable_and_nothing_else_is_lost(
    log: KafkaLog, topic: str, write: Write
) -> None:
    """Once for each record from the first one on that it stumbles over to the end of its batch."""
    for each in range(3):
        await write(0, (b"a", b"%d" % each, []), (b"b", b"%d" % each, []))
        await write(1, (b"c", b"%d" % each, []))
    await write(0, (b"k", b"before", []), UNREADABLE, (b"k", b"behind", []))
    await write(1, UNREADABLE)
    for partition in range(PARTITIONS):
        await write(partition, (b"k", b"after", []))

    async def read(consumer: Consumer) -> list[ConsumedMessage]:
        read = await take(consumer, 15)
        assert await nothing_more(consumer)
        await consumer.commit(read)
        return read

    async with log.consumer(topic, group=topic, on_partitions=ignore_partitions) as consumer:
        by_group = await read(consumer)
    assert await lag(log, topic, topic) == {0: 0, 1: 0}
    async with log.tail(topic, from_beginning=True) as tail:
        by_tail = await take(tail, 15)
    for found in (by_group, by_tail):
        assert places(found, 0) == list(range(10))
        assert places(found, 1) == list(range(5))
        unreadable = [(each.partition, each.offset) for each in found if not each.message.value]
        assert sorted(unreadable) == [(0, 7), (0, 8), (1, 3)]
        assert all(dict(each.message.headers).keys() == {"unreadable"} for each in found if not each.message.value)


async def test_after_it_reading_goes_on_as_ever(log: KafkaLog, topic: str, write: Write) -> None:
    await write(0, UNREADABLE)
    async with (
        log.consumer(topic, group=topic, on_partitions=ignore_partitions) as consumer,
        log.publisher() as publisher,
    ):
        await take(consumer, 1)
        for first in range(0, 3000, 1000):
            await publisher.publish(topic, numbered(1000, first=first))
            assert len(await take(consumer, 1000)) == 1000


async def test_a_topic_that_ends_with_what_is_no_message_is_read_to_its_end(
    log: KafkaLog, kafka_bootstrap: str, topic: str
) -> None:
    """The markers of a transaction, committed or aborted: they have offsets, and are never delivered."""
    key = b"k"
    async with AIOKafkaProducer(bootstrap_servers=kafka_bootstrap, transactional_id=topic) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"committed", key=key)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", key=key)
        await producer.abort_transaction()
    async with asyncio.timeout(SOON):
        read = [each.message.value async for batch in read_to_end(log, topic) for each in batch]
    assert read[0] == b"committed"


@pytest.mark.parametrize("milliseconds", [0, 1, 2**62, 10**15])
async def test_senders_may_set_any_time(log: KafkaLog, kafka_bootstrap: str, milliseconds: int) -> None:
    topic = await topic_with(kafka_bootstrap, 1, {"message.timestamp.type": "CreateTime", **ANY_TIME})
    async with AIOKafkaProducer(bootstrap_servers=kafka_bootstrap) as producer:
        await producer.send_and_wait(topic, b"v", key=b"k", timestamp_ms=milliseconds)
    async with log.tail(topic, from_beginning=True) as tail:
        (came,) = await take(tail, 1)
    assert moment_of(came.timestamp_ms).tzinfo is UTC
    async with log.admin() as admin:
        (behind,) = await admin.lag(topic, group=topic)
    assert behind.messages == 1


async def test_names_of_headers_may_come_twice(log: KafkaLog, topic: str, write: Write) -> None:
    await write(0, (b"k", b"v", [("h", b"1"), ("h", b"2")]))
    async with log.tail(topic, from_beginning=True) as tail:
        (came,) = await take(tail, 1)
    assert came.message.headers == (("h", b"1"), ("h", b"2"))

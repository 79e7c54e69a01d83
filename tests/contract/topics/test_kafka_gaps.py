"""A group learns which messages Kafka lost before it received them: deleted records, and a topic that was made anew."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Consumer, LogGap, LogUnavailable, Message
from tests.support.log.messages import SOON, ignore_partitions, new_topic, numbered, numbers, take

LIMIT = 5.0


@pytest.fixture
def log(kafka_bootstrap: str) -> KafkaLog:
    return KafkaLog(kafka_bootstrap, publish_timeout_seconds=LIMIT, session_timeout_seconds=LIMIT)


@pytest.fixture
async def admin(kafka_bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    opened = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await opened.start()
    yield opened
    await opened.close()


class Gaps(list[LogGap]):
    async def note(self, gap: LogGap) -> None:
        self.append(gap)


async def published(log: KafkaLog, topic: str, first: int, count: int) -> None:
    async with log.publisher() as publisher:
        await publisher.publish(topic, numbered(count, first=first, keys=1))


async def taken(log: KafkaLog, topic: str, count: int, gaps: Gaps) -> list[int]:
    """The numbers of so many messages, which are committed."""
    async with log.consumer(topic, group=topic, on_partitions=ignore_partitions, on_gap=gaps.note) as consumer:
        found = await take(consumer, count)
        await consumer.commit(found)
        return numbers(found)


async def delete_before(admin: AIOKafkaAdminClient, topic: str, offset: int) -> None:
    await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=offset)})


async def test_deleted_before_a_stopped_group_received_them(log: KafkaLog, admin: AIOKafkaAdminClient) -> None:
    topic, gaps = await new_topic(log, 1), Gaps()
    await published(log, topic, 0, 20)
    assert await taken(log, topic, 5, gaps) == [*range(5)]
    await delete_before(admin, topic, 15)
    assert gaps == []
    assert await taken(log, topic, 2, gaps) == [15, 16]
    assert gaps == [LogGap(topic, 0, position=5, resumed_at=15)]
    assert gaps[0].missing == 10
    assert await taken(log, topic, 3, gaps) == [17, 18, 19]
    assert len(gaps) == 1, "it is reported once"


async def test_deleted_to_the_end_under_a_member_that_is_running(log: KafkaLog, admin: AIOKafkaAdminClient) -> None:
    topic, gaps = await new_topic(log, 1), Gaps()
    await published(log, topic, 0, 5)
    async with log.consumer(topic, group=topic, on_partitions=ignore_partitions, on_gap=gaps.note) as consumer:
        await consumer.commit(await take(consumer, 5))
        position = 5
        while not gaps:  # what the member has fetched already is not lost with the log
            await published(log, topic, position, 500)
            await delete_before(admin, topic, position + 500)
            received = await consumer.receive(max_messages=3, wait_seconds=0.2)
            await consumer.commit(received)
            position += 500
        (gap,) = gaps
        assert gap.resumed_at % 500 == 5
        await published(log, topic, position, 1)
        assert numbers(await take(consumer, 1))[-1] >= gap.resumed_at
    async with log.admin() as inspected:
        assert (await inspected.committed(topic, group=topic))[0] >= gap.resumed_at


async def test_made_anew_with_less_than_the_member_had_received(log: KafkaLog, admin: AIOKafkaAdminClient) -> None:
    topic, gaps = await new_topic(log, 1), Gaps()
    await published(log, topic, 0, 9)
    async with log.consumer(topic, group=topic, on_partitions=ignore_partitions, on_gap=gaps.note) as consumer:
        await consumer.commit(await take(consumer, 9))
        await admin.delete_topics([topic])
        async with asyncio.timeout(SOON):
            while topic in await admin.list_topics():
                await asyncio.sleep(0.05)
            await admin.create_topics([NewTopic(topic, 1, 1)])
        await published(log, topic, 100, 2)
        assert await received_through_outages(consumer, 2) == [100, 101]
    assert gaps == [LogGap(topic, 0, position=9, resumed_at=0)]
    assert gaps[0].missing is None


async def received_through_outages(consumer: Consumer, count: int) -> list[int]:
    found = await take(consumer, count, through_outages=True)
    await consumer.commit(found)
    return numbers(found)


async def test_one_that_cannot_be_noted_is_found_again(log: KafkaLog, admin: AIOKafkaAdminClient) -> None:
    topic, gaps = await new_topic(log, 1), Gaps()
    await published(log, topic, 0, 9)
    await taken(log, topic, 2, gaps)
    await delete_before(admin, topic, 6)

    async def fail(_: LogGap) -> None:
        raise LogUnavailable("the store is away")

    async with log.consumer(topic, group=topic, on_partitions=ignore_partitions, on_gap=fail) as consumer:
        with pytest.raises(LogUnavailable, match="the store is away"):
            await take(consumer, 1)
    assert await taken(log, topic, 1, gaps) == [6]
    assert gaps == [LogGap(topic, 0, position=2, resumed_at=6)]


async def test_the_markers_of_transactions_are_no_gap(log: KafkaLog, kafka_bootstrap: str) -> None:
    topic, gaps = await new_topic(log, 1), Gaps()
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap, transactional_id=f"{topic}-writer")
    await producer.start()
    try:
        for each in range(3):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"%d" % each, partition=0)
    finally:
        await producer.stop()
    assert await taken(log, topic, 1, gaps) == [0]
    assert await taken(log, topic, 2, gaps) == [1, 2]
    assert gaps == []


async def test_a_new_group_begins_at_what_there_is(log: KafkaLog, admin: AIOKafkaAdminClient) -> None:
    topic, gaps = await new_topic(log, 3), Gaps()
    async with log.publisher() as publisher:
        await publisher.publish(topic, [Message(b"%d" % each, b"%d" % each) for each in range(40)])
    assert await taken(log, topic, 40, gaps) == [*range(40)]
    assert gaps == []

"""What every log tells of what a topic holds, on every backend; and reading a topic to its end, which builds on it."""

import asyncio

import pytest

from forwarder.topics.port import Log, Message, read_to_end
from tests.support.log.messages import SOON, ignore_partitions, lag, new_topic, numbered, numbers, take

PARTITIONS = 4
# By which partition a key goes to is in `test_topics`: these two go to partitions 2 and 0.
SECOND, FIRST = b"acct-1:prop-1", b"acct-1:prop-2"


@pytest.fixture
async def topic(log: Log) -> str:
    return await new_topic(log, PARTITIONS)


async def offsets(log: Log, topic: str) -> dict[int, range]:
    async with log.admin() as admin:
        return dict(await admin.offsets(topic))


async def everything(log: Log, topic: str) -> list[int]:
    async with asyncio.timeout(SOON):
        return numbers([each async for batch in read_to_end(log, topic) for each in batch])


async def test_a_new_topic_holds_nothing(log: Log, topic: str) -> None:
    assert await offsets(log, topic) == dict.fromkeys(range(PARTITIONS), range(0))


async def test_a_topic_that_is_not_there_has_no_partitions_and_is_not_made(log: Log, topic: str) -> None:
    assert await offsets(log, f"{topic}.none") == {}
    assert await everything(log, f"{topic}.none") == []
    async with log.admin() as admin:
        assert f"{topic}.none" not in await admin.list()


async def test_each_partition_holds_from_its_first_message_to_the_next_that_comes(log: Log, topic: str) -> None:
    async with log.publisher() as publisher:
        await publisher.publish(topic, [Message(FIRST, b"1"), Message(SECOND, b"2"), Message(FIRST, b"3")])
        assert await offsets(log, topic) == {0: range(2), 1: range(0), 2: range(1), 3: range(0)}
        await publisher.publish(topic, [Message(SECOND, b"4")])
        assert (await offsets(log, topic))[2] == range(2)


async def test_a_topic_is_read_to_its_end_in_order_and_no_further(log: Log, topic: str) -> None:
    async with log.publisher() as publisher:
        await publisher.publish(topic, numbered(1_500))
        read: list[int] = []
        places: list[tuple[int, int]] = []
        async with asyncio.timeout(SOON):
            async for batch in read_to_end(log, topic):
                if not read:
                    await publisher.publish(topic, numbered(50, first=5_000))
                read += [int(each.message.value) for each in batch]
                places += [(each.partition, each.offset) for each in batch]
    assert sorted(read) == [*range(1_500)]
    for partition in range(PARTITIONS):
        of_it = [offset for where, offset in places if where == partition]
        assert of_it == [*range(len(of_it))]


async def test_of_an_empty_topic_nothing_is_waited_for(log: Log, topic: str) -> None:
    assert await everything(log, topic) == []


async def test_a_topic_is_read_beside_its_consumers_and_takes_nothing_from_them(log: Log, topic: str) -> None:
    async with (
        log.publisher() as publisher,
        log.consumer(topic, group=topic, on_partitions=ignore_partitions) as consumer,
    ):
        await publisher.publish(topic, numbered(20))
        assert await everything(log, topic) == [*range(20)]
        assert numbers(await take(consumer, 20)) == [*range(20)]
        assert sum((await lag(log, topic, topic)).values()) == 20

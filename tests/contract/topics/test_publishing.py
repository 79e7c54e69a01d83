"""Many who publish at the same time share batches, and none of them feels it, on every backend."""

import asyncio

import pytest

from forwarder.topics.port import Log, Message
from tests.support.log.messages import SOON, by_key, new_topic, nothing_more, numbered, numbers, take

PARTITIONS = 4


@pytest.fixture
async def topic(log: Log) -> str:
    return await new_topic(log, PARTITIONS)


async def test_one_that_gives_up_takes_nothing_from_those_who_share_its_batch(log: Log, topic: str) -> None:
    async with log.publisher() as publisher:
        shared = [asyncio.create_task(publisher.publish(topic, numbered(1, first=each))) for each in range(20)]
        await asyncio.sleep(0)  # all of them are under way
        for each in shared[::2]:
            each.cancel()
        async with asyncio.timeout(SOON):
            ends = await asyncio.gather(*shared, return_exceptions=True)
    assert ends[1::2] == [None] * 10
    async with log.tail(topic, from_beginning=True) as tail:
        received = [*numbers(await take(tail, 10))]
        while more := await tail.receive(max_messages=100, wait_seconds=0.3):
            received += numbers(more)
    assert set(range(1, 20, 2)) <= set(received)
    assert len(set(received)) == len(received)


async def test_more_than_a_batch_holds_arrives_whole_and_in_order(log: Log, topic: str) -> None:
    # For one partition, and more than twice as much as goes into one batch there.
    calls = {b"%d" % call: [b"%d %d " % (call, turn) + b"x" * 30_000 for turn in range(5)] for call in range(8)}
    async with log.publisher() as publisher, asyncio.timeout(SOON):
        await asyncio.gather(
            *(publisher.publish(topic, [Message(b"key", value) for value in values]) for values in calls.values())
        )
    async with log.tail(topic, from_beginning=True) as tail:
        received = by_key(await take(tail, 40))[b"key"]
        assert await nothing_more(tail)
    for call, values in calls.items():
        assert [value for value in received if value.startswith(call + b" ")] == values


async def test_a_crowd_and_those_who_come_after_it_are_all_acknowledged(log: Log, topic: str) -> None:
    async with log.publisher() as publisher, asyncio.timeout(SOON):
        for turn in range(20):
            crowd = (publisher.publish(topic, numbered(1, first=10 * turn + each)) for each in range(9))
            await asyncio.gather(*crowd)
            await publisher.publish(topic, numbered(1, first=10 * turn + 9))
    async with log.tail(topic, from_beginning=True) as tail:
        assert numbers(await take(tail, 200)) == [*range(200)]


async def test_leaving_delivers_what_was_handed_over(log: Log, topic: str) -> None:
    async with log.publisher() as publisher:
        await asyncio.gather(*(publisher.publish(topic, numbered(1, first=each)) for each in range(10)))
        handed_over = [asyncio.create_task(publisher.publish(topic, numbered(1, first=each))) for each in range(10, 20)]
        await asyncio.sleep(0)  # all of them are under way
    async with asyncio.timeout(SOON):
        await asyncio.gather(*handed_over)
    async with log.tail(topic, from_beginning=True) as tail:
        assert numbers(await take(tail, 20)) == [*range(20)]

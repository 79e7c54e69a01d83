"""What every log does with messages, on every backend: order, bytes, waiting, many at once.

Groups, tails and topics are in `test_topics_groups`; what one backend alone does, in `test_topics_kafka`,
`test_topics_kafka_outage` and `test_topics_embedded`.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from forwarder.topics.port import MAX_MESSAGE_BYTES, Consumer, Log, Message, MessageTooLarge, Publisher
from tests.support.log.messages import (
    SOON,
    by_key,
    ignore_partitions,
    new_topic,
    nothing_more,
    numbered,
    numbers,
    take,
)

PARTITIONS = 4


@pytest.fixture
async def topic(log: Log) -> str:
    return await new_topic(log, PARTITIONS)


@pytest.fixture
async def publisher(log: Log) -> AsyncIterator[Publisher]:
    async with log.publisher() as opened:
        yield opened


def member(log: Log, topic: str, group: str | None = None) -> AbstractAsyncContextManager[Consumer]:
    return log.consumer(topic, group=group or topic, on_partitions=ignore_partitions)


async def test_messages_of_a_key_keep_their_order_and_their_partition(
    log: Log, topic: str, publisher: Publisher
) -> None:
    sent = numbered(200)
    await publisher.publish(topic, sent[:100])
    await publisher.publish(topic, sent[100:])
    async with member(log, topic) as consumer:
        received = await take(consumer, 200)
    for key in {message.key for message in sent}:
        assert by_key(received)[key] == [message.value for message in sent if message.key == key]
        assert len({each.partition for each in received if each.message.key == key}) == 1
    assert len({each.partition for each in received}) > 1


async def test_offsets_of_a_partition_ascend_without_gaps(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(100))
    async with member(log, topic) as consumer:
        received = await take(consumer, 100)
    offsets: dict[int, list[int]] = defaultdict(list)
    for each in received:
        offsets[each.partition].append(each.offset)
    assert all(seen == list(range(len(seen))) for seen in offsets.values())


async def test_key_value_and_headers_come_back_byte_for_byte(log: Log, topic: str, publisher: Publisher) -> None:
    every_byte = bytes(range(256))
    message = Message(
        b"\x00key\xff", every_byte, (("ce_id", b"1"), ("raw", every_byte), ("twice", b""), ("twice", b"\xfe"))
    )
    await publisher.publish(topic, [message, Message(b"bare", b"{}")])
    async with member(log, topic) as consumer:
        received = await take(consumer, 2)
    assert {each.message for each in received} == {message, Message(b"bare", b"{}")}
    assert {each.topic for each in received} == {topic}


async def test_the_partition_is_the_one_that_other_kafka_clients_choose(
    log: Log, topic: str, publisher: Publisher
) -> None:
    # Where `kcat -P -X topic.partitioner=murmur2_random` put them, on a topic of four partitions.
    elsewhere = {b"acct-1:prop-1": 2, b"acct-1:prop-2": 0, b"a": 0, b"x": 2, b"demo:00123": 2, b"demo-generic:1042": 3}
    await publisher.publish(topic, [Message(key, b"{}") for key in elsewhere])
    async with member(log, topic) as consumer:
        received = await take(consumer, len(elsewhere))
    assert {each.message.key: each.partition for each in received} == elsewhere


async def test_a_message_says_when_the_log_took_it(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(1))
    async with member(log, topic) as consumer:
        first = (await take(consumer, 1))[0]
        await publisher.publish(topic, numbered(1))
        second = (await take(consumer, 1))[0]
    assert 1_600_000_000_000 < first.timestamp_ms <= second.timestamp_ms


async def test_receive_returns_no_more_than_it_was_asked_for(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(25))
    async with member(log, topic) as consumer:
        seen = 0
        async with asyncio.timeout(SOON):
            while seen < 25:
                batch = await consumer.receive(max_messages=4, wait_seconds=0.5)
                assert len(batch) <= 4
                seen += len(batch)


async def test_receive_returns_empty_when_nothing_comes_in_time(log: Log, topic: str) -> None:
    async with member(log, topic) as consumer:
        began = asyncio.get_running_loop().time()
        assert not await consumer.receive(max_messages=10, wait_seconds=0.2)
        assert asyncio.get_running_loop().time() - began >= 0.15


async def test_a_waiting_receive_wakes_for_a_message(log: Log, topic: str, publisher: Publisher) -> None:
    async with member(log, topic) as consumer:
        await consumer.receive(max_messages=1, wait_seconds=0.1)
        waiting = asyncio.create_task(take(consumer, 1))
        await publisher.publish(topic, numbered(1))
        assert (await waiting)[0].message == numbered(1)[0]


async def test_a_cancelled_receive_loses_nothing(log: Log, topic: str, publisher: Publisher) -> None:
    async with member(log, topic) as consumer:
        waiting = asyncio.create_task(consumer.receive(max_messages=10, wait_seconds=SOON))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await publisher.publish(topic, numbered(10))
        assert sorted(each.message.value for each in await take(consumer, 10)) == [b"%d" % each for each in range(10)]


async def test_a_cancelled_receive_does_not_shorten_the_next(log: Log, topic: str) -> None:
    async with member(log, topic) as consumer:
        assert await nothing_more(consumer)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await consumer.receive(max_messages=10, wait_seconds=0.1)
        began = asyncio.get_running_loop().time()
        assert not await consumer.receive(max_messages=10, wait_seconds=0.3)
        assert asyncio.get_running_loop().time() - began >= 0.25


async def test_of_a_large_batch_none_is_lost_or_doubled(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(2_000, keys=300))
    async with member(log, topic) as consumer:
        received = await take(consumer, 2_000)
        assert await nothing_more(consumer)
    assert numbers(received) == [*range(2_000)]


async def test_many_may_publish_at_once(log: Log, topic: str, publisher: Publisher) -> None:
    async def publish(number: int) -> None:
        for turn in range(10):
            await publisher.publish(topic, [Message(f"key-{number}".encode(), f"{turn}".encode())])

    async with asyncio.timeout(SOON):
        await asyncio.gather(*(publish(number) for number in range(64)))
    async with member(log, topic) as consumer:
        received = by_key(await take(consumer, 640))
    assert all(values == [b"%d" % turn for turn in range(10)] for values in received.values())
    assert len(received) == 64


async def test_a_big_message_passes(log: Log, topic: str, publisher: Publisher) -> None:
    big = Message(b"big", b"x" * 200_000)
    await publisher.publish(topic, [big, Message(b"big", b"next")])
    async with member(log, topic) as consumer:
        assert [each.message for each in await take(consumer, 2)] == [big, Message(b"big", b"next")]


async def test_the_biggest_message_passes_and_a_bigger_one_is_refused(
    log: Log, topic: str, publisher: Publisher
) -> None:
    biggest = Message(b"key", b"x" * (MAX_MESSAGE_BYTES - 119), (("header", b"y" * 100),))
    assert biggest.size == MAX_MESSAGE_BYTES
    too_big, small = Message(b"key", biggest.value + b"x", biggest.headers), Message(b"key", b"1")
    with pytest.raises(MessageTooLarge) as refused:
        await publisher.publish(topic, [small, too_big, biggest])
    assert (refused.value.sizes, refused.value.limit) == ({1: MAX_MESSAGE_BYTES + 1}, MAX_MESSAGE_BYTES)
    with pytest.raises(MessageTooLarge):
        await publisher.publish(topic, [too_big])
    async with member(log, topic) as consumer:
        assert [each.message for each in await take(consumer, 2)] == [small, biggest]
        assert await nothing_more(consumer)


async def test_publishing_nothing_does_nothing(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, [])
    async with log.tail(topic, from_beginning=True) as tail:
        assert await nothing_more(tail)


async def test_a_publisher_is_ready(publisher: Publisher, topic: str) -> None:
    await _becomes_ready(publisher)
    await publisher.publish(topic, numbered(1))
    await _becomes_ready(publisher)


async def _becomes_ready(publisher: Publisher) -> None:
    """It says no when the log does not answer within a second, as a busy broker may not."""
    async with asyncio.timeout(SOON):
        while not await publisher.ready():
            await asyncio.sleep(0.05)

"""What every log does for those who read it, on every backend: groups and their commits, tails, lag, topics."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Consumer, Log, Publisher
from tests.support.log.messages import by_key, ignore_partitions, lag, new_topic, nothing_more, numbered, numbers, take

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


async def test_what_was_not_committed_is_delivered_again(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(50))
    async with member(log, topic) as consumer:
        first = await take(consumer, 50)
    async with member(log, topic) as consumer:
        again = await take(consumer, 50)
    assert numbers(again) == numbers(first) == [*range(50)]


async def test_a_new_member_goes_on_after_what_was_committed(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(60))
    async with member(log, topic) as consumer:
        done = await take(consumer, 60)
        await consumer.commit(done)
        await publisher.publish(topic, numbered(40, first=60))
        assert len(await take(consumer, 40)) == 40
    async with member(log, topic) as consumer:
        assert numbers(await take(consumer, 40)) == [*range(60, 100)]
        assert await nothing_more(consumer)


async def test_a_commit_covers_only_the_partitions_of_what_is_committed(
    log: Log, topic: str, publisher: Publisher
) -> None:
    await publisher.publish(topic, numbered(80))
    async with member(log, topic) as consumer:
        received = await take(consumer, 80)
        partition = received[0].partition
        finished = [each for each in received if each.partition == partition][:3]
        await consumer.commit(finished)
    async with member(log, topic) as consumer:
        again = await take(consumer, 77)
        assert await nothing_more(consumer)
    assert sorted(numbers(again) + numbers(finished)) == [*range(80)]


async def test_committing_nothing_does_nothing(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(5))
    async with member(log, topic) as consumer:
        await consumer.commit([])
        assert len(await take(consumer, 5)) == 5


async def test_two_groups_each_receive_everything(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(30))
    async with member(log, topic, f"{topic}.one") as one, member(log, topic, f"{topic}.two") as two:
        first = await take(one, 30)
        await one.commit(first)
        second = await take(two, 30)
    assert by_key(first) == by_key(second)


async def test_on_partitions_is_told_of_every_partition_before_anything_is_received(
    log: Log, topic: str, publisher: Publisher
) -> None:
    told: list[frozenset[int]] = []

    async def note(partitions: frozenset[int]) -> None:
        told.append(partitions)

    await publisher.publish(topic, numbered(1))
    async with log.consumer(topic, group=topic, on_partitions=note) as consumer:
        await take(consumer, 1)
        assert told == [frozenset(range(PARTITIONS))]


async def test_a_tail_from_the_end_sees_only_what_comes_later(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(20))
    async with log.tail(topic) as tail:
        await publisher.publish(topic, numbered(20, first=100))
        assert numbers(await take(tail, 20)) == [*range(100, 120)]
        assert await nothing_more(tail)


async def test_a_tail_from_the_beginning_sees_everything(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(20))
    async with log.tail(topic, from_beginning=True) as tail:
        await publisher.publish(topic, numbered(20, first=20))
        assert numbers(await take(tail, 40)) == [*range(40)]


async def test_seek_to_end_skips_what_was_and_misses_nothing_after(log: Log, topic: str, publisher: Publisher) -> None:
    async with log.tail(topic, from_beginning=True) as tail:
        for turn in range(5):
            await publisher.publish(topic, numbered(20, first=1_000))
            await tail.receive(max_messages=3, wait_seconds=0.5)
            await tail.seek_to_end()
            await publisher.publish(topic, numbered(5, first=turn * 10))
            assert numbers(await take(tail, 5)) == [*range(turn * 10, turn * 10 + 5)]


async def test_a_tail_takes_nothing_from_a_group(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(10))
    async with log.tail(topic, from_beginning=True) as tail, member(log, topic) as consumer:
        assert len(await take(tail, 10)) == len(await take(consumer, 10)) == 10


async def test_lag_counts_what_is_not_committed(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(40))
    async with member(log, topic) as consumer:
        assert sum((await lag(log, topic, topic)).values()) == 40
        assert set(await lag(log, topic, topic)) == set(range(PARTITIONS))
        received = await take(consumer, 40)
        assert sum((await lag(log, topic, topic)).values()) == 40
        partition = received[0].partition
        await consumer.commit([each for each in received if each.partition == partition])
        assert not await consumer.receive(max_messages=1, wait_seconds=0.1)  # then all is committed
        assert (await lag(log, topic, topic))[partition] == 0
        await consumer.commit(received)
        assert not await consumer.receive(max_messages=1, wait_seconds=0.1)
        assert sum((await lag(log, topic, topic)).values()) == 0


async def test_all_that_was_committed_is_so_before_the_member_leaves(
    log: Log, topic: str, publisher: Publisher
) -> None:
    await publisher.publish(topic, numbered(40))
    async with member(log, topic) as consumer:
        for each in await take(consumer, 40):
            await consumer.commit([each])
    assert sum((await lag(log, topic, topic)).values()) == 0


async def test_creating_a_topic_twice_leaves_it_as_it_was(log: Log, topic: str) -> None:
    async with log.admin() as admin:
        assert not await admin.create({topic: 12})
        assert (await admin.list())[topic] == PARTITIONS


async def test_create_says_what_it_created(log: Log, topic: str) -> None:
    async with log.admin() as admin:
        assert list(await admin.create({topic: PARTITIONS, f"{topic}.more": 2})) == [f"{topic}.more"]
        assert {topic: PARTITIONS, f"{topic}.more": 2}.items() <= (await admin.list()).items()


async def test_topics_are_made_to_keep_messages_for_as_long_as_is_said(log: Log, topic: str) -> None:
    kept = timedelta(days=14)
    async with log.admin() as admin:
        await admin.create({f"{topic}.kept": 1}, retention=kept)
        # The embedded log keeps all alike.
        assert await admin.retention(f"{topic}.kept") == (kept if isinstance(log, KafkaLog) else timedelta(days=7))


async def test_another_member_takes_over_when_the_first_has_left(log: Log, topic: str, publisher: Publisher) -> None:
    await publisher.publish(topic, numbered(10))
    async with member(log, topic) as first:
        await first.commit(await take(first, 10))
    await publisher.publish(topic, numbered(10, first=10))
    async with member(log, topic) as second:
        assert numbers(await take(second, 10)) == [*range(10, 20)]


async def test_how_far_a_group_is_behind_is_told_without_any_of_its_members(
    log: Log, topic: str, publisher: Publisher
) -> None:
    async with log.admin() as admin:
        assert await admin.lag(f"{topic}.none", group=topic) == []
        assert [each.oldest_at for each in await admin.lag(topic, group=topic)] == [None] * PARTITIONS
        await publisher.publish(topic, numbered(40))
        async with member(log, topic) as consumer:
            received = await take(consumer, 40)
            await consumer.commit([each for each in received if each.offset == 0])
        await publisher.publish(topic, numbered(5, first=40))
        lags = await admin.lag(topic, group=topic)
        assert sum(each.messages for each in lags) == 45 - len({each.partition for each in received})
        seconds = {(each.partition, each.offset): each.timestamp_ms / 1000 for each in received}
        appended = {each.partition: each.oldest_at and each.oldest_at.timestamp() for each in lags}
        assert appended == {partition: seconds.get((partition, 1)) for partition in range(PARTITIONS)}


async def test_topics_are_described_and_members_counted_where_the_log_tells(
    log: Log, topic: str, backend: str, publisher: Publisher
) -> None:
    await publisher.publish(topic, numbered(1))
    async with log.admin() as admin:
        assert await admin.members("nobody-ever") == (0 if backend == "distributed" else None)
        async with member(log, topic) as consumer:
            await take(consumer, 1)
            assert await admin.members(topic) == (1 if backend == "distributed" else None)
        described = await admin.describe([topic, "there.is.no.such"])
    assert {name: each.partitions for name, each in described.items()} == {topic: PARTITIONS}
    assert described[topic].in_sync == described[topic].replicas >= 1

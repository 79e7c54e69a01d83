"""What only the log on Kafka does: partitions move between the members of a group; what was deleted is not said to be held."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete

from forwarder.topics.kafka import log as log_module
from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Consumer, Message, read_to_end
from tests.support.log.messages import SOON, Tally, ignore_partitions, new_topic, numbered, numbers, take

PARTITIONS = 6
LIMIT = 2.0  # seconds; the time limits of the log under test


@dataclass
class Ownership:
    """What a member was told that it owns."""

    told: list[frozenset[int]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def note(self, partitions: frozenset[int]) -> None:
        async with self.changed:
            self.told.append(partitions)
            self.changed.notify_all()

    @property
    def now(self) -> frozenset[int]:
        return self.told[-1] if self.told else frozenset()

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(SOON), self.changed:
            await self.changed.wait_for(reached)


@pytest.fixture
def log(kafka_bootstrap: str) -> KafkaLog:
    return KafkaLog(
        kafka_bootstrap,
        publish_timeout_seconds=LIMIT,
        session_timeout_seconds=LIMIT,
        silence_seconds=LIMIT,
    )


@pytest.fixture
async def topic(log: KafkaLog) -> str:
    return await new_topic(log, PARTITIONS)


@asynccontextmanager
async def at_the_same_time(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run `work` beside the block, and end it with the block. What it raises ends the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()


async def keep_receiving(consumer: Consumer, seen: Tally) -> None:
    while True:
        batch = await consumer.receive(max_messages=50, wait_seconds=0.2)
        seen.see(*(int(each.message.value) for each in batch))
        await consumer.commit(batch)


async def test_a_partition_that_is_added_is_read(
    log: KafkaLog, kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "METADATA_SECONDS", 0.2)
    topic, member = await new_topic(log, 1), Ownership()
    async with log.consumer(topic, group=topic, on_partitions=member.note) as consumer:
        async with _admin(kafka_bootstrap) as admin:
            await admin.create_partitions({topic: NewPartitions(2)})
        async with at_the_same_time(keep_receiving(consumer, Tally())):
            await member.until(lambda: member.now == {0, 1})


async def test_members_share_the_partitions_and_no_two_own_the_same(log: KafkaLog, topic: str) -> None:
    one, two = Ownership(), Ownership()
    everything = frozenset(range(PARTITIONS))
    received = Tally()
    async with (
        log.publisher() as publisher,
        log.consumer(topic, group=topic, on_partitions=one.note) as first,
        at_the_same_time(keep_receiving(first, received)),
    ):
        await one.until(lambda: one.now == everything)
        async with (
            log.consumer(topic, group=topic, on_partitions=two.note) as second,
            at_the_same_time(keep_receiving(second, received)),
        ):
            await one.until(lambda: frozenset() < one.now < everything)
            await two.until(lambda: two.now == everything - one.now)
            await publisher.publish(topic, numbered(200))
            await received.at_least(200)
        await one.until(lambda: one.now == everything)
    assert sorted(received) == list(range(200))
    # Before it is told of new partitions a member is told that it has none: no two ever work on the same one.
    assert one.told[0] == everything
    assert one.told[1] == frozenset()


async def test_a_receive_under_way_goes_on_waiting_through_a_rebalance(log: KafkaLog, topic: str) -> None:
    one, two = Ownership(), Ownership()
    everything = frozenset(range(PARTITIONS))
    async with log.publisher() as publisher, log.consumer(topic, group=topic, on_partitions=one.note) as first:
        await one.until(lambda: one.now == everything)
        waiting = asyncio.create_task(first.receive(max_messages=10, wait_seconds=SOON))
        async with log.consumer(topic, group=topic, on_partitions=two.note):
            await one.until(lambda: frozenset() < one.now < everything)
            await publisher.publish(topic, numbered(200))
            assert {each.partition for each in await waiting} <= one.now
            assert waiting.result()


async def test_more_members_than_partitions_leave_some_without(log: KafkaLog) -> None:
    owners = [Ownership() for _ in range(2)]
    narrow = await new_topic(log, 1)
    async with (
        log.consumer(narrow, group=narrow, on_partitions=owners[0].note) as first,
        log.consumer(narrow, group=narrow, on_partitions=owners[1].note) as second,
    ):
        idle = first if await _ends_without(owners[0], owners[1]) else second
        for _ in range(30):  # longer than silence may last: having nothing is no outage
            assert not await idle.receive(max_messages=1, wait_seconds=0.1)


async def _ends_without(one: Ownership, two: Ownership) -> bool:
    await two.until(lambda: bool(two.told))
    await one.until(lambda: len(one.now) + len(two.now) == 1)
    return not one.now


async def test_what_on_partitions_raises_comes_out_of_receive(log: KafkaLog, topic: str) -> None:
    async def fail(_: frozenset[int]) -> None:
        raise RuntimeError("the caller's own")

    async with log.consumer(topic, group=topic, on_partitions=fail) as consumer:
        with pytest.raises(RuntimeError, match="the caller's own"):
            await take(consumer, 1)


async def test_what_was_deleted_is_not_said_to_be_held_and_not_waited_for(log: KafkaLog, kafka_bootstrap: str) -> None:
    topic = await new_topic(log, 2)
    # Of these two partitions `b"a"` goes to the first and `b"d"` to the second.
    async with log.publisher() as publisher:
        await publisher.publish(topic, [Message(key, b"%d" % each) for each in range(10) for key in (b"a", b"d")])
    await _delete_before(kafka_bootstrap, {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 4})
    async with log.admin() as admin:
        held = await admin.offsets(topic)
    assert {partition: (each.start, each.stop) for partition, each in held.items()} == {0: (10, 10), 1: (4, 10)}
    async with asyncio.timeout(SOON):
        assert numbers([each async for batch in read_to_end(log, topic) for each in batch]) == [*range(4, 10)]


async def _delete_before(bootstrap: str, offsets: dict[TopicPartition, int]) -> None:
    async with _admin(bootstrap) as admin:
        await admin.delete_records({each: RecordsToDelete(before_offset=offset) for each, offset in offsets.items()})


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def test_a_coordinator_that_is_loading_makes_no_lag_as_old_as_the_topic(log: KafkaLog) -> None:
    """Its response has no partitions and an error of its own, which aiokafka does not look at."""
    topic = await new_topic(log, 2)
    async with log.publisher() as publisher:
        await publisher.publish(topic, numbered(20))
    async with log.consumer(topic, group=topic, on_partitions=ignore_partitions) as consumer:
        await consumer.commit(await take(consumer, 20))
    async with log.admin() as admin:
        client: AIOKafkaAdminClient = admin._client  # type: ignore[attr-defined] # noqa: SLF001
        ask, loading = client.list_consumer_group_offsets, [None]

        async def first_loading(*given: Any, **named: Any) -> Any:
            return {} if loading and loading.pop() is None else await ask(*given, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "list_consumer_group_offsets", first_loading)
            assert [each.messages for each in await admin.lag(topic, group=topic)] == [0, 0]
        assert loading == []

"""What only the log on Kafka does for the members of a group: partitions move between them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from forwarder.topics.kafka import KafkaLog
from forwarder.topics.port import Consumer
from tests.support.deliveries import SOON, Tally, new_topic, numbered, take

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
        batch = await consumer.receive(at_most=50, wait_seconds=0.2)
        seen.see(*(int(each.message.value) for each in batch))
        await consumer.commit(batch)


async def test_members_share_the_partitions_and_no_two_own_the_same(log: KafkaLog, topic: str) -> None:
    one, two = Ownership(), Ownership()
    everything = frozenset(range(PARTITIONS))
    received = Tally()
    async with (
        log.publisher() as publisher,
        log.consumer(topic, group="g", on_partitions=one.note) as first,
        at_the_same_time(keep_receiving(first, received)),
    ):
        await one.until(lambda: one.now == everything)
        async with (
            log.consumer(topic, group="g", on_partitions=two.note) as second,
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


async def test_more_members_than_partitions_leave_some_without(log: KafkaLog) -> None:
    owners = [Ownership() for _ in range(2)]
    narrow = await new_topic(log, 1)
    async with (
        log.consumer(narrow, group="g", on_partitions=owners[0].note) as first,
        log.consumer(narrow, group="g", on_partitions=owners[1].note) as second,
    ):
        idle = first if await _ends_without(owners[0], owners[1]) else second
        for _ in range(30):  # longer than silence may last: having nothing is no outage
            assert not await idle.receive(at_most=1, wait_seconds=0.1)


async def _ends_without(one: Ownership, two: Ownership) -> bool:
    await two.until(lambda: bool(two.told))
    await one.until(lambda: len(one.now) + len(two.now) == 1)
    return not one.now


async def test_what_on_partitions_raises_comes_out_of_receive(log: KafkaLog, topic: str) -> None:
    async def fail(_: frozenset[int]) -> None:
        raise RuntimeError("the caller's own")

    async with log.consumer(topic, group="g", on_partitions=fail) as consumer:
        with pytest.raises(RuntimeError, match="the caller's own"):
            await take(consumer, 1)

"""What only the log on Kafka goes through: brokers that are killed, freeze, refuse, and come back."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import pytest

from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import ConsumedMessage, Consumer, LogUnavailable, Message, Publisher, Tail
from tests.support.log.messages import (
    SOON,
    Tally,
    ignore_partitions,
    new_topic,
    numbered,
    numbers,
    take,
    until_published,
)
from tools.servers.kafka.process import KafkaCluster

PARTITIONS = 6
LIMIT = 2.0  # seconds; the time limits of the log under test


@pytest.fixture
def log(kafka_to_kill: KafkaCluster) -> KafkaLog:
    return KafkaLog(
        kafka_to_kill.bootstrap_servers,
        publish_timeout_seconds=LIMIT,
        session_timeout_seconds=LIMIT,
        silence_seconds=LIMIT,
    )


@pytest.fixture
async def topic(kafka_to_kill: KafkaCluster) -> str:
    """Made without the limits of the log under test: a broker that has just started takes its time."""
    return await new_topic(KafkaLog(kafka_to_kill.bootstrap_servers), PARTITIONS)


async def until_unavailable(source: Consumer | Tail) -> None:
    async with asyncio.timeout(SOON):
        while True:
            try:
                await source.receive(max_messages=10, wait_seconds=0.1)
            except LogUnavailable:
                return


async def uncommittable(consumer: Consumer, received: Sequence[ConsumedMessage]) -> None:
    """Fails unless a commit raises `LogUnavailable` once one is due."""
    async with asyncio.timeout(LIMIT + 2):
        while True:
            try:
                await consumer.commit(received)
            except LogUnavailable:
                return
            await asyncio.sleep(0)


async def unavailable(attempt: Awaitable[object]) -> None:
    """Fails unless `attempt` raises `LogUnavailable` not long after the limit."""
    with pytest.raises(LogUnavailable):
        async with asyncio.timeout(LIMIT + 2):
            await attempt


async def test_with_no_broker_everything_is_unavailable_in_time_and_all_parts_recover_by_themselves(
    log: KafkaLog, kafka_to_kill: KafkaCluster, topic: str
) -> None:
    beside = await new_topic(
        KafkaLog(kafka_to_kill.bootstrap_servers), 1
    )  # what is unavailable may have been published all the same
    async with (
        log.publisher() as publisher,
        log.consumer(topic, group="g", on_partitions=ignore_partitions) as consumer,
        log.tail(topic) as tail,
        log.admin() as admin,
    ):
        await publisher.publish(topic, numbered(10))
        received = await take(consumer, 10)
        await consumer.commit(received)
        await take(tail, 10)
        await asyncio.to_thread(kafka_to_kill.kill)
        await asyncio.gather(
            unavailable(publisher.publish(beside, numbered(1))),
            uncommittable(consumer, received),
            unavailable(admin.lag(topic, group="g")),
            unavailable(tail.seek_to_end()),
            unavailable(admin.list()),
            until_unavailable(consumer),
        )
        await until_unavailable(tail)
        assert not await publisher.ready()
        await _nothing_opens(log, topic)
        await asyncio.to_thread(kafka_to_kill.start)
        await until_published(publisher, topic, numbered(10, first=10))
        assert numbers(await take(tail, 10, through_outages=True)) == [*range(10, 20)]
        seen = set[int]()  # some of them twice, if it has to join its group again
        while len(seen) < 10:
            seen.update(numbers(await take(consumer, 1, through_outages=True)))
        assert seen == {*range(10, 20)}
        assert await publisher.ready()


async def _nothing_opens(log: KafkaLog, topic: str) -> None:
    for part in (
        log.publisher(),
        log.consumer(topic, group="g", on_partitions=ignore_partitions),
        log.tail(topic),
        log.admin(),
    ):
        await unavailable(part.__aenter__())


async def test_a_topic_that_does_not_exist_is_unavailable_in_time(log: KafkaLog, topic: str) -> None:
    async with log.publisher() as publisher:
        await unavailable(publisher.publish("nowhere", numbered(1)))
        await publisher.publish(topic, numbered(1))


async def until_not_ready(publisher: Publisher) -> None:
    """Not at once: what was asked before the broker froze may have been answered. But each answer soon."""
    ready = True
    async with asyncio.timeout(SOON):
        while ready:
            ready = await publisher.ready()


async def test_a_frozen_broker_is_unavailable_in_time(log: KafkaLog, kafka_to_kill: KafkaCluster, topic: str) -> None:
    async with log.publisher() as publisher:
        await publisher.publish(topic, numbered(1))
        await asyncio.to_thread(kafka_to_kill.brokers[0].pause)
        await until_not_ready(publisher)
        await unavailable(publisher.publish(topic, numbered(1)))
        await asyncio.to_thread(kafka_to_kill.brokers[0].resume)
        await until_published(publisher, topic, numbered(1))


async def test_leaving_does_not_wait_for_brokers_that_are_gone(
    log: KafkaLog, kafka_to_kill: KafkaCluster, topic: str
) -> None:
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(log.publisher())
        await stack.enter_async_context(log.consumer(topic, group="g", on_partitions=ignore_partitions))
        await stack.enter_async_context(log.tail(topic))
        await asyncio.to_thread(kafka_to_kill.brokers[0].pause)
        unanswered = asyncio.create_task(publisher.publish(topic, numbered(10)))
        await asyncio.sleep(0)
        left = stack.pop_all()
    try:
        async with asyncio.timeout(5 * LIMIT):
            await left.aclose()
        with pytest.raises(LogUnavailable):
            await unanswered
    finally:
        await asyncio.to_thread(kafka_to_kill.brokers[0].resume)


@pytest.mark.slow  # three brokers; for a change, one is killed above
async def test_of_what_is_acknowledged_while_a_leader_dies_none_is_lost_or_doubled(
    kafka_cluster: Callable[[int], KafkaCluster],
) -> None:
    cluster = await asyncio.to_thread(kafka_cluster, 3)
    log = KafkaLog(cluster.bootstrap_servers, publish_timeout_seconds=30)
    topic = await new_topic(log, PARTITIONS)
    acknowledged = Tally()
    to_publish = itertools.count()
    stop = asyncio.Event()

    async def write(publisher: Publisher, writer: int) -> None:
        while not stop.is_set():
            number = next(to_publish)
            await publisher.publish(topic, [Message(b"key-%d" % writer, b"%d" % number)])
            acknowledged.see(number)

    async with log.publisher() as publisher, log.tail(topic) as tail:
        async with asyncio.TaskGroup() as writers:
            for writer in range(16):
                writers.create_task(write(publisher, writer))
            await acknowledged.at_least(200)
            await asyncio.to_thread(cluster.brokers[0].kill)
            await acknowledged.at_least(len(acknowledged) + 500)
            stop.set()
        received = numbers(await take(tail, len(acknowledged), through_outages=True))
    assert received == sorted(acknowledged)

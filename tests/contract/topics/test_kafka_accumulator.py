"""When a batch is sent to Kafka: at once, or after a burst when others have joined it, and no later than when enough have."""

from asyncio import Future, gather, sleep, timeout
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from forwarder.topics.kafka.accumulator import BatchAccumulator
from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Message
from forwarder.topics.publishing import partition_of
from tests.support.log.messages import SOON, new_topic, numbered, numbers, take

FOR_EVER = 3600.0
BURST = 3
ENOUGH = 40
PARTITIONS = 4
ELSEWHERE = next(
    key
    for key in (b"key-%d" % each for each in range(1, 50))
    if partition_of(key, PARTITIONS) != partition_of(b"key-0", PARTITIONS)
)
"""A key of another partition than the first of those that are numbered."""


@pytest.fixture
def log(kafka_bootstrap: str) -> KafkaLog:
    return KafkaLog(kafka_bootstrap)


@pytest.fixture
async def topic(log: KafkaLog) -> str:
    return await new_topic(log, PARTITIONS)


@pytest.fixture
async def producer(kafka_bootstrap: str, topic: str) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap, enable_idempotence=True)
    await producer.start()
    await producer.partitions_for(topic)
    yield producer
    await producer.stop()


def patient(producer: AIOKafkaProducer) -> BatchAccumulator:
    return BatchAccumulator(producer, pause_seconds=FOR_EVER, limit_seconds=FOR_EVER)


def add(batches: BatchAccumulator, topic: str, count: int, *, first: int = 0, keys: int = 50) -> Sequence[Future[None]]:
    added = [batches.enqueue(topic, message) for message in numbered(count, first=first, keys=keys)]
    assert None not in added
    return [each[1] for each in added if each is not None]


async def acknowledged(added: Sequence[Future[None]]) -> None:
    async with timeout(SOON):
        await gather(*added)


async def test_a_few_never_wait(producer: AIOKafkaProducer, topic: str) -> None:
    batches = patient(producer)
    for each in range(5):
        await acknowledged(add(batches, topic, BURST - 1, first=each))


async def test_after_a_crowd_they_wait_until_there_are_enough(
    log: KafkaLog, producer: AIOKafkaProducer, topic: str
) -> None:
    batches = patient(producer)
    await acknowledged(add(batches, topic, BURST))
    waiting = add(batches, topic, ENOUGH - 1, first=BURST)
    await acknowledged(add(patient(producer), topic, 1, first=99))  # what leaves is acknowledged by then
    assert not any(each.done() for each in waiting)
    waiting = [*waiting, *add(batches, topic, 1, first=BURST + ENOUGH - 1)]
    await acknowledged(waiting)
    async with log.tail(topic, from_beginning=True) as tail:
        assert numbers(await take(tail, BURST + ENOUGH + 1)) == [*range(BURST + ENOUGH), 99]


async def test_enough_of_one_partition_leave_as_soon_as_it_is_free(producer: AIOKafkaProducer, topic: str) -> None:
    batches = patient(producer)
    on_their_way = add(batches, topic, BURST, keys=1)
    for _ in range(5):
        await sleep(0)  # they have left
    enough = add(batches, topic, ENOUGH, keys=1)
    # A crowd for another partition, which leaves before them.
    others = [batches.enqueue(topic, Message(ELSEWHERE, b"%d" % each)) for each in range(BURST)]
    await acknowledged([*on_their_way, *enough, *(each[1] for each in others if each)])
    assert None not in others


async def test_a_topic_that_is_not_known_yet_takes_waiting(log: KafkaLog, producer: AIOKafkaProducer) -> None:
    batches = patient(producer)
    unknown = await new_topic(log, 2)
    assert batches.enqueue(unknown, *numbered(1)) is None  # nothing is known of it: `publish` waits until it is
    async with timeout(SOON):
        await batches.publish(unknown, numbered(1))
    await acknowledged(add(batches, unknown, 1, first=1))
    async with log.tail(unknown, from_beginning=True) as tail:
        assert numbers(await take(tail, 2)) == [0, 1]


async def test_a_batch_that_is_broken_off_leaves_its_partition_free(
    log: KafkaLog, producer: AIOKafkaProducer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka 0.14 breaks none off. Were one to be, those behind it would wait for ever."""
    send = producer.send_batch

    async def broken_off(*batch: Any, **where: Any) -> Future[Any]:
        future: Future[Any] = await send(*batch, **where)
        future.cancel()
        return future

    batches = patient(producer)
    with monkeypatch.context() as patched:
        patched.setattr(producer, "send_batch", broken_off)
        with pytest.raises(KafkaError):
            await acknowledged(add(batches, topic, 1, keys=1))
    await acknowledged(add(batches, topic, 1, first=1, keys=1))

"""When a batch is sent to Kafka: at once, or after a burst when others have joined it."""

import asyncio
from asyncio import Future, Task, gather, timeout
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.kafka.publisher import BatchAccumulator
from tests.support.log.messages import SOON, new_topic, numbered, numbers, take

FOR_EVER = 3600.0
BURST = 3
PARTITIONS = 4


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
    return BatchAccumulator(producer, pause_seconds=FOR_EVER)


def add(batches: BatchAccumulator, topic: str, count: int, *, first: int = 0) -> Sequence[Task[Collection[int]]]:
    return [
        asyncio.create_task(batches.publish(topic, [each], asyncio.get_running_loop().time() + 30))
        for each in numbered(count, first=first)
    ]


async def acknowledged(added: Sequence[Task[Collection[int]]]) -> None:
    async with timeout(SOON):
        await gather(*added)


async def test_a_few_never_wait(producer: AIOKafkaProducer, topic: str) -> None:
    batches = patient(producer)
    for each in range(5):
        await acknowledged(add(batches, topic, BURST - 1, first=each))


async def test_after_a_burst_messages_wait_for_the_pause_to_end(
    log: KafkaLog, producer: AIOKafkaProducer, topic: str
) -> None:
    batches = patient(producer)
    await acknowledged(add(batches, topic, BURST))
    waiting = add(batches, topic, BURST, first=BURST)
    await acknowledged(add(patient(producer), topic, 1, first=99))  # what leaves is acknowledged by then
    assert not any(each.done() for each in waiting)
    await batches.drain()  # ends the pause
    await acknowledged(waiting)
    async with log.tail(topic, from_beginning=True) as tail:
        assert sorted(numbers(await take(tail, 2 * BURST + 1))) == [*range(2 * BURST), 99]


async def test_a_topic_that_is_not_known_yet_takes_waiting(log: KafkaLog, producer: AIOKafkaProducer) -> None:
    batches = patient(producer)
    unknown = await new_topic(log, 2)
    await acknowledged(add(batches, unknown, 1))
    async with log.tail(unknown, from_beginning=True) as tail:
        assert numbers(await take(tail, 1)) == [0]


async def test_a_batch_that_is_broken_off_leaves_its_partition_free(
    producer: AIOKafkaProducer, topic: str, monkeypatch: pytest.MonkeyPatch
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
            await acknowledged(add(batches, topic, 1))
    await acknowledged(add(batches, topic, 1))

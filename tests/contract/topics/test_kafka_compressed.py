"""Topics and producers that compress, in every codec of Kafka; and what a process does that lacks the codec."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from forwarder.topics.kafka import reader
from forwarder.topics.kafka.log import KafkaConsumer, KafkaLog
from forwarder.topics.port import (
    ConsumedMessage,
    Consumer,
    LogUnreadable,
    Message,
    partition_of,
    read_last,
    read_to_end,
)
from tests.support.log.foreign_batches import topic_with
from tests.support.log.messages import SOON, ignore_partitions, lag, new_topic, numbered, numbers, take

CODECS = ["gzip", "lz4", "snappy", "zstd"]
PARTITIONS = 2
MANY = 2_000


@pytest.fixture
def log(kafka_bootstrap: str) -> KafkaLog:
    return KafkaLog(kafka_bootstrap, silence_seconds=3.0)


async def written_by_another(
    bootstrap_servers: str, topic: str, codec: str | None, messages: Sequence[Message]
) -> None:
    """In batches as large as can be."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, compression_type=codec, linger_ms=50) as producer:
        sent = [await producer.send(topic, each.value, key=each.key, headers=list(each.headers)) for each in messages]
        await asyncio.gather(*sent)


async def everything(log: KafkaLog, topic: str) -> list[ConsumedMessage]:
    return [each async for batch in read_to_end(log, topic) for each in batch]


@pytest.mark.parametrize("codec", CODECS)
async def test_what_the_topic_compresses_is_read_by_every_reader(
    log: KafkaLog, kafka_bootstrap: str, codec: str
) -> None:
    topic = await topic_with(kafka_bootstrap, PARTITIONS, {"compression.type": codec})
    async with log.publisher() as publisher:
        await publisher.publish(topic, numbered(MANY))
    async with log.consumer(topic, group=topic, on_partitions=ignore_partitions) as consumer:
        read = await take(consumer, MANY)
        assert numbers(read) == list(range(MANY))
        await consumer.commit(read)
        assert not consumer.unreadable
    async with log.tail(topic, from_beginning=True) as tail:
        assert numbers(await take(tail, MANY)) == list(range(MANY))
    assert numbers(await everything(log, topic)) == list(range(MANY))
    assert len(await read_last(log, topic, 3)) == 3 * PARTITIONS


@pytest.mark.parametrize("codec", CODECS)
async def test_what_another_producer_compressed_is_read(log: KafkaLog, kafka_bootstrap: str, codec: str) -> None:
    topic = await new_topic(log, PARTITIONS)
    await written_by_another(kafka_bootstrap, topic, codec, numbered(MANY))
    async with log.consumer(topic, group=topic, on_partitions=ignore_partitions) as consumer:
        assert numbers(await take(consumer, MANY)) == list(range(MANY))


async def until(condition: Callable[[Sequence[ConsumedMessage]], bool], consumer: Consumer) -> list[ConsumedMessage]:
    """What came until it is met, each once."""
    came: dict[tuple[int, int], ConsumedMessage] = {}
    async with asyncio.timeout(SOON):
        while not condition([*came.values()]):
            received = await consumer.receive(max_messages=10, wait_seconds=0.1)
            came |= {(each.partition, each.offset): each for each in received}
    return [*came.values()]


async def test_what_cannot_be_read_here_waits_and_everything_else_goes_on(
    log: KafkaLog, kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process without the codec of one message, which gets it."""
    caplog.set_level("INFO", "forwarder")
    monkeypatch.setattr(reader, "_AGAIN_SECONDS", 0.2)
    topic = await new_topic(log, PARTITIONS)
    key = {partition_of(each.key, PARTITIONS): each.key for each in numbered(20)}
    async with (
        log.publisher() as publisher,
        log.consumer(topic, group=topic, on_partitions=ignore_partitions) as consumer,
    ):
        await publisher.publish(topic, [Message(key[0], b"0"), Message(key[1], b"1")])
        await written_by_another(kafka_bootstrap, topic, "lz4", [Message(key[0], b"2"), Message(key[0], b"3")])
        await publisher.publish(topic, [Message(key[0], b"4"), Message(key[1], b"5")])
        with monkeypatch.context() as lacking:
            lacking.setattr("aiokafka.codec.has_lz4", lambda: False)
            first = await until(lambda came: len(came) == 3 and bool(consumer.unreadable), consumer)
            assert consumer.unreadable == {0: 1}
            await publisher.publish(topic, [Message(key[1], b"6")])
            first += await take(consumer, 1)
            assert numbers(first) == [0, 1, 5, 6]
            await consumer.commit(first)
            for _ in range(3):
                assert not await consumer.receive(max_messages=10, wait_seconds=0.3)
            assert await lag(log, topic, topic) == {0: 3, 1: 0}
            with pytest.raises(LogUnreadable, match=r"partition 0 cannot be read from offset 1 .*cramjam"):
                await everything(log, topic)
        assert numbers(await take(consumer, 3)) == [2, 3, 4]
        assert not consumer.unreadable
    unreadable = [vars(each) for each in caplog.records if each.message == "partition.unreadable"]
    assert [(each["offset"], "cramjam" in each["remedy"]) for each in unreadable] == 2 * [(1, True)]
    by_consumer, by_tail = (
        ["partition.unreadable", "partition.readable_again"],
        ["partition.unreadable", "partition.given_up"],
    )
    assert said(caplog) == [by_consumer[0], *by_tail, by_consumer[1]]
    assert numbers(await everything(log, topic)) == [0, 1, 2, 3, 4, 5, 6]


async def test_a_partition_that_waits_and_is_given_up_is_said_to_be(
    log: KafkaLog, kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a rebalance, also in the middle of a try to read it, and when the member leaves."""
    caplog.set_level("INFO", "forwarder")
    monkeypatch.setattr(reader, "_AGAIN_SECONDS", 0.0)
    topic = await new_topic(log, 1)
    await written_by_another(kafka_bootstrap, topic, "lz4", [Message(b"k", b"0")])
    monkeypatch.setattr("aiokafka.codec.has_lz4", lambda: False)
    async with log.consumer(topic, group=topic, on_partitions=ignore_partitions) as consumer:
        for turn in range(3):
            assert not await until(lambda _: bool(consumer.unreadable), consumer)
            async with asyncio.timeout(SOON), log.consumer(topic, group=topic, on_partitions=ignore_partitions):
                while said(caplog).count("partition.given_up") == turn:
                    assert not await consumer.receive(max_messages=10, wait_seconds=0.1)
        assert not await until(lambda _: bool(consumer.unreadable), consumer)
    assert said(caplog) == (len(said(caplog)) // 2) * ["partition.unreadable", "partition.given_up"]


@pytest.mark.parametrize("readable", [True, False])
async def test_a_partition_may_be_given_up_while_it_is_tried_again(
    log: KafkaLog, kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    monkeypatch.setattr(reader, "_AGAIN_SECONDS", 0.0)
    topic, lacks = await new_topic(log, 1), [True]
    await written_by_another(kafka_bootstrap, topic, "lz4", [Message(b"k", b"0")])
    monkeypatch.setattr("aiokafka.codec.has_lz4", lambda: not lacks)
    fetched = reader.fetched
    async with log.consumer(topic, group=topic, on_partitions=ignore_partitions) as consumer:
        assert isinstance(consumer, KafkaConsumer)

        async def meanwhile(*arguments: Any, **more: Any) -> Any:
            monkeypatch.setattr(reader, "fetched", fetched)
            assert consumer._reader is not None  # noqa: SLF001
            consumer._reader.discard()  # noqa: SLF001
            return await fetched(*arguments, **more)

        await until(lambda _: bool(consumer.unreadable), consumer)
        monkeypatch.setattr(reader, "fetched", meanwhile)
        if readable:
            lacks.clear()
        else:
            await consumer.receive(max_messages=1, wait_seconds=0.5)
            assert consumer.unreadable == {0: 0}
            lacks.clear()
        assert numbers(await take(consumer, 1)) == [0]
        assert not consumer.unreadable


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of partitions."""
    return [each.message for each in caplog.records if each.message.startswith("partition.")]

"""Topics that take less than the publisher sends at once: batches are divided, and only what is too large by itself is refused."""

import asyncio

import pytest

from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Message, MessageTooLarge
from tests.support.log.foreign_batches import topic_with
from tests.support.log.messages import SOON, by_key, take

LIMIT = 8_000
PARTITIONS = 2


@pytest.fixture
def log(kafka_bootstrap: str) -> KafkaLog:
    return KafkaLog(kafka_bootstrap)


def message(number: int, size: int = 300) -> Message:
    return Message(b"key-%d" % (number % 5), b"%d " % number + b"x" * size)


@pytest.fixture
async def topic(kafka_bootstrap: str) -> str:
    return await topic_with(kafka_bootstrap, PARTITIONS, {"max.message.bytes": str(LIMIT)})


async def test_batches_that_are_too_large_are_divided(log: KafkaLog, topic: str) -> None:
    """In order, each once, whether they came in one call or in many."""
    sent = [message(each) for each in range(600)]
    async with log.publisher() as publisher, asyncio.timeout(SOON):
        await publisher.publish(topic, sent[:300])
        await asyncio.gather(*(publisher.publish(topic, [each]) for each in sent[300:]))
        assert await publisher.ready()
    async with log.tail(topic, from_beginning=True) as tail:
        read = by_key(await take(tail, len(sent)))
    expected: dict[bytes, list[bytes]] = {}
    for each in sent:
        expected.setdefault(each.key, []).append(each.value)
    assert read == expected


async def test_what_is_too_large_by_itself_is_refused_and_takes_no_neighbour_with_it(log: KafkaLog, topic: str) -> None:
    neighbours = [message(each) for each in range(48)]
    large = [message(each, 10_000) for each in range(100, 103)]
    async with log.publisher() as publisher, asyncio.timeout(SOON):
        await publisher.publish(topic, [message(0)])
        results = await asyncio.gather(
            *(publisher.publish(topic, [each]) for each in [*neighbours[:24], *large, *neighbours[24:]]),
            return_exceptions=True,
        )
        refused = [each for each in results if each is not None]
        assert [type(each) for each in refused] == [MessageTooLarge] * 3
        assert [(each.sizes, each.limit) for each in refused if isinstance(each, MessageTooLarge)] == [
            ({0: one.size}, LIMIT) for one in large
        ]
        with pytest.raises(MessageTooLarge) as of_bulk:
            await publisher.publish(topic, [message(200), large[0], message(201), large[1], message(202)])
        assert of_bulk.value.sizes == {1: large[0].size, 3: large[1].size}
        assert await publisher.ready()
        await publisher.publish(topic, [message(203)])
    async with log.tail(topic, from_beginning=True) as tail:
        read = await take(tail, 1 + 48 + 4)
    numbers = sorted(int(each.message.value.split()[0]) for each in read)
    assert numbers == [0, *range(48), 200, 201, 202, 203]

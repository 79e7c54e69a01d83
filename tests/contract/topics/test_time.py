"""What every log makes of a moment, on every backend: a tail that begins there, and reading from there to the end."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from forwarder.topics.port import ConsumedMessage, Log, Message, Publisher, Tail, read_to_end
from tests.support.log.messages import SOON, new_topic, nothing_more, numbered, numbers, take

PARTITIONS = 4
# By which partition a key goes to is in `test_topics`: this one goes to partition 0.
FIRST = b"acct-1:prop-2"


@pytest.fixture
async def topic(log: Log) -> str:
    return await new_topic(log, PARTITIONS)


@pytest.fixture
async def publisher(log: Log) -> AsyncIterator[Publisher]:
    async with log.publisher() as opened:
        yield opened


@pytest.fixture
async def tail(log: Log, topic: str) -> AsyncIterator[Tail]:
    async with log.tail(topic, from_beginning=True) as opened:
        yield opened


def taken_at(message: ConsumedMessage) -> datetime:
    return datetime.fromtimestamp(message.timestamp_ms / 1000, UTC)


async def in_turn(publisher: Publisher, topic: str, tail: Tail, *batches: Sequence[Message]) -> list[ConsumedMessage]:
    """All of `batches`, published so that the log's clock has gone on between any two."""
    seen: list[ConsumedMessage] = []
    for batch in batches:
        while seen and datetime.now(UTC) <= taken_at(seen[-1]) + timedelta(milliseconds=1):
            await tail.receive(max_messages=1, wait_seconds=0.001)
        await publisher.publish(topic, batch)
        seen += await take(tail, len(batch))
    return seen


async def seek_to_time(log: Log, tail: Tail, topic: str, moment: datetime) -> Mapping[int, int]:
    async with log.admin() as admin:
        (offsets,) = await admin.offsets_at(topic, [moment])
    await tail.seek(offsets)
    return offsets


async def until_the_end(log: Log, topic: str, since: datetime) -> list[int]:
    async with asyncio.timeout(SOON):
        return numbers([each async for batch in read_to_end(log, topic, since=since) for each in batch])


async def test_a_tail_goes_on_from_what_was_taken_at_that_moment(
    log: Log, topic: str, publisher: Publisher, tail: Tail
) -> None:
    seen = await in_turn(publisher, topic, tail, numbered(20), numbered(20, first=20))
    moment = min(taken_at(each) for each in seen[20:])
    places = await seek_to_time(log, tail, topic, moment)
    assert numbers(await take(tail, 20)) == [*range(20, 40)]
    assert await nothing_more(tail)
    for partition in range(PARTITIONS):
        later = [each.offset for each in seen[20:] if each.partition == partition]
        assert places[partition] == min(later)
    assert await until_the_end(log, topic, moment) == [*range(20, 40)]
    ends = {each: sum(one.partition == each for one in seen) for each in range(PARTITIONS)}
    long_ago, soon = datetime(1969, 1, 1, tzinfo=UTC), datetime.now(UTC) + timedelta(days=1)
    async with log.admin() as admin:
        found = await admin.offsets_at(topic, [moment, long_ago, soon])
        assert found == [places, dict.fromkeys(range(PARTITIONS), 0), ends]
        assert await admin.offsets_at(f"{topic}.none", [moment, soon]) == [{}, {}]


async def test_before_everything_is_the_beginning_and_after_it_the_end(
    log: Log, topic: str, publisher: Publisher, tail: Tail
) -> None:
    await in_turn(publisher, topic, tail, numbered(10))
    long_ago, soon = datetime(1969, 1, 1, tzinfo=UTC), datetime.now(UTC) + timedelta(days=1)
    await seek_to_time(log, tail, topic, long_ago)
    assert numbers(await take(tail, 10)) == [*range(10)]
    await seek_to_time(log, tail, topic, soon)
    assert await nothing_more(tail)
    await publisher.publish(topic, numbered(5, first=100))
    assert numbers(await take(tail, 5)) == [*range(100, 105)]
    assert await until_the_end(log, topic, long_ago) == [*range(10), *range(100, 105)]
    assert await until_the_end(log, topic, soon) == []


async def test_a_partition_in_which_nothing_came_since_is_not_waited_for(
    log: Log, topic: str, publisher: Publisher, tail: Tail
) -> None:
    last = (await in_turn(publisher, topic, tail, numbered(40), [Message(FIRST, b"1000")]))[-1]
    assert await until_the_end(log, topic, taken_at(last)) == [1000]


async def test_of_a_topic_without_messages_every_moment_is_the_end(log: Log, topic: str, tail: Tail) -> None:
    now = datetime.now(UTC)
    assert await seek_to_time(log, tail, topic, now) == dict.fromkeys(range(PARTITIONS), 0)
    assert await until_the_end(log, topic, now) == []
    assert await until_the_end(log, f"{topic}.none", now) == []

"""What the suites of the log share: messages to publish, and taking them until there are enough. Touches nothing itself."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Sequence

from forwarder.topics.port import ConsumedMessage, Consumer, Log, LogUnavailable, Message, Publisher, Tail

SOON = 45.0
"""Seconds; a bound for failures, never a wait."""


class Tally(list[int]):
    """Numbers that were seen, and somebody who waits until there are enough."""

    def __init__(self) -> None:
        super().__init__()
        self._enough: tuple[int, asyncio.Event] = (0, asyncio.Event())

    def see(self, *numbers: int) -> None:
        self.extend(numbers)
        count, reached = self._enough
        if len(self) >= count:
            reached.set()

    async def at_least(self, count: int) -> None:
        self._enough = (count, asyncio.Event())
        self.see()
        async with asyncio.timeout(SOON):
            await self._enough[1].wait()


def numbered(count: int, *, first: int = 0, keys: int = 50) -> list[Message]:
    """Messages whose values are numbers, from `first` on."""
    return [Message(b"key-%d" % (each % keys), b"%d" % each) for each in range(first, first + count)]


def numbers(messages: Sequence[ConsumedMessage]) -> list[int]:
    """Their numbers, in ascending order, each as often as it came."""
    return sorted(int(each.message.value) for each in messages)


def by_key(messages: Sequence[ConsumedMessage]) -> dict[bytes, list[bytes]]:
    """The values of each key, in the order in which they came."""
    values: dict[bytes, list[bytes]] = defaultdict(list)
    for each in messages:
        values[each.message.key].append(each.message.value)
    return values


async def ignore_partitions(_: frozenset[int]) -> None:
    """For a consumer whose partitions are of no interest."""


async def take(source: Consumer | Tail, count: int, *, through_outages: bool = False) -> list[ConsumedMessage]:
    """So many messages; fails when they do not come. `LogUnavailable` ends it, unless it is to go on `through_outages`."""
    taken: list[ConsumedMessage] = []
    async with asyncio.timeout(SOON):
        while len(taken) < count:
            try:
                taken += await source.receive(max_messages=count - len(taken), wait_seconds=0.2)
            except LogUnavailable:
                if not through_outages:
                    raise
    return taken


async def nothing_more(source: Consumer | Tail) -> bool:
    """Whether nothing comes for a while."""
    return not await source.receive(max_messages=10, wait_seconds=0.3)


async def until_published(publisher: Publisher, topic: str, messages: Sequence[Message]) -> None:
    """Publish, again and again while the log is unavailable."""
    async with asyncio.timeout(SOON):
        while True:
            try:
                return await publisher.publish(topic, messages)
            except LogUnavailable:
                continue


async def new_topic(log: Log, partitions: int) -> str:
    """A topic that nobody else has, on a log that others may share. Name a group after it: a member that another test adds to the
    group starts a rebalance."""
    name = f"test.{uuid.uuid4().hex[:12]}"
    async with log.admin() as admin:
        await admin.create({name: partitions})
    return name


async def lag(log: Log, topic: str, group: str) -> dict[int, int]:
    """How many messages the group is behind, by partition."""
    async with log.admin() as admin:
        return {each.partition: each.messages for each in await admin.lag(topic, group=group)}

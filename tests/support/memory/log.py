"""A log in memory at the log's own seam: publisher and tail, which can be away, or slow to acknowledge."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from forwarder.process.clock import Clock
from forwarder.topics.port import MAX_MESSAGE_BYTES, ConsumedMessage, LogUnavailable, Message, MessageTooLarge


class MemoryLog:
    """Implements `Publisher`; `tail` gives a `Tail`. Clear `acknowledging` to hold acknowledgements back."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.away = False
        self.max_bytes = MAX_MESSAGE_BYTES
        self.acknowledging = asyncio.Event()
        self.acknowledging.set()
        self.topics: defaultdict[str, list[Message]] = defaultdict(list)
        self.attempts = 0
        self._changed = asyncio.Condition()

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        self.attempts += 1
        await self._notify()
        await self.acknowledging.wait()
        self.require()
        sizes = {index: each.size for index, each in enumerate(messages) if each.size > self.max_bytes}
        self.topics[topic] += [each for index, each in enumerate(messages) if index not in sizes]
        await self._notify()
        if sizes:
            raise MessageTooLarge(sizes, self.max_bytes)

    def partition(self, topic: str, key: str) -> int | None:
        return 0

    async def holds(self, topic: str, count: int) -> None:
        """Return once so many messages were stored."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.topics[topic]) >= count)

    async def attempted(self, count: int) -> None:
        """Return once so many publishes were begun."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.attempts >= count)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def ready(self) -> bool:
        return not self.away

    def require(self) -> None:
        if self.away:
            raise LogUnavailable("the log is away")

    def tail(self, topic: str) -> "MemoryTail":
        return MemoryTail(self, topic)


class MemoryTail:
    """Implements `Tail`, and counts what it is asked for."""

    def __init__(self, log: MemoryLog, topic: str) -> None:
        self._log = log
        self._topic = topic
        self._next = 0
        self.seeks = 0
        self.receives = 0

    async def seek_to_end(self) -> None:
        self.seeks += 1
        self._log.require()
        self._next = len(self._log.topics[self._topic])

    async def seek(self, offsets: Mapping[int, int]) -> None:
        self._next = offsets.get(0, self._next)

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        self.receives += 1
        self._log.require()
        if self._next == len(self._log.topics[self._topic]):
            await self._wait(wait_seconds)
        self._log.require()
        first = self._next
        found = self._log.topics[self._topic][first : first + max_messages]
        self._next += len(found)
        return [ConsumedMessage(self._topic, 0, first + index, 0, message) for index, message in enumerate(found)]

    async def positions(self) -> Mapping[int, int]:
        return {0: self._next}

    async def _wait(self, seconds: float) -> None:
        arrived = asyncio.ensure_future(self._log.holds(self._topic, self._next + 1))
        late = asyncio.ensure_future(self._log.clock.sleep(seconds))
        try:
            await asyncio.wait([arrived, late], return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrived.cancel()
            late.cancel()

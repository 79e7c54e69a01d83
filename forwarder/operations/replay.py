"""Putting dead letters back on the topic that they came from, at a rate, until the last or until it is interrupted."""

import asyncio
from collections.abc import AsyncIterable, Callable, Sequence

from forwarder.operations.dead_letter_messages import replayed
from forwarder.process.clock import Clock
from forwarder.topics.port import Message, Publisher

_STEPS_A_SECOND = 10
"""How often letters are published: what falls to one step goes out together."""

OnPublished = Callable[[int], None]
"""Called with how many more letters the log has acknowledged."""


class Replay:
    """Puts letters back on `topic`, at most `rate` of them a second. `stop` ends it between two publishes."""

    def __init__(self, publisher: Publisher, topic: str, clock: Clock, *, rate: float, stop: asyncio.Event) -> None:
        self._publisher = publisher
        self._topic = topic
        self._clock = clock
        self._rate = rate
        self._stop = stop
        self._due_at = clock.monotonic()
        self.put_back = 0
        """How many the log has acknowledged so far."""

    async def run(self, letters: AsyncIterable[Sequence[Message]], on_published: OnPublished) -> None:
        """Put `letters` back in their order. Raises `LogUnavailable`: then of the last few it is not known whether they are."""
        at_once = max(1, int(self._rate / _STEPS_A_SECOND))
        async for some in letters:
            for first in range(0, len(some), at_once):
                await self._pause(self._due_at - self._clock.monotonic())
                if self._stop.is_set():
                    return
                on_published(await self._put_back(some[first : first + at_once]))

    async def _put_back(self, letters: Sequence[Message]) -> int:
        # The next turn counts from this one's beginning, late or not: what an outage held up is not made up for.
        self._due_at = self._clock.monotonic() + len(letters) / self._rate
        await self._publisher.publish(self._topic, [replayed(letter) for letter in letters])
        self.put_back += len(letters)
        return len(letters)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not after `stop`."""
        ends = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._stop.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

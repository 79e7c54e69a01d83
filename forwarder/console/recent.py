"""What is read for everybody at once: pages that refresh themselves ask again and again. No I/O of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from forwarder.process.clock import Clock

_FRESH_SECONDS: Final = 4.0

T = TypeVar("T")


class Recent(Generic[T]):
    """What `read` returned last, read anew where that is a few seconds old. Raises what `read` raises."""

    def __init__(self, read: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._reading = asyncio.Lock()
        self._latest: tuple[float, T] | None = None

    async def get(self) -> T:
        async with self._reading:
            if self._latest is None or self._clock.monotonic() - self._latest[0] >= _FRESH_SECONDS:
                value = await self._read()
                self._latest = (self._clock.monotonic(), value)
            return self._latest[1]

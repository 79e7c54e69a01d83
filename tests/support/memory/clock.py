"""A clock that stands still until it is moved by hand."""

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta


class ManualClock:
    """Implements `Clock`. `advance` wakes, in order, whoever sleeps until then."""

    def __init__(self, start: datetime = datetime(2027, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    def jump(self, seconds: float) -> None:
        """Set the wall clock alone, forward or back."""
        self._start += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Move on by `seconds`, letting each sleeper run at its moment."""
        end = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self._elapsed, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._elapsed = end
        await settle()


async def settle() -> None:
    """Let everything run that can run without time passing or the outside answering."""
    for _ in range(20):
        await asyncio.sleep(0)

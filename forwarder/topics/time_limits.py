"""One time limit for many waits, each from its own beginning, at the price of one timer for all. Touches the event loop alone."""

import asyncio
from asyncio import Future
from collections import deque


class TimeLimits:
    """Ends what is not done `seconds` after it was begun. Waits that are over are forgotten with the next one to begin."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._begun: deque[tuple[float, Future[None]]] = deque()  # by their ends, since all last equally long
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, wait: Future[None]) -> None:
        """Let `wait` fail with `TimeoutError` unless it is done in time."""
        self._forget_done()
        self._begun.append((self._loop.time() + self._seconds, wait))
        if self._timer is None:
            self._timer = self._loop.call_at(self._begun[0][0], self._end)

    def _end(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._forget_done()
        while self._begun and self._begun[0][0] <= now:
            self._begun.popleft()[1].set_exception(TimeoutError())
            self._forget_done()
        if self._begun:
            self._timer = self._loop.call_at(self._begun[0][0], self._end)

    def _forget_done(self) -> None:
        while self._begun and self._begun[0][1].done():
            self._begun.popleft()

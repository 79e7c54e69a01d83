"""An event loop whose time goes by at once: it jumps to the next timer as soon as nothing is left to run."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")

_TURNS: Final = 20_000
"""Far more turns of the loop than anything takes that does not spin."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0.0 and moves in `run_for` alone. For what does no I/O of its own: nothing is waited for but timers."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.until = 0.0
        self._idle = _Idle(self)
        super().__init__(self._idle)

    def time(self) -> float:
        return self.elapsed

    def run_for(self, seconds: float) -> None:
        """Let so much time go by, each timer at its moment; return when nothing is left to run at the last one."""
        self.until = self.elapsed + seconds
        self.run_forever()


class _Idle(selectors.SelectSelector):
    """Asked how long to wait, moves the loop's time instead; fails where nobody ever waits."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turns += 1
        assert self._turns < _TURNS, "something goes round and round, and waits for nothing"
        if timeout is None or timeout > 0:
            self._turns = 0
            left = self._loop.until - self._loop.elapsed
            if left > 0:
                self._loop.elapsed += left if timeout is None else min(timeout, left)
            else:
                self._loop.stop()
        return []


def unexpected(failures: list[str], expected: tuple[type[BaseException], ...]) -> Any:
    """An exception handler for a loop that notes what nobody retrieved, unless it is of an `expected` kind."""

    def handle(_loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, expected):
            failures.append(f"{context.get('message')}: {error!r}")

    return handle


def run_beside(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns, or raises, in another loop than the one that runs: in that one, everything stands still meanwhile."""
    outer = asyncio._get_running_loop()  # noqa: SLF001  # for those who write event loops
    asyncio._set_running_loop(None)  # noqa: SLF001
    try:
        return loop.run_until_complete(work)
    finally:
        asyncio._set_running_loop(outer)  # noqa: SLF001

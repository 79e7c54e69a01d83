"""Time-outs of which a test wants one to run out at a known place, on a machine as busy as it may be."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

_SECONDS: Final = (0.3, 1.0, 4.0, 16.0)


async def once_met(ask: Callable[[float], Awaitable[T]], met: Callable[[], bool]) -> T:
    """What `ask` comes to with a time-out that is as short as can be: the first of a few with which what is to take too long
    was `met`. Before that even connecting took longer, and there is nothing to see."""
    for seconds in _SECONDS:
        outcome = await ask(seconds)
        if met():
            return outcome
    raise AssertionError(f"within {_SECONDS[-1]} s it was never met")

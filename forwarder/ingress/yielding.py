"""Taking turns: a long piece of work lets others have the event loop now and then, so that their answers are not held up by it."""

import asyncio
from typing import Final

A_TURN: Final = 16 * 1024
"""In bytes that were read or written: a millisecond or two."""


class Turns:
    """Of one piece of work."""

    def __init__(self) -> None:
        self._done = 0

    def over(self, work: int) -> bool:
        """Whether as much as a turn was done, and `others_first` is to be awaited. `work` is what was done since the last call, in
        bytes."""
        self._done += work
        if self._done < A_TURN:
            return False
        self._done = 0
        return True


async def others_first() -> None:
    """Let all go that are ready to."""
    await asyncio.sleep(0)

"""Taking turns: a long piece of work lets others have the event loop now and then, so that their answers are not held up by it."""

import asyncio
from typing import Final

A_TURN: Final = 16 * 1024
"""In bytes that were read or written: a millisecond or two."""


class Turns:
    """Of one piece of work."""

    def __init__(self) -> None:
        self._done = 0

    async def after(self, work: int) -> None:
        """Let others go first, once as much as a turn was done. `work` is what was done since the last call, in bytes."""
        self._done += work
        if self._done >= A_TURN:
            self._done = 0
            await asyncio.sleep(0)

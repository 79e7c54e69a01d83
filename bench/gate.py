"""Holds senders back while much of what they sent is not made yet, so that a long run piles up no backlog."""

import asyncio
from collections.abc import Callable
from typing import Final

import httpx

_LOOK_SECONDS: Final = 0.05


class Gate:
    """Open while at most `ahead` of what was sent is not made: more than are in flight, so that the flow never waits for it.

    Use it with `async with`, when nothing is under way: what `count_url` says then is where it counts from.
    """

    def __init__(self, count_url: str, ahead: int) -> None:
        self._count_url = count_url
        self._ahead = ahead
        self._made = 0
        self._held: list[Callable[[], None]] = []

    def holds(self, sent: int, resume: Callable[[], None]) -> bool:
        """Whether a sender is to wait, after so many were `sent` by all of them; `resume` is called once it may go on."""
        if sent - self._made <= self._ahead:
            return False
        self._held.append(resume)
        return True

    def made(self, count: int) -> None:
        """So many of what was sent are made: whoever was held back may ask again."""
        self._made = count
        held, self._held = self._held, []
        for resume in held:
            resume()

    async def __aenter__(self) -> None:
        self._http = httpx.AsyncClient()
        self._watching = asyncio.create_task(self._watch(await self._count()))

    async def __aexit__(self, *failure: object) -> None:
        self._watching.cancel()
        await self._http.aclose()

    async def _watch(self, before: int) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.made(await self._count() - before)

    async def _count(self) -> int:
        return int((await self._http.get(self._count_url)).raise_for_status().text)

"""Answers from memory: looked up once, good for a few seconds, and for longer while they cannot be looked up again."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from forwarder.process.clock import Clock
from forwarder.tenancy.port import TenancyUnavailable

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Ages:
    """For how long answers are good, and how many are remembered. Times are in seconds.

    `known`: until a known answer is looked up again. `absent`: until "there is none" is. `patience`: how long someone with a known
    answer waits for a newer one. `away`: after a failed look-up, how long nobody tries again.
    """

    known: float = 5.0
    absent: float = 1.0
    patience: float = 0.5
    away: float = 1.0
    remembered: int = 10_000


class Answers(Generic[V]):
    """Remembers what `look_up` says of each key. At most one look-up of a key is under way at a time.

    What is absent is remembered apart from what is known, so that a flood of wrong keys does not push out right ones.
    """

    def __init__(self, look_up: Callable[[str], Awaitable[V | None]], clock: Clock, ages: Ages) -> None:
        self._look_up = look_up
        self._clock = clock
        self._ages = ages
        self._known: OrderedDict[str, tuple[V, float]] = OrderedDict()
        self._absent: OrderedDict[str, float] = OrderedDict()
        self._asking: dict[str, asyncio.Task[V | None]] = {}
        self._away_until = float("-inf")

    async def get(self, key: str) -> V | None:
        """The answer, None where there is none. Raises `TenancyUnavailable` where it is not known and cannot be looked up."""
        now = self._clock.monotonic()
        known = self._known.get(key)
        if known is not None:
            answer, good_until = known
            return answer if now < max(good_until, self._away_until) else await self._newer(key, answer)
        if now < self._absent.get(key, float("-inf")):
            return None
        if now < self._away_until:
            raise TenancyUnavailable("the database could not be reached a moment ago")
        return await asyncio.shield(self._ask(key))

    def remembered(self, key: str) -> tuple[V, float] | None:
        """The last known answer, and until when on the clock's monotonic scale it is good without a look."""
        return self._known.get(key)

    async def _newer(self, key: str, answer: V) -> V | None:
        asking = self._ask(key)
        patience = asyncio.ensure_future(self._clock.sleep(self._ages.patience))
        try:
            await asyncio.wait({asking, patience}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        if not asking.done():
            self._note_away()
            return answer
        try:
            return asking.result()
        except TenancyUnavailable:
            return answer

    def _ask(self, key: str) -> asyncio.Task[V | None]:
        asking = self._asking.get(key)
        if asking is None:
            # A task of its own: whoever asked first may be cancelled, and the others still want to know.
            asking = self._asking[key] = asyncio.create_task(self._ask_once(key))
            asking.add_done_callback(_heed)
        return asking

    async def _ask_once(self, key: str) -> V | None:
        try:
            answer = await self._look_up(key)
        except TenancyUnavailable:
            self._note_away()
            raise
        finally:
            del self._asking[key]
        self._away_until = float("-inf")
        self._remember(key, answer)
        return answer

    def _note_away(self) -> None:
        self._away_until = self._clock.monotonic() + self._ages.away

    def _remember(self, key: str, answer: V | None) -> None:
        now = self._clock.monotonic()
        self._known.pop(key, None)
        self._absent.pop(key, None)
        if answer is None:
            self._absent[key] = now + self._ages.absent
        else:
            self._known[key] = (answer, now + self._ages.known)
        for memory in (self._known, self._absent):
            if len(memory) > self._ages.remembered:
                memory.popitem(last=False)


def _heed(asking: asyncio.Task[V | None]) -> None:
    """Look at a failure that nobody waited for any more, so that asyncio does not report it as overlooked."""
    if not asking.cancelled():
        asking.exception()

"""A cache of look-ups: entries are fresh for a few seconds, and stay usable for longer while they cannot be looked up again."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from forwarder.process.clock import Clock
from forwarder.tenancy.port import TenancyUnavailable

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CacheTimes:
    """How long entries are fresh, in seconds, and how many are kept.

    `known`: until a value is looked up again. `absent`: until "there is none" is. `patience`: how long a caller that has an old
    value waits for a newer one. `away`: how long nobody tries again after a failed look-up.
    """

    known: float = 5.0
    absent: float = 1.0
    patience: float = 0.5
    away: float = 1.0
    max_entries: int = 10_000


class LookupCache(Generic[V]):
    """Caches what `look_up` returns for each key. At most one look-up of a key is under way at a time.

    Absent keys are kept apart from values, so that a flood of wrong keys does not evict right ones.
    """

    def __init__(self, look_up: Callable[[str], Awaitable[V | None]], clock: Clock, times: CacheTimes) -> None:
        self._look_up = look_up
        self._clock = clock
        self._times = times
        self._known: OrderedDict[str, tuple[V, float]] = OrderedDict()
        self._absent: OrderedDict[str, float] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[V | None]] = {}
        self._away_until = float("-inf")

    async def get(self, key: str) -> V | None:
        """The value, None where there is none. Raises `TenancyUnavailable` where it is not cached and cannot be looked up."""
        now = self._clock.monotonic()
        known = self._known.get(key)
        if known is not None:
            value, fresh_until = known
            return value if now < max(fresh_until, self._away_until) else await self._refreshed(key, value)
        if now < self._absent.get(key, float("-inf")):
            return None
        if now < self._away_until:
            raise TenancyUnavailable("the database could not be reached a moment ago")
        return await asyncio.shield(self._start(key))

    def cached(self, key: str) -> tuple[V, float] | None:
        """The last known value, and until when, on the clock's monotonic scale, it is fresh."""
        return self._known.get(key)

    async def _refreshed(self, key: str, value: V) -> V | None:
        look_up = self._start(key)
        patience = asyncio.ensure_future(self._clock.sleep(self._times.patience))
        try:
            await asyncio.wait({look_up, patience}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        if not look_up.done():
            self._note_away()
            return value
        try:
            return look_up.result()
        except TenancyUnavailable:
            return value

    def _start(self, key: str) -> asyncio.Task[V | None]:
        look_up = self._under_way.get(key)
        if look_up is None:
            # A task of its own: whoever came first may be cancelled, and the others still want to know.
            look_up = self._under_way[key] = asyncio.create_task(self._run(key))
            look_up.add_done_callback(_retrieve_exception)
        return look_up

    async def _run(self, key: str) -> V | None:
        try:
            value = await self._look_up(key)
        except TenancyUnavailable:
            self._note_away()
            raise
        finally:
            del self._under_way[key]
        self._away_until = float("-inf")
        self._keep(key, value)
        return value

    def _note_away(self) -> None:
        self._away_until = self._clock.monotonic() + self._times.away

    def _keep(self, key: str, value: V | None) -> None:
        now = self._clock.monotonic()
        self._known.pop(key, None)
        self._absent.pop(key, None)
        if value is None:
            self._absent[key] = now + self._times.absent
        else:
            self._known[key] = (value, now + self._times.known)
        for entries in (self._known, self._absent):
            if len(entries) > self._times.max_entries:
                entries.popitem(last=False)


def _retrieve_exception(look_up: asyncio.Task[object]) -> None:
    """Retrieve a failure that nobody waits for any more, so that asyncio does not report it."""
    if not look_up.cancelled():
        look_up.exception()

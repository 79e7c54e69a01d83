"""When API keys were last used, to the minute: noted in memory, written by a background loop."""

from collections.abc import Collection
from datetime import datetime
from typing import Final, Protocol

from forwarder.process.clock import Clock
from forwarder.process.containment import Where
from forwarder.process.loops import forever
from forwarder.tenancy.port import TenancyUnavailable

WRITE_SECONDS: Final = 60.0


class UseStore(Protocol):
    """Stores the times of use."""

    async def used(self, key_ids: Collection[str], at: datetime) -> None:
        """These keys were used by `at`. Raises `TenancyUnavailable`."""
        ...


class KeyUses:
    """The keys that were used since the last write, by this process."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def note(self, key_id: str) -> None:
        """Notes the use of a key. Call it when a caller is looked up, which happens every few seconds while it calls."""
        self._used.add(key_id)

    async def write(self, store: UseStore, clock: Clock) -> None:
        """Write down what was noted. Raises `TenancyUnavailable`; it is still noted then, as after any other exception."""
        used, self._used = self._used, set()
        if not used:
            return
        try:
            await store.used(used, clock.now())
        except BaseException:
            self._used |= used
            raise


async def write_uses(uses: KeyUses, store: UseStore, clock: Clock) -> None:
    """Writes every minute, forever, through outages of the database."""

    async def step() -> None:
        await clock.sleep(WRITE_SECONDS)
        await uses.write(store, clock)

    await forever(step, name=Where.KEY_USES, clock=clock, outages=(TenancyUnavailable,))

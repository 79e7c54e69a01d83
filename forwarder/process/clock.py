"""Time, injected: everything that reads a clock or waits takes a `Clock`, so that tests can move time by hand."""

import asyncio
import time
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

import orjson


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for measuring and waiting."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back. Includes suspensions of the machine, where the system counts them."""

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`; at once if that is not positive."""


_monotonic = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
"""Linux's CLOCK_MONOTONIC stops while the machine is suspended (clock_gettime(2)): a lease that expired meanwhile would still look
in force. macOS has no such clock; there Python's monotonic clock is used."""


class SystemClock:
    # Called several times for each reservation.
    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(_monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0))


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and `Z`, as every timestamp of the service is written."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    if not moment.microsecond:
        return moment.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"
    # The same in a third of the time, for moments with a fraction of a second: orjson writes six digits, in quotes.
    return f"{orjson.dumps(moment)[1:24].decode()}Z"

"""How long after it was made a reservation is shown: measured by booking one and looking it up at growing distances."""

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from forwarder.pms.adapter import AdapterKind
from forwarder.reservation.outcome import Confirmed
from forwarder_pms_kit.conformance.site import Site
from forwarder_pms_kit.conformance.trial import trial

_DISTANCES: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 90.0, 120.0, 180.0)
LATE_COMMIT_SECONDS: Final = 90.0
"""How late a PMS may still make what a proxy gave up on: no test can measure that."""


@dataclass(frozen=True, slots=True)
class Settling:
    """`shown_after`: seconds; None where it was not shown at all."""

    shown_after: float | None

    @property
    def lines(self) -> Sequence[str]:
        if self.shown_after is None:
            return [f"# a reservation was not shown within {_DISTANCES[-1]:.0f} s: settles is not known"]
        seconds = math.ceil(2 * self.shown_after + LATE_COMMIT_SECONDS)
        return [
            f"settles: {seconds}  # shown {self.shown_after:.1f} s after it was made; {LATE_COMMIT_SECONDS:.0f} s for late commits"
        ]


async def measure(
    kind: str, adapter: AdapterKind, site: Site, *, sleep: Callable[[float], Awaitable[None]]
) -> Settling | None:
    """Book one, look it up until it is shown, cancel it. None for a kind that cannot be searched by our reference."""
    async with trial(kind, adapter, site) as tried:
        if not tried.can.find_by_reference or tried.can.finds_by_stay:
            return None
        booking, _ = await tried.made()
        began = time.monotonic()
        for distance in _DISTANCES:
            await sleep(max(distance - (time.monotonic() - began), 0.0))
            if isinstance(await tried.find(booking), Confirmed):
                return Settling(time.monotonic() - began)
    return Settling(None)

"""Runs the conformance kit: on an adapter of this process, against its simulator or any other PMS."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from forwarder.http.server import serve
from forwarder.pms.registry import check_options, limits_of, registered
from forwarder.process.clock import SystemClock
from forwarder.process.supervision import Stop, bind
from forwarder.reservation.outcome import Confirmed
from forwarder.simulator.world import World
from forwarder_pms_kit.conformance import Check, Result, Site, examine
from forwarder_pms_kit.conformance.trial import Misbehaved, trial
from forwarder_pms_kit.simulators import SITES, simulator_app

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


async def settling(
    kind: str, site: Site, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> Settling | None:
    """How long that PMS takes to show what it made: one is booked, looked up until it is shown, and cancelled. None where it cannot
    be searched by our reference, or does not make it."""
    try:
        async with trial(kind, registered().kinds[kind], site) as tried:
            if not tried.can.find_by_reference or tried.can.finds_by_stay:
                return None
            booking, _ = await tried.made()
            began = time.monotonic()
            for distance in _DISTANCES:
                await sleep(max(distance - (time.monotonic() - began), 0.0))
                if isinstance(await tried.find(booking), Confirmed):
                    return Settling(time.monotonic() - began)
    except Misbehaved:
        return None
    return Settling(None)


def pause_for(kind: str, options: Mapping[str, Any]) -> float:
    """Seconds between requests that keep within the limits which are published of an account of that kind, set so."""
    limits = limits_of(registered().kinds[kind], options)
    return max((limit.seconds / limit.requests for limit in limits.each), default=0.0)


@asynccontextmanager
async def simulated_site(kind: str, *, calendars: bool = True) -> AsyncIterator[Site]:
    """A simulated PMS of that kind, in this process and on a free port of loopback. `calendars`: it refuses taken nights."""
    simulated = SITES[kind]
    with World(SystemClock(), calendars=calendars) as world:
        listening, stop = bind("127.0.0.1", 0), Stop()
        serving = asyncio.create_task(serve(simulator_app(world), listening, stop, grace_seconds=1.0))
        try:
            yield Site(
                f"http://127.0.0.1:{listening.getsockname()[1]}/conformance/{simulated.path}",
                simulated.credential,
                simulated.options,
                held=world.standing,
                held_by=None if simulated.keeps_reference else lambda one: f"{one.property_id}/{one.arrival}",
                refusals=simulated.refusals,
                refuses_taken_nights=calendars,
            )
        finally:
            stop.set()
            await serving
            listening.close()


async def results(kind: str, site: Site | None, checks: Sequence[Check]) -> AsyncIterator[Result]:
    """The result of each check, as it ends, at `site` or else at the simulator. Raises `UnknownKind`, `BadOptions`."""
    if site is None:
        async with simulated_site(kind) as simulated:
            async for result in results(kind, simulated, checks):
                yield result
        return
    check_options(kind, site.options_at(site.base_url))
    async for result in examine(kind, registered().kinds[kind], site, checks):
        yield result

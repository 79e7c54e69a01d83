"""Runs the conformance kit: on an adapter of this process, against its simulator or any other PMS."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from forwarder.http.server import serve
from forwarder.pms.adapter import limits_of
from forwarder.pms.registry import check_options, registered
from forwarder.process.clock import SystemClock
from forwarder.process.supervision import Stop, bind
from forwarder.reservation.booking import Booking
from forwarder.simulator.world import World
from forwarder_pms_kit.conformance import Check, Result, Site, examine
from forwarder_pms_kit.conformance.settling import Settling, measure
from forwarder_pms_kit.conformance.trial import Misbehaved
from forwarder_pms_kit.simulators import SITES, simulator_app


async def settling(kind: str, site: Site) -> Settling | None:
    """How long that PMS takes to show what it made; None where it cannot be searched, or does not make it."""
    try:
        return await measure(kind, registered().kinds[kind], site, sleep=asyncio.sleep)
    except Misbehaved:
        return None


def is_simulated(kind: str) -> bool:
    """Whether the simulator has that kind, so that it can be tried locally."""
    return kind in SITES


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
                held_by=None if simulated.keeps_reference else _by_stay,
                refusals=simulated.refusals,
                refuses_taken_nights=calendars,
            )
        finally:
            stop.set()
            await serving
            listening.close()


def _by_stay(booking: Booking) -> str:
    return f"{booking.property_id}/{booking.arrival}"


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

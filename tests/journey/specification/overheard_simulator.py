"""The simulator, and what it was asked for: what a hotelier would see of a reservation beside the reference that we gave it."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from pydantic_core import from_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forwarder.process.clock import SystemClock
from forwarder.simulator.faults import Faults
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators import simulator_app
from tests.support.simulator.server import served

_PATIENCE_SECONDS = 90.0


class Overheard(NamedTuple):
    """One creation in words of the open contract: where it was posted to, and its fields."""

    path: str
    fields: Mapping[str, Any]


class OverheardSimulator:
    """Serves simulated PMSs, and remembers what was posted to those of the open contract."""

    def __init__(self, app: ASGIApp, world: World) -> None:
        self.url = ""
        self.world = world
        self._app = app
        self._heard: defaultdict[str, list[Overheard]] = defaultdict(list)
        self._first: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()

        async def overhear() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        await self._app(scope, overhear, send)
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"].endswith("/reservations"):
            overheard = Overheard(scope["path"], from_json(body))
            self._heard[overheard.fields["arrivalDate"]].append(overheard)
            self._first[overheard.fields["arrivalDate"]].set()

    def go_away(self, name: str) -> None:
        """From now on the PMSs below /NAME refuse to do anything."""
        self.world.faults.order(name, Faults(mode="down"))

    async def asked(self, arrival: str) -> Overheard:
        """The first creation with this day of arrival, once it was there."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await self._first[arrival].wait()
        return self._heard[arrival][0]


@asynccontextmanager
async def overheard_simulator() -> AsyncIterator[OverheardSimulator]:
    """One on a free port of loopback. Any number of bookings share a room."""
    with World(SystemClock(), calendars=False) as world:
        simulator = OverheardSimulator(simulator_app(world), world)
        async with served(simulator) as simulator.url:
            yield simulator

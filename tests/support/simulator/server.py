"""A simulator on a real port of this machine, served as in production and driven from the same process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp

from forwarder.http.server import serve
from forwarder.process.clock import Clock, SystemClock
from forwarder.process.supervision import bind
from forwarder.reservation.booking import Booking
from forwarder.reservation.request import CardDetails
from forwarder.simulator.faults import Faults
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators import SITES, simulator_app

CARD = CardDetails.model_validate(
    {
        "cardNumber": "4111 1111 1111 1111",
        "cardHolderName": "Maria Gonzalez",
        "expiryMonth": "07",
        "expiryYear": "2031",
        "cvv": "8264",
    }
)
PATHS = {kind: site.path for kind, site in SITES.items()}
OPTIONS: dict[str, dict[str, Any]] = {kind: dict(site.options) for kind, site in SITES.items()}
"""What accounts of a kind need to be set to."""


class QuickClock(SystemClock):
    """The machine's clock, but for sleeps, which are noted in `slept` and take no time."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Simulator:
    """A running simulator: where it is and what it holds."""

    url: str
    world: World

    def base_url(self, kind: str, name: str = "acme") -> str:
        return f"{self.url}/{name}/{PATHS[kind]}"

    def go_wrong(self, mode: str, name: str = "acme", **more: Any) -> None:
        """Order faults at `name`."""
        self.world.faults.order(name, Faults.model_validate({"mode": mode, **more}))

    def work(self, name: str = "acme") -> None:
        """Lift them."""
        self.world.faults.lift(name)


@asynccontextmanager
async def running_simulator(world: World | None = None, clock: Clock | None = None) -> AsyncIterator[Simulator]:
    """A simulator of `world`, on a free port."""
    world = world or World(clock or SystemClock())
    with world:
        async with served(simulator_app(world)) as url:
            yield Simulator(url, world)
            for name in list(world.requests):
                world.faults.lift(name)  # what hangs would hold up the end


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """The address of `app` on a free port."""
    listening, stop = bind("127.0.0.1", 0), asyncio.Event()
    port = listening.getsockname()[1]
    serving = asyncio.create_task(serve(app, listening, stop, grace_seconds=1))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        await serving
        listening.close()


def booking(number: int = 1, *, card: CardDetails | None = None, **fields: Any) -> Booking:
    """A booking of its own room and reference; `fields` are added or replace its own."""
    own = {
        "propertyId": 5000 + number,
        "roomId": 5000 + number,
        "arrivalDate": "2027-03-01",
        "departureDate": "2027-03-04",
        "guest": {
            "name": "Maria Gonzalez",
            "firstName": "Maria",
            "lastName": "Gonzalez",
            "email": "maria@example.com",
            "phone": 34600111222,
            "address": {"line1": "Calle Mayor 7", "postalCode": "28013", "city": "Madrid", "country": "ES"},
        },
        "numberOfGuests": 3,
        "numberOfChildren": 1,
        "totalPrice": 450.35,
        "currency": "EUR",
        "notes": "Late arrival",
    }
    return Booking(f"rsv_{number:032d}", own | fields, card, website_id="site-7")

"""A client of a simulator in memory, and the stay that it books."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx

from forwarder.simulator.world import World
from forwarder_pms_kit.simulators import simulator_app
from tests.support.memory.clock import ManualClock

NOW = datetime(2027, 1, 1, tzinfo=UTC)
ROOM = {"propertyId": 7, "roomId": "A", "arrivalDate": "2027-03-01", "departureDate": "2027-03-04"}
STAY = {**ROOM, "guest": {"name": "Maria"}, "totalPrice": 450.35, "currency": "EUR"}
PAYING_CARD = {"cardNumber": "4111 1111 1111 1111", "cvv": "8264", "cardHolderName": "Maria"}
GENERIC = "/acme/generic/reservations"
SYNC = "/acme/booking-sync/api/v3"


class SimulatorClient:
    """Speaks to a simulator in memory, as an account with a good credential unless another is given."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(simulator_app(world)),
            base_url="http://simulator.test",
            headers={"Authorization": "Bearer secret"},
        )

    async def book(
        self, reference: str = "R1", *, path: str = GENERIC, key: str | None = None, **fields: Any
    ) -> httpx.Response:
        headers = {"Idempotency-Key": f'"{key or reference}"'}
        return await self.http.post(path, json={**STAY, "reference": reference, **fields}, headers=headers)

    async def sync(self, reference: str = "R1", *, rental: str = "7", **fields: Any) -> httpx.Response:
        booking = {"start_at": "2027-03-01", "end_at": "2027-03-04", "booked": True, "external_reference": reference}
        return await self.http.post(f"{SYNC}/rentals/{rental}/bookings", json={"bookings": [booking | fields]})

    async def count(self) -> int:
        return int((await self.http.get("/count")).text)

    async def go_wrong(self, **order: Any) -> None:
        assert (await self.http.put("/acme/faults", json=order)).status_code == 200


@asynccontextmanager
async def simulated(world: World | None = None) -> AsyncIterator[SimulatorClient]:
    """A client of `world`, which is closed afterwards; of a world of its own where none is given."""
    with world or World(ManualClock(NOW)) as opened:
        client = SimulatorClient(opened)
        async with client.http:
            yield client

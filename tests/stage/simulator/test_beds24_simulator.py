"""The simulated Beds24, spoken to by the real adapter: batches, cancellations, and answers as the vendor describes them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Pms
from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, Rejected
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators import simulator_app
from tests.support.pms.httpx_transport import in_process
from tests.support.pms.kinds.beds24 import open_api
from tests.support.simulator.server import QuickClock, booking

BASE_URL = "https://simulator/acme/beds24/v2"


@pytest.fixture
def world() -> Iterator[World]:
    with World(QuickClock()) as world:
        yield world


@asynccontextmanager
async def simulated(world: World, credential: str = "refresh-7", base_url: str = BASE_URL) -> AsyncIterator[Pms]:
    async with open_directory(QuickClock(), transport=in_process(simulator_app(world))) as directory:
        yield directory.connect(AccountConnection("acme", "beds24", base_url, credential))


async def test_a_batch_is_booked_item_by_item(world: World) -> None:
    asked = [
        booking(1),
        booking(2, roomId=5001),
        booking(3, roomId=404),
        booking(4, guest={"email": "maria@refused.example"}),
        booking(5),
    ]
    async with simulated(world) as pms:
        outcomes = await pms.create_many(asked)
    codes = [outcome.problem.code if isinstance(outcome, Rejected) else type(outcome).__name__ for outcome in outcomes]
    assert codes == ["Confirmed", "room_unavailable", "room_not_found", "guest_refused", "Confirmed"]
    assert world.made == 2
    assert world.requests["acme"] == 2  # the token, and the batch


async def test_a_whole_batch_at_once(world: World) -> None:
    async with simulated(world) as pms:
        outcomes = await pms.create_many([booking(number) for number in range(pms.capabilities.max_per_create)])
    assert len({outcome.pms_reservation_id for outcome in outcomes if isinstance(outcome, Confirmed)}) == len(outcomes)


async def test_cancelled_nights_are_free_again(world: World) -> None:
    async with simulated(world) as pms:
        made = await pms.create(booking(1))
        assert isinstance(made, Confirmed)
        for _ in range(2):
            assert await pms.cancel(booking(1), made.pms_reservation_id) == Cancelled()
        found = await pms.find(booking(1))
        assert isinstance(found, Deferred)
        assert found.reason == "cancelled_in_pms"
        assert isinstance(await pms.create(booking(2, roomId=5001)), Confirmed)
        assert await pms.cancel(booking(1), "999999") == Cancelled()
    assert (world.stats()["made"], world.stats()["cancelled"]) == (2, 1)


async def test_another_base_url_is_another_pms(world: World) -> None:
    async with simulated(world) as pms:
        made = await pms.create(booking(1))
        assert isinstance(made, Confirmed)
    async with simulated(world, base_url="https://simulator/beds24/v2") as pms:
        assert await pms.find(booking(1)) == Absent()
        assert await pms.cancel(booking(1), made.pms_reservation_id) == Cancelled()
    assert world.stats()["cancelled"] == 0


async def test_a_day_of_more_than_a_page(world: World) -> None:
    async with simulated(world) as pms:
        for number in range(101):
            await pms.create(booking(number))
        assert isinstance(await pms.find(booking(100)), Confirmed)
        assert await pms.find(booking(101)) == Absent()


async def test_a_refresh_token_that_is_not_accepted(world: World) -> None:
    async with simulated(world, credential="wrong") as pms:
        outcome = await pms.create(booking())
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_unauthorized"


async def _asked(world: World, method: str, path: str, **more: Any) -> tuple[httpx.Request, httpx.Response]:
    transport = httpx.ASGITransport(simulator_app(world))
    async with httpx.AsyncClient(transport=transport, headers={"token": "t", "refreshToken": "r"}) as client:
        response = await client.request(method, f"{BASE_URL}/{path}", **more)
    request = httpx.Request(method, f"https://api.beds24.com/v2/{path}")
    return request, response


async def test_answers_are_as_the_vendor_describes_them(world: World) -> None:
    contract = open_api()
    async with simulated(world) as pms:
        await pms.create(booking())
    contract.check_answer(*await _asked(world, "GET", "authentication/token"))
    contract.check_answer(*await _asked(world, "GET", "bookings", params={"arrival": "2027-03-01"}))
    items = [{"roomId": 404}, {"id": 1001, "status": "new"}]
    request, response = await _asked(world, "POST", "bookings", json=items)
    assert response.status_code == 201
    contract.check_answer(request, response)

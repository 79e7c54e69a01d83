"""The simulated BookingSync."""

from collections.abc import AsyncIterator

import pytest

from forwarder.simulator.world import World
from tests.support.manual_clock import ManualClock
from tests.support.simulator_client import NOW, SYNC, SimulatorClient, simulated


@pytest.fixture
async def client() -> AsyncIterator[SimulatorClient]:
    async with simulated() as opened:
        yield opened


async def test_booking_sync_books_each_time_it_is_asked() -> None:
    async with simulated(World(ManualClock(NOW), calendars=False)) as client:
        assert [(await client.sync()).status_code for _ in range(3)] == [201] * 3
        stats = (await client.http.get("/stats")).json()
    assert stats["made"] == 3
    assert stats["duplicates"] == {"most_per_reference": 3, "references": ["R1"], "surplus": 2}


async def test_booking_sync_refuses_in_its_own_words(client: SimulatorClient) -> None:
    await client.sync()
    taken = await client.sync("R2", start_at="2027-03-02 16:00:00")
    assert taken.status_code == 422
    assert taken.json() == {"errors": {"start_at": ["is not available"], "end_at": ["is not available"]}}
    assert (await client.sync(start_at="2027-03-09")).json() == {"errors": {"start_at": ["must be before end_at"]}}
    assert (await client.sync(end_at="soon")).json() == {"errors": {"end_at": ["can't be blank"]}}
    assert (await client.sync(rental="unknown")).status_code == 404


async def test_booking_sync_clients(client: SimulatorClient) -> None:
    path = f"{SYNC}/clients"
    made = await client.http.post(path, json={"clients": [{"fullname": "Maria", "emails": []}]})
    assert made.status_code == 201
    assert made.json()["clients"][0] == {"fullname": "Maria", "emails": [], "id": 1, "links": {"account": 1}}
    assert (await client.http.post(path, json={"clients": [{}]})).json() == {"errors": {"fullname": ["can't be blank"]}}
    assert await client.count() == 0


async def test_booking_sync_lists_by_rental_time_and_page(client: SimulatorClient) -> None:
    for day in range(1, 6):
        await client.sync(f"R{day}", start_at=f"2027-03-0{day}", end_at=f"2027-03-0{day + 1}")
    await client.sync("other", rental="8")

    async def listed(**query: str) -> tuple[list[str], str]:
        answer = await client.http.get(f"{SYNC}/bookings", params={"rental_id": "7", **query})
        return [booking["external_reference"] for booking in answer.json()["bookings"]], answer.headers["x-total-pages"]

    assert await listed() == (["R1", "R2", "R3", "R4", "R5"], "1")
    assert await listed(**{"from": "2027-03-03", "until": "2027-03-05"}) == (["R3", "R4"], "1")
    assert await listed(per_page="2", page="3") == (["R5"], "3")
    assert await listed(per_page="2", page="4") == ([], "3")
    assert await listed(rental_id="7,8") == (["R1", "R2", "R3", "R4", "R5", "other"], "1")
    assert await listed(rental_id="9") == ([], "1")


async def test_booking_sync_cancels_and_frees_the_nights(client: SimulatorClient) -> None:
    [made] = (await client.sync()).json()["bookings"]
    path = f"{SYNC}/bookings/{made['id']}"
    assert [(await client.http.delete(path)).status_code for _ in range(2)] == [204, 204]
    assert (await client.http.delete(f"{SYNC}/bookings/999999")).status_code == 404
    assert (await client.http.delete(path.replace("acme", "other"))).status_code == 404
    shown = (await client.http.get(f"{SYNC}/bookings")).json()["bookings"]
    with_cancelled = (await client.http.get(f"{SYNC}/bookings?include_canceled=true")).json()["bookings"]
    assert shown == []
    assert [booking["status"] for booking in with_cancelled] == ["Canceled"]
    assert (await client.sync("R2")).status_code == 201
    assert client.world.stats()["cancelled"] == 1

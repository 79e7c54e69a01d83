"""How simulated PMSs go wrong, on demand."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from forwarder.simulator.faults import FaultBoard, Faults
from forwarder.simulator.world import World
from tests.support.memory.clock import ManualClock, settle
from tests.support.simulator.client import GENERIC, NOW, STAY, SYNC, SimulatorClient, simulated
from tests.support.simulator.server import running_simulator


@pytest.fixture
async def client() -> AsyncIterator[SimulatorClient]:
    async with simulated() as opened:
        yield opened


@pytest.mark.parametrize(
    ("mode", "status", "made"),
    [
        ("none", 201, 1),
        ("down", 503, 0),
        ("throttle", 429, 0),
        ("error500", 500, 0),
        ("redirect", 302, 0),
        ("garbage", 201, 0),
        ("wrong_types", 201, 0),
        ("huge", 201, 0),
        ("error500_after_booking", 500, 1),
        ("garbage_after_booking", 201, 1),
        ("wrong_types_after_booking", 201, 1),
    ],
)
async def test_modes(client: SimulatorClient, mode: str, status: int, made: int) -> None:
    await client.go_wrong(mode=mode)
    assert (await client.book()).status_code == status
    assert await client.count() == made
    assert (await client.http.delete("/acme/faults")).status_code == 204
    assert (await client.book()).status_code == (200 if made else 201)


async def test_a_wait_is_asked_for_as_each_vendor_does(client: SimulatorClient) -> None:
    await client.go_wrong(mode="throttle", retry_after=30)
    assert (await client.book()).headers["retry-after"] == "30"
    limited = await client.sync()
    assert limited.headers["x-ratelimit-reset"] == str(int(NOW.timestamp()) + 30)
    assert "retry-after" not in limited.headers
    await client.go_wrong(mode="down")
    assert "retry-after" not in (await client.book()).headers


async def test_faults_are_of_one_name(client: SimulatorClient) -> None:
    await client.go_wrong(mode="down")
    assert (await client.book(path="/other/generic/reservations")).status_code == 201
    assert (await client.book(path="/acme/website-builder/websites/1/reservations")).status_code == 503


async def test_a_fault_that_counts(client: SimulatorClient) -> None:
    await client.go_wrong(mode="down", count=2)
    assert [(await client.book()).status_code for _ in range(3)] == [503, 503, 201]


async def test_a_fault_of_bookings_alone(client: SimulatorClient) -> None:
    await client.go_wrong(mode="down", scope="bookings")
    assert (await client.book()).status_code == 503
    assert (await client.sync()).status_code == 503
    assert (await client.http.get(GENERIC)).status_code == 200
    assert (await client.http.post(f"{SYNC}/clients", json={"clients": [{"fullname": "M"}]})).status_code == 201


async def test_after_a_booking_means_after_one_that_was_made(client: SimulatorClient) -> None:
    await client.book()
    await client.go_wrong(mode="error500_after_booking")
    assert (await client.book("R2")).status_code == 409
    assert (await client.http.get(GENERIC)).status_code == 200


async def test_a_fault_that_ends_by_itself() -> None:
    clock = ManualClock(NOW)
    async with simulated(World(clock)) as client:
        await client.go_wrong(mode="down", until="2027-01-01T00:01:00Z")
        assert (await client.book()).status_code == 503
        await clock.advance(60)
        assert (await client.book()).status_code == 201


async def test_a_delay_holds_up_every_answer() -> None:
    clock = ManualClock(NOW)
    async with simulated(World(clock, faults=Faults(delay_ms=1500))) as client:
        booking = asyncio.create_task(client.book())
        await settle()
        await clock.advance(1.4)
        assert not booking.done()
        await clock.advance(0.2)
        assert (await booking).status_code == 201


def test_a_share_of_the_requests_is_hit_and_the_seed_repeats_which() -> None:
    def struck(seed: int) -> list[bool]:
        board = FaultBoard(ManualClock(NOW), Faults(mode="down", rate=0.25), seed)
        order = board.at("anywhere")
        assert order is not None
        return [board.strikes(order, books=True) for _ in range(1000)]

    assert 200 < sum(struck(1)) < 300
    assert struck(1) == struck(1) != struck(2)


@pytest.mark.parametrize(
    "order",
    [
        {"mode": "gremlins"},
        {"rate": 2},
        {"delay_ms": -1},
        {"count": -1},
        {"moods": 1},
        {"until": "2027-01-01T00:00:00"},
        [],
        5,
    ],
)
async def test_orders_that_are_none(client: SimulatorClient, order: object) -> None:
    answer = await client.http.put("/acme/faults", json=order)
    assert answer.status_code == 422
    assert (await client.http.get("/acme/faults")).json() == Faults().model_dump(mode="json")


async def test_what_is_ordered_can_be_seen(client: SimulatorClient) -> None:
    await client.go_wrong(mode="hang", rate=0.5)
    shown = (await client.http.get("/acme/faults")).json()
    assert (shown["mode"], shown["rate"]) == ("hang", 0.5)


async def test_what_hangs_lets_go_when_the_fault_is_lifted_and_a_reset_is_one() -> None:
    async with running_simulator() as simulator, httpx.AsyncClient(timeout=5) as http:
        simulator.go_wrong("hang")
        order = simulator.world.faults.at("acme")
        assert order is not None
        url = f"{simulator.base_url('generic')}/reservations"
        hanging = asyncio.create_task(http.post(url, json=STAY, headers={"Authorization": "Bearer secret"}))
        await asyncio.wait_for(order.met.wait(), 5)
        simulator.go_wrong("reset_after_booking")
        with pytest.raises(httpx.TransportError):
            await hanging
        assert simulator.world.made == 0
        with pytest.raises(httpx.TransportError):
            await http.post(url, json=STAY, headers={"Authorization": "Bearer secret"})
        assert simulator.world.made == 1


async def test_in_memory_a_reset_is_an_error(client: SimulatorClient) -> None:
    await client.go_wrong(mode="reset")
    with pytest.raises(ConnectionResetError):
        await client.book()

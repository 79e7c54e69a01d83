"""The simulated Hostaway, spoken to by the real adapter: tokens, cancellations, pages."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Grant, MemoryGrants, Pms
from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, Rejected
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators import simulator_app
from tests.support.pms.httpx_transport import in_process
from tests.support.simulator.server import QuickClock, booking

BASE_URL = "https://simulator/acme/hostaway/v1"


@pytest.fixture
def world() -> Iterator[World]:
    with World(QuickClock()) as world:
        yield world


@asynccontextmanager
async def simulated(
    world: World,
    credential: str = "61148:s3cret",
    base_url: str = BASE_URL,
    grants: MemoryGrants | None = None,
) -> AsyncIterator[Pms]:
    transport = in_process(simulator_app(world))
    async with open_directory(QuickClock(), transport=transport) as directory:
        connection = AccountConnection("acme", "hostaway", base_url, credential, grants=grants or MemoryGrants())
        yield directory.connect(connection)


async def test_a_client_books_with_a_token(world: World) -> None:
    async with simulated(world) as pms:
        assert isinstance(await pms.create(booking()), Confirmed)
    assert world.requests["acme"] == 2


async def test_a_token_that_has_ended_is_renewed(world: World) -> None:
    async def ended(_: Grant | None) -> Grant:
        return Grant("expired")

    grants = MemoryGrants()
    await grants.renew("acme", None, ended)
    async with simulated(world, grants=grants) as pms:
        assert isinstance(await pms.create(booking()), Confirmed)
    assert world.requests["acme"] == 3
    assert await grants.current("acme") != Grant("expired")


@pytest.mark.parametrize("credential", ["61148:wrong", "wrong", "expired"])
async def test_a_credential_that_is_not_accepted(world: World, credential: str) -> None:
    async with simulated(world, credential=credential) as pms:
        outcome = await pms.create(booking())
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_unauthorized"
    assert world.made == 0


async def test_what_hostaway_does_not_know(world: World) -> None:
    async with simulated(world) as pms:
        outcome = await pms.create(booking(propertyId=404, roomId=404))
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "property_not_found"


async def test_cancelled_nights_are_free_again(world: World) -> None:
    async with simulated(world) as pms:
        made = await pms.create(booking(1))
        assert isinstance(made, Confirmed)
        for _ in range(2):
            assert await pms.cancel(booking(1), made.pms_reservation_id) == Cancelled()
        found = await pms.find(booking(1))
        assert isinstance(found, Deferred)
        assert found.reason == "cancelled_in_pms"
        assert isinstance(await pms.create(booking(2, propertyId=5001, roomId=5001)), Confirmed)
        assert await pms.cancel(booking(1), "999999") == Cancelled()
    assert (world.stats()["made"], world.stats()["cancelled"]) == (2, 1)


async def test_a_cancellation_below_a_wrong_base_url_is_none(world: World) -> None:
    async with simulated(world) as pms:
        made = await pms.create(booking(1))
        assert isinstance(made, Confirmed)
    async with simulated(world, credential="token-1", base_url="https://simulator/acme/hostaway/v9") as pms:
        assert isinstance(await pms.cancel(booking(1), made.pms_reservation_id), Deferred)
    assert world.stats()["cancelled"] == 0


async def test_a_listing_of_more_than_a_page() -> None:
    with World(QuickClock(), calendars=False) as world:
        async with simulated(world) as pms:
            for number in range(101):
                await pms.create(booking(number, propertyId=7, roomId=7))
            assert isinstance(await pms.find(booking(100, propertyId=7, roomId=7)), Confirmed)
            assert await pms.find(booking(101, propertyId=7, roomId=7)) == Absent()


async def test_another_base_url_is_another_pms(world: World) -> None:
    async with simulated(world) as pms:
        await pms.create(booking(1))
    async with simulated(world, base_url="https://simulator/hostaway/v1") as pms:
        assert await pms.find(booking(1)) == Absent()

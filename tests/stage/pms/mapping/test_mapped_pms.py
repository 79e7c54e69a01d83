"""A mapped PMS from end to end: the simulated Cloudbeds, spoken to by a mapping alone."""

from collections.abc import AsyncIterator

import pytest

from forwarder.pms.port import Pms
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, Rejected
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators import simulator_app
from tests.support.memory.clock import ManualClock
from tests.support.pms.httpx_transport import in_process
from tests.support.pms.kinds.mapped import CLOUDBEDS_LIKE
from tests.support.pms.kinds.open_pms import pms_that
from tests.support.simulator.client import NOW, SimulatorClient, simulated
from tests.support.simulator.server import booking


@pytest.fixture
async def client() -> AsyncIterator[SimulatorClient]:
    async with simulated(World(ManualClock(NOW))) as opened:
        yield opened


@pytest.fixture
async def pms(client: SimulatorClient) -> AsyncIterator[Pms]:
    base_url = "https://simulator.test/acme/api/v1.3"
    options = {"mapping": CLOUDBEDS_LIKE}
    async with pms_that(
        base_url=base_url, transport=in_process(simulator_app(client.world)), options=options
    ) as opened:
        yield opened


async def test_it_is_made_found_and_cancelled(pms: Pms, client: SimulatorClient) -> None:
    assert await pms.find(booking()) == Absent()
    made = await pms.create(booking())
    assert made == Confirmed("1001", {"totalPrice": 330})
    again = await pms.find(booking())
    assert isinstance(again, Confirmed)
    assert again.pms_reservation_id == "1001"
    assert await pms.cancel(booking(), "1001") == Cancelled()
    assert await pms.cancel(booking(), "1001") == Cancelled()
    assert isinstance(await pms.find(booking()), Deferred)
    another = Booking("rsv_another", booking().fields)
    assert isinstance(await pms.create(another), Confirmed)
    assert await client.count() == 2


async def test_it_is_refused(pms: Pms) -> None:
    assert isinstance(await pms.create(booking()), Confirmed)
    for asked, code in (
        (Booking("rsv_another", booking().fields), "room_unavailable"),
        (booking(propertyId="unknown"), "property_not_found"),
        (booking(guest={"email": "m@refused.example"}), "guest_refused"),
        (booking(2, roomId="unknown"), "pms_refused"),
    ):
        outcome = await pms.create(asked)
        assert isinstance(outcome, Rejected)
        assert outcome.problem.code == code


@pytest.mark.parametrize("mode", ["error500_after_booking", "garbage_after_booking", "wrong_types_after_booking"])
async def test_what_may_have_been_made_is_looked_for(pms: Pms, client: SimulatorClient, mode: str) -> None:
    await client.go_wrong(mode=mode, count=1)
    assert isinstance(await pms.create(booking()), InDoubt)
    assert isinstance(await pms.find(booking()), Confirmed)
    assert await client.count() == 1

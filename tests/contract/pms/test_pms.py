"""What this house adds to the promises that the conformance kit checks: the reasons that operators read, and what the pace hears.

Every kind that has code of its own against its simulator, since all mapped ones share theirs: real HTTP over loopback, through the
transport of production.
"""

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

import pytest
import pytest_asyncio

from forwarder.pms.accounts import Plaintext
from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import PushPolicy
from forwarder.pms.mapping.adapter import MappedKind
from forwarder.pms.port import AccountConnection, Pms, UnknownKind
from forwarder.pms.registry import KINDS
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected
from tests.contract.pms.pms_site import CREDENTIAL, WORDINGS, House, Site
from tests.support.network.patience import once_met
from tests.support.simulator.pace import HeardPace
from tests.support.simulator.server import QuickClock, running_simulator

pytestmark = pytest.mark.asyncio(loop_scope="module")

T = TypeVar("T")

LONG = PushPolicy(push_seconds=10.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house() -> AsyncIterator[House]:
    clock = QuickClock()
    anything = Plaintext.EVERYTHING  # some addresses here are to be tried, whatever they are
    async with running_simulator() as simulator, open_directory(clock, policy=LONG, plaintext=anything) as directory:
        yield House(simulator, directory, clock)


@pytest.fixture(params=sorted(WORDINGS))
def site(request: pytest.FixtureRequest, house: House) -> Iterator[Site]:
    name = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    house.clock.slept.clear()
    yield Site(request.param, name, house)
    house.simulator.work(name)


async def test_amounts_come_back_as_exactly_what_was_asked(site: Site) -> None:
    if site.wording.amounts == "none":
        pytest.skip("its PMS takes no price")
    for number, price in enumerate((0.1, 450.35, 999999999.99, 1000000, 0.07)):
        outcome = await site.pms.create(site.booking(number, totalPrice=price))
        assert isinstance(outcome, Confirmed)
        assert outcome.record["totalPrice"] == price
        finances = {"totalPrice": price, "currency": "EUR", "totalPaid": 0, "remainingBalance": price}
        shown = finances if site.wording.amounts == "all" else {"totalPrice": price}
        assert outcome.record["finances"] == shown


async def test_taken_nights_are_refused(site: Site) -> None:
    await site.pms.create(site.booking(1, propertyId=7, roomId=7))
    other = site.booking(2, propertyId=7, roomId=7, arrivalDate="2027-03-03", departureDate="2027-03-09")
    outcome = await site.pms.create(other)
    assert _refused(outcome) == "room_unavailable"
    assert isinstance(outcome, Rejected)
    assert outcome.problem.status == 409
    assert outcome.problem.request_id == other.reference


async def test_the_night_of_departure_is_free(site: Site) -> None:
    await site.pms.create(site.booking(1, propertyId=7, roomId=7))
    next_stay = site.booking(2, propertyId=7, roomId=7, arrivalDate="2027-03-04", departureDate="2027-03-05")
    assert isinstance(await site.pms.create(next_stay), Confirmed)


async def test_a_property_that_no_address_can_name(site: Site) -> None:
    outcome = await site.pms.create(site.booking(propertyId="..", roomId=".."))
    assert isinstance(outcome, Confirmed) or _refused(outcome) == "property_not_found"


async def test_a_pms_out_of_service(site: Site) -> None:
    site.go_wrong("down")
    outcome = await site.pms.create(site.booking())
    assert isinstance(outcome, Deferred | InDoubt)  # the first request of some books nothing
    assert outcome.reason == "pms_unavailable"
    assert _deferred(await site.pms.find(site.booking())) == "pms_unavailable"
    assert site.made == 0


async def test_a_pms_that_says_how_long_it_is_out_of_service(site: Site) -> None:
    site.go_wrong("down", retry_after=17, scope="bookings")
    outcome = await site.pms.create(site.booking())
    assert isinstance(outcome, Deferred if site.wording.says_not_done else InDoubt)
    assert outcome.reason == "pms_unavailable"
    assert outcome.retry_after_seconds == (17.0 if site.wording.says_how_long else None)
    assert site.made == 0


async def test_a_throttling_pms_says_when_to_come_again(site: Site) -> None:
    for scope in ("all", "bookings"):
        site.go_wrong("throttle", retry_after=42, scope=scope)
        outcome = await site.pms.create(site.booking())
        assert _deferred(outcome) == "pms_throttled"
        assert isinstance(outcome, Deferred)
        assert outcome.retry_after_seconds is not None
        assert 40.0 < outcome.retry_after_seconds <= 43.0


async def test_whoever_minds_the_pace_hears_of_it(site: Site) -> None:
    pace = HeardPace()
    pms = site.reach(pace=pace)
    assert isinstance(await pms.create(site.booking()), Confirmed)  # with an access token, where the kind needs one
    pace.heard.clear()
    assert isinstance(await pms.create(site.booking(3)), Confirmed)
    assert pace.heard == ["requested"] * site.house.directory.limits(site.kind, {}).requests_per_push
    pace.heard.clear()
    site.go_wrong("throttle", retry_after=42)
    await pms.create(site.booking(2))
    await pms.find(site.booking(2))
    asked = [seconds for seconds in pace.heard if isinstance(seconds, float)]
    assert pace.heard == ["requested", asked[0], "requested", asked[1]]
    assert all(40.0 < seconds <= 43.0 for seconds in asked)


async def test_a_pms_that_hangs_with_a_booking(site: Site) -> None:
    site.go_wrong("hang", scope="bookings")
    assert _in_doubt(await _hung(site, lambda pms: pms.create(site.booking()))) == "pms_timed_out"
    assert site.made == 0


async def test_a_lookup_that_hangs_is_only_put_off(site: Site) -> None:
    site.go_wrong("hang")
    assert _deferred(await _hung(site, lambda pms: pms.find(site.booking()))) == "pms_timed_out"


async def _hung(site: Site, asked: Callable[[Pms], Awaitable[T]]) -> T:
    """What `asked` comes to when its time runs out at the PMS that hangs, and not before it was reached."""

    async def push(seconds: float) -> T:
        async with open_directory(site.house.clock, policy=PushPolicy(push_seconds=seconds)) as impatient:
            return await asked(site.reach(impatient))

    order = site.house.simulator.world.faults.at(site.name)
    assert order is not None
    return await once_met(push, order.met.is_set)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("reset", "pms_connection_lost"),
        ("error500", "pms_failed"),
        ("garbage", "pms_answer_not_understood"),
        ("huge", "pms_connection_lost"),
    ],
)
async def test_answers_that_leave_a_booking_in_doubt(site: Site, mode: str, reason: str) -> None:
    site.go_wrong(mode, scope="bookings")
    assert _in_doubt(await site.pms.create(site.booking())) == reason


async def test_a_redirect_is_not_followed(site: Site) -> None:
    site.go_wrong("redirect")
    outcome = await site.pms.create(site.booking())
    assert isinstance(outcome, Deferred | InDoubt)  # the first request of some books nothing
    assert outcome.reason == "pms_redirected"


async def test_a_credential_that_is_not_accepted_loses_nothing(site: Site) -> None:
    pms = site.reach(credential="wrong")
    assert _deferred(await pms.create(site.booking())) == "pms_unauthorized"
    assert _deferred(await pms.find(site.booking())) == "pms_unauthorized"


@pytest.mark.parametrize("credential", ["two words", "kľúč", "line\nfeed"])
async def test_a_credential_that_no_header_can_carry(site: Site, credential: str) -> None:
    outcome = await site.reach(credential=credential).create(site.booking())
    assert _deferred(outcome) == "pms_credential_invalid"


async def test_an_account_without_a_credential_sends_none(site: Site) -> None:
    assert _deferred(await site.reach(credential="").create(site.booking())) == "pms_unauthorized"


async def test_a_wrong_base_url_loses_nothing(site: Site) -> None:
    pms = site.reach(base_url=f"{site.house.simulator.url}/nowhere/at/all")
    assert _deferred(await pms.create(site.booking())) == "pms_refused_request"
    assert isinstance(await pms.find(site.booking()), Deferred)


async def test_a_refused_connection_is_tried_again_within_the_push(site: Site) -> None:
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))
        pms = site.reach(base_url=f"http://127.0.0.1:{nobody.getsockname()[1]}/api")
        assert _deferred(await pms.create(site.booking())) == "pms_unreachable"
    assert len(site.house.clock.slept) == 2
    assert all(0.0 <= pause <= 1.0 for pause in site.house.clock.slept)


@pytest.mark.parametrize("base_url", ["http://no-such-host.invalid/api", "https://{plain}/api"])
async def test_a_pms_that_cannot_be_connected_to(site: Site, base_url: str) -> None:
    plain = site.house.simulator.url.removeprefix("http://")
    pms = site.reach(base_url=base_url.format(plain=plain))
    assert _deferred(await pms.create(site.booking())) == "pms_unreachable"


@pytest.mark.parametrize("base_url", ["nonsense", "ftp://pms.example/api", "http://[half", "http://host:port/"])
async def test_a_base_url_that_is_none(site: Site, base_url: str) -> None:
    assert _deferred(await site.reach(base_url=base_url).create(site.booking())) == "pms_address_invalid"


async def _has_struck(site: Site) -> None:
    """Return once a request has met the fault that is in force."""
    order = site.house.simulator.world.faults.at(site.name)
    assert order is not None
    async with asyncio.timeout(60):
        await order.met.wait()


async def test_a_closed_directory_raises_nothing(site: Site) -> None:
    async with open_directory(site.house.clock, policy=LONG) as directory:
        pms = site.reach(directory)
    assert isinstance(await pms.create(site.booking()), Deferred | InDoubt)


async def test_one_accounts_hanging_pms_does_not_hold_up_another(site: Site) -> None:
    other = replace(site, name=f"{site.name}-other")
    other.go_wrong("hang")
    hanging = [asyncio.create_task(other.pms.create(other.booking(number))) for number in range(100)]
    await _has_struck(other)
    assert isinstance(await site.pms.create(site.booking(200)), Confirmed)
    assert not any(push.done() for push in hanging)
    other.recover()
    assert all(isinstance(outcome, Deferred | InDoubt) for outcome in await asyncio.gather(*hanging))


async def test_an_unknown_kind_is_named_with_those_that_there_are(site: Site) -> None:
    assert set(WORDINGS) >= {kind for kind in KINDS if not isinstance(KINDS[kind], MappedKind)}
    with pytest.raises(UnknownKind, match=", ".join(sorted(KINDS))):
        site.house.directory.connect(AccountConnection("acme", "fax", "https://pms.test", CREDENTIAL))


def _refused(outcome: Outcome) -> str:
    assert isinstance(outcome, Rejected), outcome
    return outcome.problem.code


def _deferred(outcome: object) -> str:
    assert isinstance(outcome, Deferred), outcome
    return outcome.reason


def _in_doubt(outcome: Outcome) -> str:
    assert isinstance(outcome, InDoubt), outcome
    return outcome.reason

"""Magic values: each does what the guide says, in the wire form of every kind, for the shadow of an account of that kind."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from forwarder.assembly.backend import shadows
from forwarder.pms.directory import open_directory
from forwarder.pms.port import LOOKS_ALIKE, AccountConnection, Pms, PmsDirectory
from forwarder.pms.registry import KINDS
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, InDoubt, Rejected
from forwarder.simulator.world import DOWN_SECONDS, SLOW_SECONDS, Effect, World, effect_of
from forwarder.tenancy.port import Account
from forwarder_pms_kit.simulators import SITES
from tests.support.cases import for_each
from tests.support.simulator.server import QuickClock, Simulator, booking, running_simulator

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSALS = {
    Effect.SOLD_OUT: "room_unavailable",
    Effect.PRICE_CHANGED: "price_changed",
    Effect.CARD_REFUSED: "card_refused",
}
SAY_NOTHING_DONE = {"generic", "website-builder"}
"""The kinds whose 503 says that nothing was done. For the others, it may come from a gateway that lost a PMS at work."""
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "test-mode.md"


class LeapingClock(QuickClock):
    """One whose time can be moved on."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@dataclass(frozen=True, slots=True)
class House:
    """One simulator and the way to it, for all tests."""

    clock: LeapingClock
    simulator: Simulator
    directory: PmsDirectory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house() -> AsyncIterator[House]:
    clock = LeapingClock()
    async with running_simulator(World(clock)) as simulator, open_directory(QuickClock()) as directory:
        yield House(clock, simulator, directory)


@dataclass(frozen=True, slots=True)
class Trial:
    """The shadow of an account that no other test has, and how a magic value is put in."""

    kind: str
    by: str
    house: House

    @property
    def name(self) -> str:
        return f"test~{self.kind}-{self.by}"

    @property
    def shadow(self) -> Account:
        real = Account(self.name.removeprefix("test~"), "acme", self.kind, "http://127.0.0.1:9", "sealed")
        return shadows(self.house.simulator.url, lambda text, _: text)(real)

    @property
    def pms(self) -> Pms:
        shadow = self.shadow
        connection = AccountConnection(
            shadow.id, shadow.kind, shadow.base_url, shadow.credential, options=shadow.options
        )
        return self.house.directory.connect(connection)

    @property
    def made(self) -> int:
        count: int = self.house.simulator.world.stats()["by_account"][self.name]
        return count

    def booking(self, effect: Effect) -> Booking:
        fields: dict[str, Any] = {"roomId": effect.number, "propertyId": effect.number}
        if self.by == "last name":
            fields = {"guest": {"firstName": "Maria", "lastName": effect.last_name}}
        if self.by == "name":
            fields = {"guest": {"name": f"Maria {effect.last_name.upper()}"}}
        asked = booking(effect.number, **fields)
        named = sha256(f"{asked.reference}-{self.name}".encode()).hexdigest()[:32]
        return Booking(f"rsv_{named}", asked.fields, website_id="site-7")


@pytest.fixture(params=["number", "last name", "name"])
def by(request: pytest.FixtureRequest) -> str:
    way: str = request.param
    return way


@pytest.fixture(params=sorted(KINDS))
def trial(request: pytest.FixtureRequest, by: str, house: House) -> Trial:
    house.simulator.world.reset()
    house.clock.slept.clear()
    return Trial(request.param, by, house)


async def test_what_is_refused_is_refused_for_the_reason_that_was_asked_for(trial: Trial) -> None:
    for effect, code in REFUSALS.items():
        refused = await trial.pms.create(trial.booking(effect))
        assert isinstance(refused, Rejected)
        assert refused.problem.code == code
        assert await trial.pms.find(trial.booking(effect)) == Absent()
    assert trial.made == 0


async def test_a_slow_one_is_confirmed_after_a_while(trial: Trial) -> None:
    assert isinstance(await trial.pms.create(trial.booking(Effect.SLOW)), Confirmed)
    assert trial.house.clock.slept == [SLOW_SECONDS]
    assert trial.made == 1


async def test_a_pms_that_is_down_for_a_minute_makes_nothing_and_then_makes_it(trial: Trial) -> None:
    asked = trial.booking(Effect.DOWN)
    for _ in range(2):
        outcome = await trial.pms.create(asked)
        assert isinstance(outcome, Deferred if trial.shadow.kind in SAY_NOTHING_DONE else InDoubt)
        assert outcome.reason == "pms_unavailable"
        assert await trial.pms.find(asked) == Absent()
    assert trial.made == 0
    trial.house.clock.ahead += DOWN_SECONDS
    assert isinstance(await trial.pms.create(asked), Confirmed)
    assert trial.made == 1


async def test_a_lost_answer_leaves_a_doubt_that_is_settled_to_one_reservation(trial: Trial) -> None:
    asked = trial.booking(Effect.ANSWER_LOST)
    lost = await trial.pms.create(asked)
    assert isinstance(lost, InDoubt)
    assert lost.reason == "pms_connection_lost"
    found = await trial.pms.find(asked)
    if trial.pms.capabilities.finds_by_stay:
        assert isinstance(found, Deferred)
        assert (found.reason, trial.made) == (LOOKS_ALIKE, 1)
        return
    assert isinstance(found, Confirmed)
    if trial.pms.capabilities.idempotent_create:
        again = await trial.pms.create(asked)
        assert isinstance(again, Confirmed)
        assert again.pms_reservation_id == found.pms_reservation_id
    assert trial.made == 1


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_whatever_else_is_asked_for_is_confirmed(house: House, kind: str) -> None:
    trial = Trial(kind, "nothing", house)
    assert isinstance(await trial.pms.create(booking(77)), Confirmed)


async def test_one_that_finds_the_pms_down_leaves_those_in_the_same_request_in_doubt_too(house: House) -> None:
    trial, site = Trial("beds24", "number", house), SITES["beds24"]
    house.simulator.world.reset()
    several = [booking(1, roomId=8001), trial.booking(Effect.DOWN), trial.booking(Effect.SLOW)]
    address = f"{house.simulator.url}/{trial.name}/{site.path}"
    pms = house.directory.connect(AccountConnection(trial.name, "beds24", address, site.credential))
    assert all(isinstance(outcome, InDoubt) for outcome in await pms.create_many(several))
    assert trial.made == 0
    house.clock.ahead += DOWN_SECONDS
    assert all(isinstance(outcome, Confirmed) for outcome in await pms.create_many(several))


async def test_two_who_are_slow_do_not_wait_for_one_another(house: House) -> None:
    house.simulator.world.reset()
    trials = [Trial(kind, "number", house) for kind in ("generic", "hostaway")]
    made = await asyncio.gather(*(trial.pms.create(trial.booking(Effect.SLOW)) for trial in trials))
    assert all(isinstance(outcome, Confirmed) for outcome in made)


@for_each(
    "usual",
    ["Maria Gonzalez", "Test", "test-sold-out@example.com", "Sold-Out", "", None, 999, "990000001", 9_990_000_007],
)
async def test_nothing_that_a_guest_or_a_property_is_called_is_magic(usual: object) -> None:
    assert effect_of(usual) is None


async def test_the_guide_names_every_value_and_no_other() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(Test-[A-Za-z-]+)` \| `(\d+)` \|", guide, re.MULTILINE))
    assert told == {each.last_name: str(each.number) for each in Effect}
    for effect, code in REFUSALS.items():
        (row,) = [line for line in guide.splitlines() if line.startswith(f"| `{effect.last_name}`")]
        assert f"`{code}`" in row

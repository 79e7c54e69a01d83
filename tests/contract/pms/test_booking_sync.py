"""Kind `booking-sync` against its simulator over real HTTP: tokens, quotes, strict bookings, payments, cards, cancellation."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from forwarder.pms.auth import RenewalTimes, SharedGrantKeeper, credential_digest
from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Pms, PmsDirectory
from forwarder.process.clock import SystemClock
from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, Rejected
from forwarder.simulator.booking_sync import LIFE
from forwarder.simulator.world import World
from forwarder.store.engine import Engine
from forwarder.tenancy.sql.secrets import SqlGrants
from tests.support.memory.clock import ManualClock
from tests.support.sealing import keyring_of
from tests.support.simulator.server import CARD, Simulator, booking, running_simulator

SECRET = "the secret of the tests"
OAUTH = json.dumps({"clientId": "app", "clientSecret": "s3cr3t", "refreshToken": "refresh-of-the-operator"})
TURNS = RenewalTimes(pause_seconds=0.02)


@pytest.fixture
def clock() -> ManualClock:
    """The simulator's: how old its tokens are, and what is held, goes by it. It begins with the adapter's."""
    return ManualClock(datetime.now(UTC))


@pytest.fixture
async def simulator(clock: ManualClock) -> AsyncIterator[Simulator]:
    async with running_simulator(World(clock)) as running:
        yield running


@pytest.fixture
async def directory() -> AsyncIterator[PmsDirectory]:
    async with open_directory(SystemClock()) as opened:
        yield opened


def account(simulator: Simulator, credential: str = "a plain token", **options: Any) -> AccountConnection:
    return AccountConnection("acme", "booking-sync", simulator.base_url("booking-sync"), credential, options=options)


def cards(simulator: Simulator) -> dict[str, Any]:
    platform = f"{simulator.base_url('booking-sync')}/api/bookingsync/instant_bookings"
    return {"gatewayId": "123", "gatewayName": "bogus", "url": platform}


@pytest.fixture
def plain(simulator: Simulator, directory: PmsDirectory) -> Pms:
    return directory.connect(account(simulator, "plain-token"))


# --- tokens ---------------------------------------------------------------------------------------------------------------


async def test_all_processes_share_one_rotating_grant(simulator: Simulator, clock: ManualClock, engine: Engine) -> None:
    keepers = [
        SharedGrantKeeper(SqlGrants(engine, keyring_of(SECRET), keyring_of(SECRET)), SystemClock(), TURNS)
        for _ in range(3)
    ]
    async with (
        open_directory(SystemClock(), grants=keepers[0]) as first,
        open_directory(SystemClock(), grants=keepers[1]) as second,
        open_directory(SystemClock(), grants=keepers[2]) as third,
    ):
        every = [opened.connect(account(simulator, OAUTH)) for opened in (first, second, third)]

        async def book_all(begin: int) -> None:
            asked = [(pms, booking(begin + number)) for number, pms in enumerate(every * 5)]
            outcomes = await asyncio.gather(*(pms.create(one) for pms, one in asked))
            assert all(isinstance(outcome, Confirmed) for outcome in outcomes), outcomes

        await book_all(100)
        assert simulator.world.requests["acme"] == 15 * 2 + 1
        await clock.advance(LIFE.total_seconds())
        await book_all(200)
        await clock.advance(LIFE.total_seconds())
        await book_all(300)
    rows = SqlGrants(engine, keyring_of(SECRET), keyring_of(SECRET))
    kept = await rows.read("acme", credential_digest(OAUTH))
    assert kept is not None
    assert (kept.version, kept.claim) == (3, None)
    assert kept.content is not None
    assert json.loads(kept.content)["refreshToken"] == "sim-refresh-3"


async def test_a_wrong_secret_or_a_used_up_refresh_token_books_nothing(
    simulator: Simulator, directory: PmsDirectory
) -> None:
    wrong = json.dumps({"clientId": "app", "clientSecret": "wrong", "refreshToken": "r"})
    used_up = json.dumps({"clientId": "app", "clientSecret": "s3cr3t", "refreshToken": "sim-refresh-99"})
    for credential in (wrong, used_up):
        outcome = await directory.connect(account(simulator, credential)).create(booking())
        assert isinstance(outcome, Deferred)
        assert outcome.reason == "pms_unauthorized"
    assert simulator.world.made == 0


# --- quotes, strict bookings, payments ------------------------------------------------------------------------------------


async def test_a_quoted_booking_has_its_fees_and_taxes(simulator: Simulator, directory: PmsDirectory) -> None:
    pms = directory.connect(account(simulator, "plain-token", liveQuote=True))
    outcome = await pms.create(booking(totalPrice=380))
    assert isinstance(outcome, Confirmed)
    finances = outcome.record["finances"]
    assert finances["totalPrice"] == 380
    assert finances["basePrice"]["totalBasePrice"] == 300
    assert finances["fee"]["breakdown"] == [{"name": "Cleaning", "type": "Fee", "total": 50}]
    assert finances["tax"]["breakdown"] == [{"name": "Tourist tax", "type": "Tax", "total": 30}]
    assert await pms.find(booking()) == outcome
    taken = await pms.create(booking(1, totalPrice=380))
    dearer = await pms.create(booking(2, totalPrice=381))
    assert isinstance(taken, Rejected)
    assert isinstance(dearer, Rejected)
    assert (taken.problem.code, dearer.problem.code) == ("room_unavailable", "price_changed")


async def test_a_strict_booking(simulator: Simulator, directory: PmsDirectory) -> None:
    pms = directory.connect(account(simulator, "plain-token", strictBookings=True))
    outcome = await pms.create(booking())
    assert isinstance(outcome, Confirmed)
    assert await pms.find(booking()) == outcome
    refused = await pms.create(booking())
    assert isinstance(refused, Rejected)
    assert refused.problem.code == "room_unavailable"
    assert await pms.cancel(booking(), outcome.pms_reservation_id) == Cancelled()
    assert simulator.world.requests["acme"] == 4


async def test_what_was_paid_elsewhere_is_shown_as_paid(simulator: Simulator, directory: PmsDirectory) -> None:
    pms = directory.connect(account(simulator, "plain-token", recordPayments=True))
    outcome = await pms.create(booking(morChannel="SELF", transactionId="tx-1"))
    assert isinstance(outcome, Confirmed)
    assert outcome.record["finances"]["totalPaid"] == 450.35
    found = await pms.find(booking())
    assert isinstance(found, Confirmed)
    assert found.record["finances"]["totalPaid"] == 450.35
    assert found.record["finances"]["remainingBalance"] == 0


# --- cards ----------------------------------------------------------------------------------------------------------------


async def test_a_card_is_charged_and_the_booking_confirmed(simulator: Simulator, directory: PmsDirectory) -> None:
    pms = directory.connect(account(simulator, "plain-token", securePayments=cards(simulator)))
    asked = booking(card=CARD, morChannel="PMS")
    outcome = await pms.create(asked)
    assert isinstance(outcome, Confirmed), outcome
    assert outcome.record["finances"]["totalPaid"] == 450.35
    assert await pms.find(asked) == outcome


@pytest.mark.parametrize("last", ["1112", "3220"])
async def test_a_card_that_is_declined_leaves_the_nights_free(
    simulator: Simulator, directory: PmsDirectory, last: str
) -> None:
    card = CARD.model_copy(update={"card_number": f"411111111111{last}"})
    pms = directory.connect(account(simulator, "plain-token", securePayments=cards(simulator)))
    outcome = await pms.create(booking(card=card, morChannel="PMS"))
    assert isinstance(outcome, Rejected), outcome
    assert outcome.problem.code == "card_refused"
    assert isinstance(await pms.create(booking(1, morChannel="SELF")), Confirmed)


async def test_a_card_that_may_have_been_charged_is_settled_by_time(
    simulator: Simulator, directory: PmsDirectory, clock: ManualClock
) -> None:
    card = CARD.model_copy(update={"card_number": "4111111111111113"})
    pms = directory.connect(account(simulator, "plain-token", securePayments=cards(simulator)))
    asked = booking(card=card, morChannel="PMS")
    assert isinstance(await pms.create(asked), InDoubt)
    held = await pms.find(asked)
    await clock.advance(660)
    ended = await pms.find(asked)
    assert isinstance(held, Deferred)
    assert isinstance(ended, Deferred)
    # A payment was begun for it: only a person can say whether the card was charged.
    assert (held.reason, ended.reason) == ("pms_still_working", "cancelled_in_pms")


# --- cancellation ---------------------------------------------------------------------------------------------------------


async def test_a_cancelled_booking_frees_its_nights_and_may_be_cancelled_again(plain: Pms) -> None:
    made = await plain.create(booking())
    assert isinstance(made, Confirmed)
    for _ in range(2):
        assert await plain.cancel(booking(), made.pms_reservation_id) == Cancelled()
    assert isinstance(await plain.find(booking()), Deferred)
    again = booking(1, propertyId=booking().property_id)
    assert isinstance(await plain.create(again), Confirmed)


async def test_a_booking_that_never_was_is_cancelled_under_the_right_address_alone(
    plain: Pms, simulator: Simulator, directory: PmsDirectory
) -> None:
    assert await plain.cancel(booking(), "424242") == Cancelled()
    nowhere = AccountConnection("acme", "booking-sync", f"{simulator.url}/nowhere/api/v3", "plain-token")
    assert isinstance(await directory.connect(nowhere).cancel(booking(), "424242"), Deferred)
    unknown = booking(propertyId="unknown")
    assert isinstance(await plain.cancel(unknown, "424242"), Deferred)
    assert await plain.find(booking()) == Absent()

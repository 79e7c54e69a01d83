"""Test mode: what a test key may name, what a shadow is made of, what is accepted for one, and how its results are told."""

from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

import pytest
from pydantic_core import from_json
from starlette.datastructures import Headers

from forwarder.assembly.backend import shadows
from forwarder.ingress.message import IngressSettings
from forwarder.pms.registry import KINDS, check_options
from forwarder.process.supervision import bind, own_url
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import Problem
from forwarder.reservation.record import ResultEvent, result_data
from forwarder.reservation.submission import is_test, live_account_id, shadow_id
from forwarder.simulator.world import SITES
from forwarder.tenancy.access import Access, Caller
from forwarder.tenancy.port import Account, ApiKey
from forwarder.tenancy.sealing import of_credential
from forwarder.topics.codec import encode_result, header
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.sealing import keyring_of
from tests.support.stages.http_stages import (
    BOOKING_ENGINE_PATH,
    BULK_PATH,
    GENERAL_PATH,
    HEADERS,
    RESULTS,
    Stages,
    stages,
)
from tools.contracts.openapi import contract_schemas

SECRET = "a secret of these tests alone"
REAL = Account(
    "acc-1",
    "ws-1",
    "booking-sync",
    "https://www.bookingsync.com/api/v3",
    keyring_of(SECRET).seal_text("the-real-credential", "the account"),
    concurrency=3,
    rate_per_second=1.5,
    deadline_seconds=3600,
    paused=True,
    options={"tokenUrl": "https://real.example/oauth/token", "liveQuote": True},
    skipped_checks=("past-arrival",),
)
TEST = {"Authorization": "Bearer test-token", "workspaceId": "ws-1", "integrationAccountId": "acc-1"}


class KnownDirectory:
    """Implements `Directory` with a key of each mode, and one account beside its shadow."""

    async def key(self, token: str) -> ApiKey | None:
        return {"live-token": ApiKey("key_1", "ws-1"), "test-token": ApiKey("key_2", "ws-1", test=True)}.get(token)

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        return {"acc-1": REAL, "test~acc-1": replace(REAL, id="test~acc-1")}.get(account_id)


async def caller(**changes: str) -> Caller | Problem:
    return await Access(KnownDirectory(), ManualClock()).caller(dict(Headers(TEST | changes).raw), "")


async def test_a_test_key_acts_in_the_shadow_and_a_live_one_in_the_account() -> None:
    test, live = await caller(), await caller(Authorization="Bearer live-token")
    assert isinstance(test, Caller)
    assert (test.account.id, test.account.test) == ("test~acc-1", True)
    assert isinstance(live, Caller)
    assert (live.account.id, live.account.test) == ("acc-1", False)


@pytest.mark.parametrize("token", ["live-token", "test-token"])
async def test_nobody_can_name_a_shadow(token: str) -> None:
    refused = await caller(Authorization=f"Bearer {token}", integrationAccountId="test~acc-1")
    assert isinstance(refused, Problem)
    assert refused.code == "account_not_found"
    assert refused == await caller(integrationAccountId="no-such-account")


def test_a_shadow_is_told_by_its_identifier() -> None:
    assert [is_test(known) for known in (shadow_id("acc"), "acc", "test", "test-acc", "a~test~b")] == [
        True,
        *(False,) * 4,
    ]
    assert [live_account_id(known) for known in (shadow_id("acc"), "acc")] == ["acc"] * 2


def test_a_shadow_has_nothing_of_the_account_but_kind_workspace_deadline_and_checks() -> None:
    shadow = shadows("http://sim.test/simulator", keyring_of(SECRET).seal_text)(REAL)
    assert (shadow.id, shadow.workspace_id, shadow.kind) == ("test~acc-1", "ws-1", "booking-sync")
    assert shadow.base_url == "http://sim.test/simulator/test~acc-1/booking-sync/api/v3"
    assert keyring_of(SECRET).open_text(shadow.credential, of_credential(shadow)) == "a-simulated-credential"
    assert not shadow.options
    assert shadow.skipped_checks == ("past-arrival",)
    assert (shadow.concurrency, shadow.rate_per_second, shadow.deadline_seconds, shadow.paused) == (
        64,
        None,
        3600,
        False,
    )
    for told in (REAL.credential, "bookingsync.com", "real.example"):
        assert told not in str(asdict(shadow))


def test_a_shadow_stays_the_same_one() -> None:
    shadow_of = shadows("http://sim.test", keyring_of(SECRET).seal_text)
    assert shadow_of(REAL) == shadow_of(replace(REAL, paused=False, credential="another"))


def test_an_identifier_that_no_address_can_hold_as_it_is_makes_an_address() -> None:
    shadow = shadows("http://sim.test", lambda text, _: text)(replace(REAL, id="a b/ü?c"))
    assert shadow.base_url == "http://sim.test/test~a%20b%2F%C3%BC%3Fc/booking-sync/api/v3"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_process_reaches_its_own_simulator_wherever_it_listens(host: str) -> None:
    with closing(bind(host, 0)) as listening:
        assert own_url(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"


@for_each("kind", [*KINDS, "acme-fax"])
def test_every_kind_has_a_shadow_that_can_be_connected_to(kind: str) -> None:
    options = {"mapping": "no such mapping"}
    shadow = shadows("http://sim.test", lambda text, _: text)(replace(REAL, kind=kind, options=options))
    assert shadow.kind == (kind if kind in SITES else "generic")
    check_options(shadow.kind, shadow.options)


# --- at the ingress -------------------------------------------------------------------------------------------------------


def let_in_a_test_key(house: Stages) -> dict[str, str]:
    """The headers of a test key of workspace `alpha`."""
    directory = house.directory
    directory.keys = {**directory.keys, "token-test": ApiKey("key-test", "alpha", test=True)}
    shadow_of = shadows("http://sim.test", lambda text, _: text)
    shadow = shadow_of(directory.accounts["alpha-1"])
    directory.accounts = {**directory.accounts, shadow.id: shadow}
    return {**HEADERS, "Authorization": "Bearer token-test"}


def stay(**more: Any) -> dict[str, Any]:
    return {"propertyId": 7, "arrivalDate": "2027-03-01", "departureDate": "2027-03-04", "guest": {"name": "A"}, **more}


@pytest.mark.parametrize("path", [GENERAL_PATH, BOOKING_ENGINE_PATH, BULK_PATH, f"{GENERAL_PATH}/1/cancel"])
async def test_without_a_simulator_nothing_of_a_test_key_is_accepted(path: str) -> None:
    async with stages() as house:
        answer = await house.client.post(path, json=stay(), headers=let_in_a_test_key(house))
        assert (answer.status_code, answer.json()["code"]) == (403, "test_mode_unavailable")
        assert house.requests == []


async def test_one_key_in_live_and_in_test_mode_is_two_submissions() -> None:
    async with stages(IngressSettings(test_mode=True)) as house:
        test = let_in_a_test_key(house)
        again = {"Idempotency-Key": '"order-1"', "Prefer": "respond-async"}
        live_answer = await house.client.post(GENERAL_PATH, json=stay(), headers=again)
        test_answer = await house.client.post(GENERAL_PATH, json=stay(propertyId=8), headers={**test, **again})
        assert (live_answer.status_code, test_answer.status_code) == (202, 202)
        ids = [answer.json()["data"]["requestId"] for answer in (live_answer, test_answer)]
        assert ids[0] != ids[1]
        assert [from_json(message.value)["integrationAccountId"] for message in house.requests] == [
            "alpha-1",
            "test~alpha-1",
        ]
        assert [message.key for message in house.requests] == [b"alpha-1:7", b"test~alpha-1:8"]
        seen = [
            [(await house.client.get(f"/api/v1/vrs/submissions/{known}", headers=headers)).status_code for known in ids]
            for headers in (HEADERS, test)
        ]
        assert seen == [[200, 404], [404, 200]]


# --- results --------------------------------------------------------------------------------------------------------------


def result(account_id: str) -> ResultEvent:
    data = result_data(
        request_id="rsv_1", workspace_id="ws-1", account_id=account_id, status=Status.CONFIRMED, record={}
    )
    return ResultEvent("rsv_1", 1, Status.CONFIRMED, f"{account_id}:7", "2027-01-01T00:00:00.000Z", data)


def test_a_result_of_test_mode_can_be_told_by_header_and_by_value() -> None:
    message = encode_result(result("test~acc-1"))
    assert header(message.headers, "ce_test") == "true"
    assert from_json(message.value)["test"] is True


def test_a_live_result_says_nothing_of_modes() -> None:
    message = encode_result(result("acc-1"))
    assert header(message.headers, "ce_test") is None
    assert "test" not in from_json(message.value)


async def test_the_events_that_the_stages_announce_are_told_apart() -> None:
    async with stages(IngressSettings(test_mode=True)) as house:
        headers = let_in_a_test_key(house) | {"Prefer": "respond-async"}
        await house.client.post(GENERAL_PATH, json=stay(), headers=headers)
        await house.settle(await house.requested(), Status.CONFIRMED, pms_reservation_id="1001")
        (event,) = house.log.topics[RESULTS]
    assert header(event.headers, "ce_test") == "true"
    assert "test" in contract_schemas()["ResultData"]["properties"]

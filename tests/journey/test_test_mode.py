"""Test mode beside live: one account, one workspace, two keys; and the account's own PMS, which hears nothing of what is tried."""

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.backends import only
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Site, booking, deploy

ACCOUNT = "acme"


@pytest.fixture
async def deployment(site: Site) -> AsyncIterator[Deployment]:
    """A forwarder whose account `acme` has a PMS apart: the simulator of test mode is inside `forwarder up`."""
    async with deploy(site) as running:
        await running.add_account(ACCOUNT, kind="booking-sync", path="booking-sync/api/v3")
        yield running


@pytest.fixture
async def trying(deployment: Deployment) -> Deployment:
    """The same, for a caller with a test key."""
    made = await deployment.command("key", "add", "--workspace", "demo", "--test")
    other = copy.copy(deployment)
    other.token = made["token"]
    return other


def named(number: int, last_name: str) -> dict[str, Any]:
    stay = booking(number)
    return {**stay, "guest": {**stay["guest"], "lastName": last_name}}


@only("embedded")
async def test_what_is_tried_and_what_is_live_never_meet(deployment: Deployment, trying: Deployment) -> None:
    await deployment.command("account", "pause", ACCOUNT)  # which holds up what is live alone
    refused = await trying.submit(
        ACCOUNT, named(1, "Test-Sold-Out"), **{"Prefer": "wait=30", "Idempotency-Key": '"order-1"'}
    )
    assert (refused.status_code, refused.json()["code"]) == (409, "room_unavailable")
    confirmed = await trying.submit(ACCOUNT, booking(2), Prefer="wait=30")
    assert confirmed.status_code == 201, confirmed.text
    lost = await trying.submit(ACCOUNT, named(3, "Test-Answer-Lost"), Prefer="wait=60")
    assert lost.status_code == 201, lost.text
    shown = await trying.submission(ACCOUNT, lost.json()["data"]["requestId"])
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["in_doubt", "confirmed"]
    await _is_cancelled_while_its_pms_is_down(trying)
    made = await deployment.made()
    assert (made["made"], made["requests"]) == (0, 0)

    await deployment.command("account", "resume", ACCOUNT)
    live = {"Prefer": "wait=30", "Idempotency-Key": '"order-1"'}
    booked = await deployment.submit(ACCOUNT, booking(5), **live)
    assert booked.status_code == 201, booked.text
    assert (await deployment.made())["by_account"] == {ACCOUNT: 1}
    assert [record["status"] for record in await deployment.records(ACCOUNT)] == ["CONFIRMED"]
    tried = [record["status"] for record in await trying.records(ACCOUNT)]
    assert tried == ["REJECTED", "CONFIRMED", "CONFIRMED", "CANCELLED"]
    assert len(await deployment.listed("submissions", "list", "--account", f"test~{ACCOUNT}")) == len(tried)
    simulated = (await deployment.client.get(f"{deployment.url('up')}/simulator/stats")).json()
    assert simulated["by_account"] == {f"test~{ACCOUNT}": 2}
    assert simulated["duplicates"]["surplus"] == 0


async def _is_cancelled_while_its_pms_is_down(trying: Deployment) -> None:
    accepted = await trying.submit(ACCOUNT, named(4, "Test-Down"))
    request_id = accepted.json()["data"]["requestId"]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (shown := await trying.submission(ACCOUNT, request_id))["attempts"]:
            await asyncio.sleep(0.05)
    assert shown["status"] == "PENDING"
    assert shown["attempts"][-1]["reason"] == "pms_unavailable"
    assert (await trying.cancel(ACCOUNT, request_id)).status_code == 202
    assert (await trying.settled(ACCOUNT, request_id))["status"] == "CANCELLED"

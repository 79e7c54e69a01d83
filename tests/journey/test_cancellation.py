"""Cancelling, from the call to the PMS and back: in every kind of PMS, by callers and by operators, while the PMS is away too."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.backends import slow_on
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Site, booking, deploy

KINDS = {"generic": "generic", "website-builder": "website-builder", "booking-sync": "booking-sync/api/v3"}


@pytest.fixture
async def deployment(site: Site) -> AsyncIterator[Deployment]:
    """A running forwarder with an account of each kind, under its name; taken nights are refused."""
    async with deploy(site, "--calendars") as running:
        await asyncio.gather(*(running.add_account(kind, kind=kind, path=path) for kind, path in KINDS.items()))
        yield running


def stay(number: int) -> dict[str, Any]:
    return booking(number, paymentProviderId=42)


async def book(deployment: Deployment, account: str, number: int) -> str:
    answer = await deployment.submit(account, stay(number), Prefer="wait=30")
    assert answer.status_code == 201, answer.text
    request_id: str = answer.json()["data"]["requestId"]
    return request_id


@slow_on("distributed")
async def test_a_cancelled_reservation_is_gone_from_the_pms_and_its_nights_are_free(deployment: Deployment) -> None:
    for kind in KINDS:
        request_id = await book(deployment, kind, 1)
        taken = await deployment.submit(kind, stay(1) | {"transactionId": "another"}, Prefer="wait=30")
        assert taken.status_code == 409, taken.text
        answer = await deployment.cancel(kind, request_id, Prefer="wait=30")
        assert answer.status_code == 200, answer.text
        record = answer.json()["data"]
        assert (record["requestId"], record["status"]) == (request_id, "CANCELLED")
        assert record["cancelledAt"] == record["updatedAt"] > record["createdAt"]
        shown = await deployment.submission(kind, request_id)
        assert (shown["record"], shown["cancellation"]["status"]) == (record, "DONE")
        assert record in await deployment.records(kind)
        again = await deployment.cancel(kind, str(record["id"]))
        assert (again.status_code, again.json()["data"]) == (200, record)
        await book(deployment, kind, 1)
    assert (await deployment.made())["cancelled"] == len(KINDS)


@slow_on("distributed")
async def test_what_is_cancelled_while_its_pms_is_away_is_never_sent_and_an_operator_cancels_too(
    deployment: Deployment,
) -> None:
    made = await book(deployment, "generic", 1)
    faults = f"{deployment.url('simulate')}/generic/faults"
    await deployment.client.put(faults, json={"mode": "down"})
    accepted = await deployment.submit("generic", stay(2))
    request_id = accepted.json()["data"]["requestId"]
    assert (await deployment.cancel("generic", request_id)).status_code == 202
    settled = await deployment.settled("generic", request_id)
    assert (settled["status"], settled["record"]["pmsReservationId"]) == ("CANCELLED", None)
    said = await deployment.command(
        "submissions", "cancel", made, "--reason", "The guest of 4111 1111 1111 1111 called."
    )
    assert (said["requestId"], said["status"]) == (made, "CONFIRMED")
    await deployment.client.delete(faults)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (shown := await deployment.command("submissions", "show", made))["status"] != "CANCELLED":
            pass
    assert (shown["cancellation"]["status"], shown["cancellation"]["reason"]) == (
        "DONE",
        "The guest of 411111******1111 called.",
    )
    assert (await deployment.command("submissions", "cancel", made))["status"] == "CANCELLED"
    assert (await deployment.made())["made"] == 1

"""Callers who know the specification alone, and none of our headers: what they send again, to whomever, is booked once."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.backends import only, slow_on
from tests.support.deployment.deployment import Deployment, booking

WINDOW = 300


def unpaid(number: int, **more: Any) -> dict[str, Any]:
    """Without a transaction: recognised by what it asks for alone."""
    return {name: value for name, value in booking(number, **more).items() if name != "transactionId"}


async def submit(deployment: Deployment, role: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    return await deployment.client.post(
        deployment.url(role) + "/api/v1/vrs/reservations/booking-engine",
        json=body,
        headers=deployment.headers("twice", **headers),
    )


@pytest.mark.slow  # the next one is harder: another ingress, another worker
@slow_on("embedded")
@pytest.mark.parametrize("paid", [False, True])
async def test_one_ingress_answers_it_at_once(deployment: Deployment, *, paid: bool) -> None:
    await deployment.add_account("twice", duplicate_window_seconds=WINDOW)
    body = booking(1) if paid else unpaid(1)
    first = await submit(deployment, "ingress", body, Prefer="wait=20")
    assert "Idempotency-Key" in first.headers["link"]
    again = await submit(deployment, "ingress", body, Prefer="wait=20")
    assert (again.status_code, first.status_code) == (202, 202) or again.json()["data"] == first.json()["data"]
    assert again.headers["duplicate-of"] == first.json()["data"]["requestId"]
    assert len(await deployment.records("twice")) == 1


@only("distributed")
async def test_another_ingress_and_another_worker_know_it_too(deployment: Deployment) -> None:
    """While the first worker is killed, and the first ingress too: nothing of what they had in memory is left."""
    await deployment.add_account("twice", duplicate_window_seconds=WINDOW)
    deployment.add("ingress", role="other-ingress")
    await deployment.start()
    bodies = [unpaid(number) if number % 2 else booking(number) for number in range(20)]
    first = await asyncio.gather(*(submit(deployment, "ingress", body) for body in bodies))
    again = asyncio.gather(*(submit(deployment, "other-ingress", body, Prefer="wait=40") for body in bodies))
    for role in ("worker", "ingress"):
        await asyncio.to_thread(deployment.processes[role].kill)
    await deployment.start()
    answers = await again
    assert [answer.status_code for answer in answers] == [201] * len(bodies), [each.text for each in answers]
    third = await asyncio.gather(*(submit(deployment, "ingress", body, Prefer="wait=40") for body in bodies))
    ids = [answer.json()["data"]["requestId"] for answer in first]
    for answers_of_all in (answers, third):
        assert [answer.headers["duplicate-of"] for answer in answers_of_all] == ids
        assert [answer.json()["data"]["requestId"] for answer in answers_of_all] == ids
    records = await deployment.all_settled("twice", len(bodies))
    assert sorted(record["requestId"] for record in records) == sorted(ids)
    assert (await deployment.made())["made"] == len(bodies)


@slow_on("distributed")
async def test_two_keys_book_two_and_what_was_cancelled_is_booked_again(deployment: Deployment) -> None:
    await deployment.add_account("twice", duplicate_window_seconds=WINDOW)
    keyed = [await submit(deployment, "ingress", unpaid(3), **{"Idempotency-Key": f"k{number}"}) for number in range(2)]
    ids = {answer.json()["data"]["requestId"] for answer in keyed}
    assert len(ids) == 2
    first = await submit(deployment, "ingress", unpaid(4), Prefer="wait=20")
    cancelled = await deployment.cancel("twice", first.json()["data"]["requestId"], Prefer="wait=20")
    assert cancelled.status_code == 200, cancelled.text
    again = await submit(deployment, "ingress", unpaid(4), Prefer="wait=20")
    assert "duplicate-of" not in again.headers
    assert len(await deployment.all_settled("twice", 4)) == 4

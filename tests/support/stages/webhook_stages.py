"""The API of webhooks within the stages in memory, with a caller who takes no answer that the contract does not have."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from forwarder.reservation.record import RESULT_TYPES
from forwarder.store.deliveries import DeliveryAttempt, DeliveryStatus, NewDelivery
from tests.support.stages.contract_stages import contract_stages
from tests.support.stages.http_stages import Stages

PATH = "/api/v1/vrs/webhooks"
URL = "https://hooks.example/in"


@asynccontextmanager
async def webhook_stages() -> AsyncIterator[Stages]:
    """The stages, with a client that names no account, and takes no answer that the contract does not have."""
    async with contract_stages() as built:
        del built.client.headers["integrationAccountId"]
        yield built


async def added(house: Stages, **body: Any) -> dict[str, Any]:
    """A new webhook, as its adding was answered."""
    answer = await house.client.post(PATH, json={"url": URL, **body})
    assert answer.status_code == 201, answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data


async def listed(house: Stages, query: str = "", **headers: str) -> Any:
    """A page of the webhooks."""
    return (await house.client.get(PATH + query, headers=headers)).json()


def faults(answer: httpx.Response) -> dict[str, str]:
    """The codes of what a problem finds wrong, by their pointers."""
    assert answer.headers["content-type"] == "application/problem+json"
    return {fault["pointer"]: fault["code"] for fault in answer.json().get("errors", ())}


async def deliveries(house: Stages, endpoint_id: str, count: int, *, failed: int = 0) -> None:
    """So many in the log, from 1 on; the first of them `failed`."""
    now = house.clock.now()
    attempts = (DeliveryAttempt("2027-01-01T00:00:00.000Z", 12, 503, None, "Service Unavailable"),)
    for number in range(1, count + 1):
        status = DeliveryStatus.FAILED if number <= failed else DeliveryStatus.DELIVERED
        about = NewDelivery(endpoint_id, f"rsv_x.{number}", RESULT_TYPES[0], "{}")
        [made] = await house.deliveries.queue([about], now=now)
        house.deliveries.change(made, status=status, due_at=None, ended_at=now, tries=1, attempts=attempts)

"""A bulk, end to end: every item is made once, however often the bulk is sent; what is tried is not made."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx

from tests.support.backends import slow_on
from tests.support.deployment.deployment import Deployment, booking

ITEMS = 200


async def _send(
    deployment: Deployment, items: Sequence[Any], query: str = "", account: str = "generic"
) -> httpx.Response:
    lines = "\n".join(map(json.dumps, items))
    headers = deployment.headers(account, **{"Content-Type": "application/x-ndjson"})
    url = f"{deployment.url('ingress')}/api/v1/vrs/reservations/bulk{query}"
    return await deployment.client.post(url, content=lines, headers=headers)


def _item(number: int, **more: Any) -> dict[str, Any]:
    reservation = booking(number, **more)
    return {"operation": "booking-engine", "reservation": reservation, "idempotencyKey": f"order-{number}"}


@slow_on("distributed")
async def test_a_bulk_is_made_once_however_often_it_is_sent(deployment: Deployment) -> None:
    items = [_item(number) for number in range(ITEMS)]
    tried = (await _send(deployment, items, "?dryRun=true")).json()["data"]
    assert all(result["wouldSend"] for result in tried["results"])
    answers = await asyncio.gather(*(_send(deployment, [*items, {}]) for _ in range(3)))
    told = [answer.json()["data"] for answer in answers]
    assert [(data["accepted"], data["refused"]) for data in told] == [(ITEMS, 1)] * 3
    ids = [[result.get("requestId") for result in data["results"]] for data in told]
    assert ids[0] == ids[1] == ids[2]
    records = await deployment.all_settled("generic", ITEMS)
    assert {record["requestId"] for record in records} == {*ids[0]} - {None}
    assert {record["status"] for record in records} == {"CONFIRMED"}
    made = await deployment.made()
    assert (made["made"], made["duplicates"]["surplus"]) == (ITEMS, 0)
    await _rules_hold_item_by_item(deployment)


async def _rules_hold_item_by_item(deployment: Deployment) -> None:
    items = [_item(1, morChannel="PMS"), _item(2)]
    refused, sent = (await _send(deployment, items, "?dryRun=true", "sync")).json()["data"]["results"]
    assert [problem["code"] for problem in refused["refusals"]] == ["card_required"]
    assert sent["refusals"] == []
    results = (await _send(deployment, items, account="sync")).json()["data"]["results"]
    assert results[0]["problem"]["code"] == "card_required"
    assert (await deployment.settled("sync", results[1]["requestId"]))["status"] == "CONFIRMED"

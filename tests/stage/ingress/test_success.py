"""`success` and `data` (section 2.5 of the contract): in every answer, and never a failure for a success."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from forwarder.reservation.outcome import Status
from tests.support.cases import for_each
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.contract_stages import contract_stages
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, GENERAL_PATH, Stages, stages

ASYNC = {"Prefer": "respond-async"}
NO_RESERVATION = {Status.REJECTED, Status.FAILED}
RECEIPT = {"requestId", "status", "acceptedAt", "statusUrl"}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with contract_stages() as built:
        yield built


async def test_the_general_operations_202_has_the_record_as_far_as_it_is_known(house: Stages) -> None:
    answer = await house.client.post(GENERAL_PATH, json=GENERAL, headers=ASYNC)
    assert answer.status_code == 202
    assert answer.headers["cache-control"] == "no-store"
    envelope = answer.json()
    record = json.loads(house.ingest(house.requests[0]).record)
    assert envelope["success"] is True
    receipt = {name: envelope["data"].pop(name) for name in ("acceptedAt", "statusUrl")}
    assert receipt["statusUrl"].endswith(answer.headers["location"])
    assert record.pop("id") == 1
    assert envelope["data"] == record
    assert record["status"] == "PENDING"


async def test_the_booking_engine_operations_202_has_the_receipt(house: Stages) -> None:
    envelope = (await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)).json()
    assert (envelope["success"], envelope["data"].keys()) == (True, RECEIPT)


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PENDING])
async def test_what_came_of_it_decides(house: Stages, status: Status) -> None:
    """To one who waits, to one who sends it again, and to one who looks."""
    keyed = {"Idempotency-Key": "order-1"}
    posted = asyncio.create_task(house.client.post(GENERAL_PATH, json=GENERAL, headers=keyed))
    stored = await house.settle(await house.requested(), status)
    waited = await posted
    again = await house.client.post(GENERAL_PATH, json=GENERAL, headers=keyed | ASYNC)
    followed = await house.client.get(f"/api/v1/vrs/submissions/{stored.request_id}")
    read = await house.client.get(f"/api/v1/vrs/reservations/{stored.id}")
    item = {"operation": "general", "reservation": GENERAL, "idempotencyKey": "order-1"}
    bulk = await house.client.post(BULK_PATH, json=[item])
    expected = status not in NO_RESERVATION
    assert [answer.json()["success"] for answer in (waited, again, followed, read, bulk)] == [expected] * 5
    assert bulk.json()["data"]["results"][0]["success"] is expected
    assert again.json()["data"]["status"] == read.json()["data"]["status"] == status
    assert again.json()["data"]["id"] == stored.id


@pytest.mark.parametrize(
    ("items", "success"),
    [
        ([GENERAL, GENERAL], [True, True]),
        ([GENERAL, {}], [True, False]),
        ([{}], [False]),
    ],
)
@pytest.mark.parametrize("query", ["", "?dryRun=true"])
async def test_a_bulk_is_a_success_where_every_item_is(
    house: Stages, items: Sequence[Any], success: list[bool], query: str
) -> None:
    sent = [{"operation": "general", "reservation": each} for each in items]
    answer = (await house.client.post(BULK_PATH + query, json=sent)).json()
    assert [result["success"] for result in answer["data"]["results"]] == success
    assert answer["success"] is all(success)


@for_each(
    ("method", "path", "change", "status"),
    [
        ("POST", GENERAL_PATH, {"headers": {"Authorization": "Bearer nobody"}}, 401),
        ("POST", GENERAL_PATH, {"headers": {"integrationAccountId": "nobody"}}, 404),
        ("POST", GENERAL_PATH, {"content": b"{" + b" " * 70_000, "headers": {"Content-Type": "application/json"}}, 413),
        ("POST", GENERAL_PATH, {"content": b"{}"}, 415),
        ("POST", GENERAL_PATH, {"json": {}}, 422),
        ("POST", BULK_PATH, {"json": {}}, 422),
        ("GET", "/nothing/here", {}, 404),
        ("DELETE", GENERAL_PATH, {}, 405),
        ("GET", GENERAL_PATH, {"headers": {"X-Long": "x" * 40_000}}, 431),
        ("GET", f"{GENERAL_PATH}?limit=none", {}, 400),
        ("GET", f"{GENERAL_PATH}/7", {}, 404),
    ],
)
async def test_no_refusal_reads_as_a_success(method: str, path: str, change: dict[str, Any], status: int) -> None:
    async with stages() as house:
        _assert_refused(await house.client.request(method, path, **change), status)


async def test_a_fault_of_the_service_does_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stages() as house:
        monkeypatch.setattr(house.reader, "reservation", None)
        _assert_refused(await house.client.get(f"{GENERAL_PATH}/7"), 500)
        house.log.away = True
        _assert_refused(await house.client.post(GENERAL_PATH, json=GENERAL, headers=ASYNC), 503)


def _assert_refused(answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["success"] is False

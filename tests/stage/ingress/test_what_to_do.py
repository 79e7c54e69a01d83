"""Refusals say how to mend what is refused."""

from collections.abc import AsyncIterator

import pytest

from tests.support.stages.bodies import GENERAL
from tests.support.stages.contract_stages import contract_stages
from tests.support.stages.http_stages import BULK_PATH, GENERAL_PATH, HEADERS, Stages


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with contract_stages() as built:
        yield built


@pytest.mark.parametrize("body", [b"", b" \r\n"])
async def test_an_empty_body_is_called_empty(house: Stages, body: bytes) -> None:
    refused = await house.client.post(GENERAL_PATH, content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["code"]) == (400, "malformed_json")
    assert "it is empty; send one JSON object" in refused.json()["detail"]


async def test_the_first_fault_is_in_the_detail(house: Stages) -> None:
    refused = (
        await house.client.post(GENERAL_PATH, json={**GENERAL, "guest": {"email": "nobody"}, "currency": 1})
    ).json()
    first, *more = refused["errors"]
    assert more
    assert f"{first['pointer']} {first['detail']}" in refused["detail"]


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("POST", BULK_PATH + "/", "without the trailing slash"),
        ("GET", GENERAL_PATH + "/7/", "without the trailing slash"),
        ("POST", "/v1/reservations", "Did you mean /api/v1/vrs/reservations?"),
        ("POST", "/api/v1/reservations/booking-engine", "Did you mean /api/v1/vrs/reservations/booking-engine?"),
        ("GET", "/nowhere", "/openapi.json"),
    ],
)
async def test_a_path_that_is_not_there_leads_to_one_that_is(house: Stages, method: str, path: str, says: str) -> None:
    refused = await house.client.request(method, path)
    assert refused.status_code == 404
    assert says in refused.json()["detail"]


async def test_a_path_that_is_read_with_a_slash_and_posted_to_without_says_so(house: Stages) -> None:
    refused = await house.client.post(GENERAL_PATH + "/", json=GENERAL)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    assert "Without the trailing slash it supports POST." in refused.json()["detail"]


async def test_a_wrong_account_says_who_knows_the_right_ones(house: Stages) -> None:
    refused = await house.client.post(GENERAL_PATH, json=GENERAL, headers={**HEADERS, "integrationAccountId": "other"})
    assert refused.status_code == 404
    assert "forwarder account list" in refused.json()["detail"]

"""Section 5 of the contract: the three headers, on every endpoint; and that a refusal tells nobody about others."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest

from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, GENERAL_PATH, HEADERS, NAMED, Stages, stages

ENDPOINTS: list[tuple[str, str, Any]] = [
    ("POST", BOOKING_ENGINE_PATH, BOOKING_ENGINE),
    ("POST", GENERAL_PATH, GENERAL),
    ("GET", "/api/vrs/reservations", None),
    ("GET", "/api/vrs/reservations/", None),
    ("GET", "/api/v1/vrs/reservations", None),
    ("GET", "/api/v1/vrs/reservations/1", None),
    ("GET", "/api/v1/vrs/submissions/rsv_" + "a" * 32, None),
]

everywhere = pytest.mark.parametrize(("method", "path", "body"), ENDPOINTS)


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        built.client.headers.clear()
        yield built


async def _send(house: Stages, method: str, path: str, body: Any, headers: Mapping[str, str]) -> httpx.Response:
    answer = await house.client.request(
        method, path, json=body, headers={**headers, **NAMED, "Prefer": "respond-async"}
    )
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
    return answer


def _but(**changes: str) -> dict[str, str]:
    return {name: changes.get(name, value) for name, value in HEADERS.items()}


def _without(header: str) -> dict[str, str]:
    return {name: value for name, value in HEADERS.items() if name != header}


@everywhere
async def test_the_three_headers_let_in(house: Stages, method: str, path: str, body: Any) -> None:
    assert (await _send(house, method, path, body, HEADERS)).status_code in {200, 202, 404}


@everywhere
async def test_header_names_are_read_in_any_case(house: Stages, method: str, path: str, body: Any) -> None:
    headers = {name.upper(): value for name, value in HEADERS.items()}
    assert (await _send(house, method, path, body, headers)).status_code in {200, 202, 404}


@everywhere
@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic token-alpha", "token-alpha"])
async def test_without_a_token_in_force_it_is_401(
    house: Stages, method: str, path: str, body: Any, authorization: str
) -> None:
    answer = await _send(house, method, path, body, _but(Authorization=authorization))
    assert answer.status_code == 401
    assert answer.json()["code"] == "unauthenticated"
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert not house.requests


@everywhere
async def test_without_any_token_it_is_401(house: Stages, method: str, path: str, body: Any) -> None:
    assert (await _send(house, method, path, body, _without("Authorization"))).status_code == 401


@everywhere
@pytest.mark.parametrize("header", ["workspaceId", "integrationAccountId"])
async def test_without_the_other_headers_it_is_400(
    house: Stages, method: str, path: str, body: Any, header: str
) -> None:
    answer = await _send(house, method, path, body, _without(header))
    assert answer.status_code == 400
    assert answer.json()["code"] == "missing_header"
    assert not house.requests


@everywhere
async def test_the_same_header_line_twice_is_one(house: Stages, method: str, path: str, body: Any) -> None:
    twice = [*HEADERS.items(), *HEADERS.items(), ("Prefer", "respond-async")]
    assert (await house.client.request(method, path, json=body, headers=twice)).status_code in {200, 202, 404}


@everywhere
@pytest.mark.parametrize("header", ["Authorization", "workspaceId", "integrationAccountId"])
async def test_a_header_with_two_values_is_named(house: Stages, method: str, path: str, body: Any, header: str) -> None:
    answer = await house.client.request(method, path, json=body, headers=[*HEADERS.items(), (header, "beta")])
    assert (answer.status_code, answer.json()["code"]) == (400, "conflicting_headers")
    assert header in answer.json()["detail"]
    assert not house.requests


@everywhere
async def test_another_workspace_and_one_that_is_none_look_alike(
    house: Stages, method: str, path: str, body: Any
) -> None:
    others = await _send(house, method, path, body, _but(workspaceId="beta"))
    none = await _send(house, method, path, body, _but(workspaceId="none"))
    assert others.status_code == none.status_code == 403
    assert others.json() == none.json()
    assert others.json()["code"] == "wrong_workspace"
    assert "beta" not in others.text


@everywhere
async def test_anothers_account_and_one_that_is_none_look_alike(
    house: Stages, method: str, path: str, body: Any
) -> None:
    others = await _send(house, method, path, body, _but(integrationAccountId="beta-1"))
    none = await _send(house, method, path, body, _but(integrationAccountId="none"))
    assert others.status_code == none.status_code == 404
    assert others.json() == none.json()
    assert others.json()["code"] == "account_not_found"
    assert not house.requests


async def test_a_refusal_comes_before_anything_is_said_of_the_body(house: Stages) -> None:
    answer = await house.client.post(BOOKING_ENGINE_PATH, content=b"not JSON")
    assert answer.status_code == 401

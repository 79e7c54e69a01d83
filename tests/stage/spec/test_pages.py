"""Sections 4.3 and 8 of the contract: lists of reservations, their cursors and limits."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from forwarder.reservation.outcome import Status
from tests.support.cases import for_each
from tests.support.stages.bodies import BOOKING_ENGINE
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, OTHER_ACCOUNT, OTHER_WORKSPACE, Stages, stages

PATHS = ["/api/vrs/reservations", "/api/vrs/reservations/", "/api/v1/vrs/reservations", "/api/v1/vrs/reservations/"]
PATH = PATHS[0]
COUNT = 25
_LISTED = [Status.PENDING, Status.CONFIRMED, Status.IN_DOUBT, Status.CANCELLED]


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        for number in range(1, COUNT + 1):
            body = BOOKING_ENGINE | {"propertyId": number, "transactionId": f"tx-{number}"}
            await built.client.post(BOOKING_ENGINE_PATH, json=body)
            built.ingest(built.requests[-1], _LISTED[number % len(_LISTED)])
        yield built


@pytest.fixture
async def statuses() -> AsyncIterator[Stages]:
    """One reservation of each status, in their order."""
    async with stages() as built:
        for number, status in enumerate(Status, start=1):
            await built.client.post(
                BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | {"propertyId": number, "transactionId": f"tx-{number}"}
            )
            built.ingest(built.requests[-1], status)
        yield built


async def _page(house: Stages, query: str = "", path: str = PATH) -> dict[str, Any]:
    answer = await house.client.get(path + query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def _ids(page: dict[str, Any]) -> list[int]:
    return [record["id"] for record in page["data"]]


@pytest.mark.parametrize("path", PATHS)
async def test_the_first_page(house: Stages, path: str) -> None:
    page = await _page(house, path=path)
    assert set(page) == {"data", "meta"}
    assert page["meta"] == {"limit": 10, "cursors": {"previous": "", "current": "1", "next": "11"}}
    assert _ids(page) == list(range(1, 11))


async def test_a_page_holds_the_records_themselves(house: Stages) -> None:
    page = await _page(house)
    assert page["data"] == [json.loads(stored.record) for _, stored in house.reader.rows[:10]]


async def test_following_next_reads_everything_once(house: Stages) -> None:
    seen, cursor, metas = [], "", []
    while True:
        page = await _page(house, f"?cursor={cursor}" if cursor else "")
        seen += _ids(page)
        metas.append(page["meta"]["cursors"])
        cursor = page["meta"]["cursors"]["next"]
        if not cursor:
            break
    assert seen == list(range(1, COUNT + 1))
    assert metas == [
        {"previous": "", "current": "1", "next": "11"},
        {"previous": "1", "current": "11", "next": "21"},
        {"previous": "11", "current": "21", "next": ""},
    ]


async def test_by_default_a_list_has_what_was_made_and_what_is_under_way(statuses: Stages) -> None:
    page = await _page(statuses)
    assert [record["status"] for record in page["data"]] == ["PENDING", "CONFIRMED", "IN_DOUBT", "CANCELLED"]


async def test_what_ended_without_a_reservation_is_listed_when_asked_for(statuses: Stages) -> None:
    page = await _page(statuses, "?status=REJECTED,FAILED")
    assert [record["status"] for record in page["data"]] == ["REJECTED", "FAILED"]
    everything = await _page(statuses, f"?status={','.join(Status)}")
    assert [record["status"] for record in everything["data"]] == list(Status)


@for_each("limit", ["201", "500", "1000", "00201", "9" * 5000])
async def test_a_limit_beyond_the_largest_is_the_largest(house: Stages, limit: str) -> None:
    assert (await _page(house, f"?limit={limit}"))["meta"]["limit"] == 200


@pytest.mark.parametrize("query", ["cursor=", "cursors=", "cursor=&cursors=", "cursor=&limit=10"])
async def test_an_empty_cursor_is_the_first_page(house: Stages, query: str) -> None:
    assert await _page(house, f"?{query}") == await _page(house)


@for_each("limit", [1, 10, 20, 25, 26, 200])
async def test_the_limit_asked_for_is_the_limit_used(house: Stages, limit: int) -> None:
    page = await _page(house, f"?limit={limit}")
    assert page["meta"]["limit"] == limit
    assert len(page["data"]) == min(limit, COUNT)
    assert page["meta"]["cursors"]["next"] == ("" if limit >= COUNT else str(limit + 1))


@for_each("query", ["?cursor=11", "?cursors=11", "?cursor=11&cursors=11", "?cursor=11&cursor=11", "?cursor=011"])
async def test_the_cursor_by_either_name(house: Stages, query: str) -> None:
    page = await _page(house, query)
    assert page["meta"]["cursors"]["current"] == "11"
    assert _ids(page)[0] == 11


async def test_a_list_without_reservations(house: Stages) -> None:
    answer = await house.client.get(PATH, headers=OTHER_ACCOUNT)
    assert answer.json() == {"data": [], "meta": {"limit": 10, "cursors": {"previous": "", "current": "1", "next": ""}}}


async def test_beyond_the_end_there_is_nothing(house: Stages) -> None:
    page = await _page(house, "?cursor=9223372036854775807")
    assert page["data"] == []
    assert page["meta"]["cursors"]["next"] == ""


@pytest.mark.parametrize("headers", [OTHER_ACCOUNT, OTHER_WORKSPACE])
async def test_nobody_else_sees_them(house: Stages, headers: dict[str, str]) -> None:
    assert (await house.client.get(PATH, headers=headers)).json()["data"] == []


async def test_parameters_that_mean_nothing_here_are_refused(house: Stages) -> None:
    """Passed over, a misspelt filter would let everything through."""
    answer = await house.client.get("/api/vrs/reservations?page=3&Status=CONFIRMED&sort=id")
    assert answer.status_code == 400
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/page", "/Status", "/sort"]


BAD_NUMBERS = [
    "0",
    "00",
    "-1",
    "-201",
    "abc",
    "1.0",
    "201.5",
    "1e9",
    "%2B5",
    "%205",
    "0x10",
    "true",
    "null",
    "%D9%A5",
    "1,2",
]


async def test_a_limit_that_is_none_is_400(house: Stages) -> None:
    for value in (*BAD_NUMBERS, ""):
        assert _faults(await house.client.get(f"{PATH}?limit={value}")) == {
            "/limit": ("out_of_range", "must be a whole number from 1; a page has at most 200 items")
        }, value


@pytest.mark.parametrize("name", ["cursor", "cursors"])
async def test_a_cursor_that_is_none_is_400(house: Stages, name: str) -> None:
    detail = "must be a whole number from 1 to 9223372036854775807, or empty for the first page"
    for value in (*BAD_NUMBERS, "9223372036854775808", "9" * 5000):
        found = _faults(await house.client.get(f"{PATH}?{name}={value}"))
        assert found == {"/cursor": ("out_of_range", detail)}, value


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("cursor=1&cursors=11", "/cursor"),
        ("cursor=1&cursor=11", "/cursor"),
        ("cursor=&cursor=11", "/cursor"),
        ("limit=5&limit=6", "/limit"),
    ],
)
async def test_two_different_values_are_400(house: Stages, query: str, pointer: str) -> None:
    faults = _faults(await house.client.get(f"{PATH}?{query}"))
    assert {name: code for name, (code, _) in faults.items()} == {pointer: "contradictory"}


async def test_both_faults_are_named_in_one_answer(house: Stages) -> None:
    answer = await house.client.get(f"{PATH}?limit=0&cursor=0")
    assert set(_faults(answer)) == {"/limit", "/cursor"}
    assert "limit must be a whole number from 1; a page has at most 200 items" in answer.json()["detail"]


def _faults(answer: httpx.Response) -> dict[str, tuple[str, str]]:
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == "invalid_query"
    return {error["pointer"]: (error["code"], error["detail"]) for error in problem["errors"]}

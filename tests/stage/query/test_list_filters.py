"""Lists of reservations by filter and order: what is let through, how its pages follow, and what is refused."""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx
import pytest

from forwarder.query.routes import PageRequest, read_page_request
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import Days, Filters, shape_of
from tests.support.cases import for_each
from tests.support.stages.bodies import GENERAL
from tests.support.stages.contract_stages import contract_stages
from tests.support.stages.http_stages import GENERAL_PATH, OTHER_ACCOUNT, Stages

PATH = "/api/vrs/reservations"
STATUSES = [Status.CONFIRMED, Status.PENDING, Status.REJECTED, Status.CANCELLED]
MARCH = date(2027, 3, 1)
AT_ONCE = {"Prefer": "respond-async"}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    """Twelve reservations, an hour and a day apart, of four statuses by turns and two properties."""
    async with contract_stages() as built:
        for number in range(12):
            arrival = MARCH + timedelta(days=number)
            stay = {"arrivalDate": arrival.isoformat(), "departureDate": (arrival + timedelta(days=2)).isoformat()}
            await built.client.post(
                GENERAL_PATH, json={**GENERAL, **stay, "propertyId": f"P{number % 2}"}, headers=AT_ONCE
            )
            built.ingest(built.requests[-1], STATUSES[number % 4])
            await built.clock.advance(3600)
        yield built


async def _list(house: Stages, query: str) -> dict[str, Any]:
    answer = await house.client.get(f"{PATH}?{query}")
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def _ids(page: dict[str, Any]) -> list[int]:
    return [record["id"] for record in page["data"]]


@for_each(
    ("query", "expected"),
    [
        ("status=CONFIRMED", [1, 5, 9]),
        ("status=CONFIRMED&status=CANCELLED", [1, 4, 5, 8, 9, 12]),
        ("status=CONFIRMED,CANCELLED", [1, 4, 5, 8, 9, 12]),
        ("status=CONFIRMED,CANCELLED&status=CONFIRMED", [1, 4, 5, 8, 9, 12]),
        ("status=FAILED", []),
        ("status=PENDING,CONFIRMED,REJECTED,FAILED,IN_DOUBT,CANCELLED&limit=12", list(range(1, 13))),
        ("status=REJECTED", [3, 7, 11]),
        ("propertyId=P1", [2, 4, 6, 8, 10, 12]),
        ("propertyId=p1", []),
        ("arrivalFrom=2027-03-11", [12]),
        ("arrivalFrom=2027-03-11&status=CANCELLED,REJECTED", [11, 12]),
        ("arrivalTo=2027-03-02", [1, 2]),
        ("arrivalFrom=2027-03-05&arrivalTo=2027-03-05", [5]),
        ("departureFrom=2027-03-13", [12]),
        ("departureTo=2027-03-03", [1]),
        ("updatedSince=2027-01-01T09:00:00Z", [10, 12]),
        ("updatedSince=2027-01-01T09:00:00.001Z", [12]),
        ("updatedSince=2027-01-01T11:00:00%2B02:00", [10, 12]),
        ("updatedSince=2027-01-01t09:00:00-00:00", [10, 12]),
        ("updatedSince=0001-01-01T00:00:00%2B14:00&limit=12", [1, 2, 4, 5, 6, 8, 9, 10, 12]),
        ("updatedSince=9999-12-31T23:00:00-14:00", []),
        ("status=CONFIRMED&propertyId=P0&arrivalFrom=2027-03-02&departureTo=2027-03-10", [5]),
        ("status=CANCELLED&updatedSince=2027-01-01T05:00:00Z&propertyId=P1", [8, 12]),
    ],
)
async def test_a_list_holds_what_meets_every_filter(house: Stages, query: str, expected: list[int]) -> None:
    assert _ids(await _list(house, query)) == expected
    assert _ids(await _list(house, f"{query}&order=desc")) == expected[::-1]
    assert _ids(await _list(house, f"{query}&order=asc")) == expected


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_of_a_filtered_list_follow_one_another(house: Stages, order: str) -> None:
    query, cursor = f"status=CONFIRMED,PENDING,REJECTED&limit=4&order={order}", ""
    seen: list[int] = []
    metas: list[dict[str, str]] = []
    while True:
        page = await _list(house, f"{query}&cursor={cursor}" if cursor else query)
        seen += _ids(page)
        metas.append(page["meta"]["cursors"])
        cursor = page["meta"]["cursors"]["next"]
        if not cursor:
            break
    expected = [number for number in range(1, 13) if number % 4]
    assert seen == (expected if order == "asc" else expected[::-1])
    assert (metas[0]["previous"], metas[0]["current"]) == ("", "1")
    assert [meta["previous"] for meta in metas[1:]] == [meta["current"] for meta in metas[:-1]]
    assert len(metas) == 3


async def test_newest_first_the_cursor_of_the_first_page_leads_to_it_again(house: Stages) -> None:
    assert await _list(house, "order=desc&limit=3&cursor=1") == await _list(house, "order=desc&limit=3")
    assert _ids(await _list(house, "order=desc&limit=3&cursor=2")) == [1]


async def test_newest_first_what_comes_meanwhile_disturbs_no_page(house: Stages) -> None:
    first = await _list(house, "order=desc&limit=5")
    await house.client.post(GENERAL_PATH, json=GENERAL, headers=AT_ONCE)
    house.ingest(house.requests[-1])
    second = await _list(house, f"order=desc&limit=5&cursor={first['meta']['cursors']['next']}")
    assert _ids(first) + _ids(second) == [12, 10, 9, 8, 6, 5, 4, 2, 1]
    assert second["meta"]["cursors"]["previous"] != ""


async def test_others_see_none_of_it(house: Stages) -> None:
    answer = await house.client.get(f"{PATH}?status=CONFIRMED", headers=OTHER_ACCOUNT)
    assert answer.json()["data"] == []


INVALID = {
    "status": ["", "confirmed", "DONE", "CONFIRMED,", "CONFIRMED,,PENDING", "CONFIRMED PENDING", "CONFIRMED,DONE"],
    "propertyId": ["", "Z%FCrich", "%20", "%00", "P%00"],
    "updatedSince": [
        *("", "2027-01-01", "2027-01-01T10:00:00", "2027-01-01T10:00Z", "1767225600", "now", "2027-13-01T00:00:00Z"),
        *("2027-01-01T10:00:00+02:00", "2027-01-01T25:00:00Z", "2027-W01-1T00:00:00Z", "2027-01-01T00:00:00%2B24:00"),
    ],
    "order": ["", "ASC", "newest", "-id"],
}
DATES = [
    "",
    "2027-02-29",
    "2027-3-1",
    "20270301",
    "2027-03-01T00:00:00Z",
    "01/03/2027",
    "today",
    "0000-01-01",
    "\u0662\u0660\u0662\u0667-03-01",
]


def _refusals() -> Iterable[tuple[str, str, str]]:
    for name, values in INVALID.items():
        yield from ((name, value, "invalid_value") for value in values)
    for name in ("arrivalFrom", "arrivalTo", "departureFrom", "departureTo"):
        yield from ((name, value, "invalid_date") for value in DATES)
    yield "propertyId", "x" * 129, "too_long"


async def test_what_is_none_is_400_and_named(house: Stages) -> None:
    for name, value, code in _refusals():
        answer = await house.client.get(f"{PATH}?{name}={value}")
        assert _faults(answer) == {f"/{name}": code}, (name, value)
        assert answer.json()["detail"].startswith(f"{name} must ")


@for_each(
    ("query", "pointer"),
    [
        ("propertyId=1&propertyId=2", "/propertyId"),
        ("order=asc&order=desc", "/order"),
        ("arrivalTo=2027-01-01&arrivalTo=2027-01-02", "/arrivalTo"),
        ("arrivalFrom=2027-03-02&arrivalTo=2027-03-01", "/arrivalTo"),
        ("departureFrom=2027-03-02&departureTo=2027-03-01", "/departureTo"),
    ],
)
async def test_what_contradicts_itself_is_400(house: Stages, query: str, pointer: str) -> None:
    assert _faults(await house.client.get(f"{PATH}?{query}")) == {pointer: "contradictory"}


async def test_every_fault_is_named_in_one_answer(house: Stages) -> None:
    bad = "status=x&propertyId=&arrivalFrom=x&arrivalTo=y&departureFrom=2027-02-02&departureTo=2027-02-01"
    answer = await house.client.get(f"{PATH}?{bad}&updatedSince=x&order=x&limit=0&cursor=0")
    names = (
        "limit",
        "cursor",
        "order",
        "status",
        "propertyId",
        "arrivalFrom",
        "arrivalTo",
        "departureTo",
        "updatedSince",
    )
    assert set(_faults(answer)) == {f"/{name}" for name in names}
    assert house.reader.reads == 0


@for_each(
    ("filters", "lead"),
    [
        (Filters(), "listed"),
        (Filters(frozenset(Status)), "status"),
        (Filters(frozenset(Status), updated_since=datetime(2027, 3, 1, tzinfo=UTC)), "updated"),
        (Filters(updated_since=datetime(2027, 3, 1, tzinfo=UTC)), "updated"),
        (Filters(frozenset({Status.CONFIRMED}), "1", Days(MARCH, MARCH)), "property"),
        (Filters(frozenset({Status.PENDING, Status.FAILED}), arrival=Days(MARCH, MARCH)), "status"),
        (Filters(frozenset({Status.PENDING, Status.CONFIRMED}), arrival=Days(MARCH, MARCH)), "arrival"),
        (Filters(arrival=Days(MARCH, MARCH + timedelta(7)), departure=Days(MARCH, MARCH)), "departure"),
        (Filters(arrival=Days(MARCH), departure=Days(MARCH, MARCH)), "departure"),
    ],
)
def test_the_filter_that_likely_lets_the_fewest_through_leads(filters: Filters, lead: str) -> None:
    assert shape_of(filters, "asc").lead == lead


def test_a_moment_leads_before_a_range_without_end() -> None:
    asked = read_page_request(
        {"arrivalFrom": ["2027-03-01"], "updatedSince": ["2027-03-01T00:00:00Z"], "status": ["CONFIRMED"]}
    )
    assert isinstance(asked, PageRequest)
    assert shape_of(asked.filters, "desc").lead == "updated"
    assert shape_of(asked.filters, "desc").given == ("status", "arrival", "updated")


def _faults(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "invalid_query"
    return {error["pointer"]: error["code"] for error in answer.json()["errors"]}

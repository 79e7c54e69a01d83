"""What a request cannot mean is refused at the door, unless its account says otherwise; what was accepted before is not."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from forwarder.ingress.message import IngressSettings
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, GENERAL_PATH, Stages, stages

PAST = {"arrivalDate": "2026-12-01", "departureDate": "2026-12-04"}
NAMELESS = {"guest": BOOKING_ENGINE["guest"] | {"name": "", "firstName": " ", "lastName": ""}}
TOO_FEW = {"numberOfGuests": 1, "numberOfAdults": 2}
NO_TIME = {"arrivalEstimatedTime": "25:99"}
EACH = [
    (PAST, "past-arrival", "/arrivalDate", "arrival_in_the_past"),
    (TOO_FEW, "guest-counts", "/numberOfGuests", "fewer_than_adults_and_children"),
    (NO_TIME, "clock-times", "/arrivalEstimatedTime", "impossible_time"),
    (NAMELESS, "guest-name", "/guest/name", "guest_without_name"),
]
DAY = 24 * 60 * 60


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages(IngressSettings(wait_seconds=0)) as built:
        yield built


def _skip(house: Stages, *checks: str) -> None:
    accounts = house.directory.accounts
    house.directory.accounts = {**accounts, "alpha-1": replace(accounts["alpha-1"], skipped_checks=checks)}


def _faults(problem: Any) -> list[tuple[str, str]]:
    assert problem["code"] == "validation_failed"
    return [(fault["pointer"], fault["code"]) for fault in problem["errors"]]


@pytest.mark.parametrize("query", ["", "?dryRun=true"])
@pytest.mark.parametrize(("wrong", "check", "pointer", "code"), EACH)
async def test_it_is_refused_with_its_pointer(
    house: Stages, wrong: dict[str, Any], check: str, pointer: str, code: str, query: str
) -> None:
    body = BOOKING_ENGINE | wrong
    answer = await house.client.post(BOOKING_ENGINE_PATH + query, json=body)
    assert answer.status_code == 422
    assert _faults(answer.json()) == [(pointer, code)]
    assert not house.requests
    _skip(house, check)
    await house.clock.advance(1)
    assert (await house.client.post(BOOKING_ENGINE_PATH + query, json=body)).status_code in {200, 202}
    assert len(house.requests) == (0 if query else 1)


async def test_all_of_it_is_named_at_once(house: Stages) -> None:
    names = {"name": "", "firstName": " ", "lastName": ""}
    body = BOOKING_ENGINE | PAST | TOO_FEW | NO_TIME | {"guest": BOOKING_ENGINE["guest"] | names}
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=body)
    assert sorted(_faults(answer.json())) == sorted((pointer, code) for *_, pointer, code in EACH)


@pytest.mark.parametrize("query", ["", "?dryRun=true"])
async def test_of_a_bulk_only_the_items_are_refused_that_cannot_be_meant(house: Stages, query: str) -> None:
    items = [
        {"operation": "general", "reservation": GENERAL},
        {"operation": "general", "reservation": GENERAL | PAST},
        {"operation": "general", "reservation": GENERAL | TOO_FEW, "idempotencyKey": "few"},
        {"operation": "general", "reservation": GENERAL | TOO_FEW | {"currency": "XXY"}},
    ]
    data = (await house.client.post(BULK_PATH + query, json=items)).json()["data"]
    first, *refused = data["results"]
    assert "problem" not in first
    assert [_faults(each["problem"]) for each in refused] == [
        [("/arrivalDate", "arrival_in_the_past")],
        [("/numberOfGuests", "fewer_than_adults_and_children")],
        [("/currency", "unknown_currency"), ("/numberOfGuests", "fewer_than_adults_and_children")],
    ]
    assert len(house.requests) == (0 if query else 1)


async def test_what_was_accepted_is_answered_again_when_its_day_is_long_past(house: Stages) -> None:
    headers = {"Idempotency-Key": "order-42"}
    first = await house.client.post(GENERAL_PATH, json=GENERAL, headers=headers)
    await house.clock.advance(400 * DAY)
    again = await house.client.post(GENERAL_PATH, json=GENERAL, headers=headers)
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    item = {"operation": "general", "reservation": GENERAL, "idempotencyKey": "order-42"}
    [in_bulk] = (await house.client.post(BULK_PATH, json=[item])).json()["data"]["results"]
    assert in_bulk["requestId"] == first.json()["data"]["requestId"]
    assert len(house.requests) == 1
    new = await house.client.post(GENERAL_PATH, json=GENERAL, headers={"Idempotency-Key": "order-43"})
    assert _faults(new.json()) == [("/arrivalDate", "arrival_in_the_past")]


async def test_what_is_refused_leaves_its_key_free(house: Stages) -> None:
    headers = {"Idempotency-Key": "order-42"}
    assert (await house.client.post(GENERAL_PATH, json=GENERAL | PAST, headers=headers)).status_code == 422
    assert (await house.client.post(GENERAL_PATH, json=GENERAL, headers=headers)).status_code == 202
    assert len(house.requests) == 1

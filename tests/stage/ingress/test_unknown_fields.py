"""What a body has that is no field: ignored, as the contract's clients need it, and named to who sent it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, GENERAL_PATH, Stages, stages

ASYNC = {"Prefer": "respond-async"}
GUEST = BOOKING_ENGINE["guest"]
MISSPELT = BOOKING_ENGINE | {
    "transactionID": "t-1",
    "affiliate": {"id": 7},
    "guest": GUEST | {"address": GUEST["address"] | {"zip": "07001"}},
}
WARNINGS = [
    ("/guest/address/zip", "There is no such field; it was ignored."),
    ("/transactionID", "There is no such field; it was ignored. Did you mean transactionId?"),
    ("/affiliate", "There is no such field; it was ignored."),
]


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


def _shown(warnings: Any) -> list[tuple[str, str]]:
    assert {warning["code"] for warning in warnings} == {"unknown_field"}
    return [(warning["pointer"], warning["detail"]) for warning in warnings]


async def test_they_are_named_in_the_receipt_and_in_a_dry_run_and_travel_no_further(house: Stages) -> None:
    accepted = await house.client.post(BOOKING_ENGINE_PATH, json=MISSPELT)
    assert accepted.status_code == 202
    assert sorted(_shown(accepted.json()["warnings"])) == sorted(WARNINGS)
    assert b"affiliate" not in house.requests[0].value
    tried = await house.client.post(BOOKING_ENGINE_PATH, json=MISSPELT, params={"dryRun": "true"})
    assert sorted(_shown(tried.json()["data"]["warnings"])) == sorted(WARNINGS)


async def test_so_they_are_in_a_bulk_item_by_item(house: Stages) -> None:
    items = [
        {"operation": "booking-engine", "reservation": each} for each in (MISSPELT, BOOKING_ENGINE | {"propertyId": 8})
    ]
    first, second = (await house.client.post(BULK_PATH, json=items)).json()["data"]["results"]
    assert sorted(_shown(first["warnings"])) == sorted(WARNINGS)
    assert "warnings" not in second


async def test_what_has_none_is_told_nothing(house: Stages) -> None:
    looks_like_one = GENERAL | {"notes": 'he said: "late": yes'}
    answer = await house.client.post(GENERAL_PATH, json=looks_like_one, headers=ASYNC)
    assert answer.status_code == 202
    assert "warnings" not in answer.json()


async def test_a_field_of_the_other_operation_is_none_of_this(house: Stages) -> None:
    answer = await house.client.post(GENERAL_PATH, json=GENERAL | {"transactionId": "t-1"}, headers=ASYNC)
    assert [pointer for pointer, _ in _shown(answer.json()["warnings"])] == ["/transactionId"]


async def test_a_name_may_be_a_card_number_or_endless_or_one_of_thousands(house: Stages) -> None:
    many = GENERAL | {"4111 1111 1111 1111": 1, "x" * 5_000: 2} | {f"a/b~{number}": 0 for number in range(1_000)}
    answer = await house.client.post(GENERAL_PATH, json=many, headers=ASYNC)
    pointers = [pointer for pointer, _ in _shown(answer.json()["warnings"])]
    assert len(pointers) == 20
    assert max(map(len, pointers)) <= 65
    assert "/a~1b~00" in pointers
    assert "4111 1111" not in answer.text

"""Sections 2.2 and 4.2 of the contract: the request of the general operation, field by field."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.cases import for_each
from tests.support.stages.bodies import ABSENT, GENERAL, changed, pointer, value_at
from tests.support.stages.http_stages import GENERAL_PATH, Stages, stages

TIME: list[Any] = ["15:00", "", "after 5pm", 15, 15.5]
NO_TIME: list[Any] = [True, [], {}, "25:99", -1]
TEXT_OR_NUMBER: list[Any] = ["15:00", "", 15, 15.5, -1]
TEXT: list[Any] = ["", "Ünïcödé ✓", "x" * 256]
NOT_TEXT: list[Any] = [5, 1.5, True, [], {}]
NOT_A_COUNT: list[Any] = ["5", True, [], {}, -1, 1.5]
IDENTIFIER: list[Any] = [123, "123", "00123", "A-7"]
NO_IDENTIFIER: list[Any] = [True, [], {}, 1.5, -1, "", " "]
NO_DATE: list[Any] = [5, True, [], {}, "", "2027-6-1", "2027-02-30", "1811808000"]

# The field table of 2.2: path, required, values that are taken as they are, values that are refused.
FIELDS: list[tuple[str, bool, list[Any], list[Any]]] = [
    ("propertyId", True, IDENTIFIER, NO_IDENTIFIER),
    ("roomId", False, IDENTIFIER, [each for each in NO_IDENTIFIER if each != ""]),
    ("arrivalDate", True, ["2027-05-01"], NO_DATE),
    ("departureDate", True, ["2027-06-02"], [*NO_DATE, "2027-06-01", "2028-06-01"]),
    ("arrivalEstimatedTime", False, TIME, NO_TIME),
    ("departureEstimatedTime", False, TIME, NO_TIME),
    ("guest", True, [{"lastName": "Ruiz"}, {"name": "Ana"}], [5, "Ana", True, []]),
    ("guest.name", False, TEXT, NOT_TEXT),
    ("guest.firstName", False, TEXT, NOT_TEXT),
    ("guest.lastName", False, TEXT, NOT_TEXT),
    ("guest.email", False, ["a@b.co"], [*NOT_TEXT, " ", "ana", "a@b"]),
    ("guest.phone", False, TEXT_OR_NUMBER, [True, [], {}]),
    ("guest.address", False, [{}, {"city": "Madrid"}], [5, "Calle Mayor", True, []]),
    ("guest.address.line1", False, TEXT, NOT_TEXT),
    ("guest.address.line2", False, TEXT, NOT_TEXT),
    ("guest.address.postalCode", False, TEXT, [True, 1.5, [], {}]),
    ("guest.address.city", False, TEXT, NOT_TEXT),
    ("guest.address.state", False, TEXT, NOT_TEXT),
    ("guest.address.country", False, ["Spain", "ES", "es", ""], NOT_TEXT),
    ("numberOfGuests", False, [1, 1000], NOT_A_COUNT),
    ("numberOfAdults", False, [0, 2], NOT_A_COUNT),
    ("numberOfChildren", False, [0, 2], NOT_A_COUNT),
    ("numberOfInfants", False, [0, 2], NOT_A_COUNT),
    ("numberOfPets", False, [0, 2], NOT_A_COUNT),
    ("totalPrice", False, [0, 480, 480.5], ["5", True, [], {}, -1]),
    ("currency", False, ["EUR", "GBP"], [*NOT_TEXT, "eu", "euro", "XXY"]),
    ("notes", False, TEXT, NOT_TEXT),
    ("comments", False, TEXT, NOT_TEXT),
    # Not in the field table, and in its example:
    ("status", False, ["confirmed", "CONFIRMED"], [*NOT_TEXT, "cancelled"]),
    ("paymentProviderId", False, [77, "77"], [True, [], {}]),
]

# None of the counts is too many for the others.
MANY_GUESTS = GENERAL | {"numberOfGuests": 1000, "numberOfAdults": 0, "numberOfChildren": 0}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


async def _post(house: Stages, body: Any) -> Any:
    return await house.client.post(GENERAL_PATH, json=body, headers={"Prefer": "respond-async"})


async def _assert_faults(house: Stages, body: Any, *pointers: str) -> None:
    answer = await _post(house, body)
    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == list(pointers)
    assert not house.requests


@for_each(("path", "values"), [(path, good) for path, _, good, _ in FIELDS if good])
async def test_a_value_is_taken_and_keeps_its_form(house: Stages, path: str, values: list[Any]) -> None:
    for value in values:
        answer = await _post(house, changed(MANY_GUESTS, path, value))
        assert answer.status_code == 202, (value, answer.text)
        published = value_at(house.published()["reservation"], path)
        assert (type(published), published) == (type(value), value)
        house.requests.clear()


@for_each(("path", "values"), [(path, bad) for path, _, _, bad in FIELDS if bad])
async def test_a_wrong_value_is_named_by_its_pointer(house: Stages, path: str, values: list[Any]) -> None:
    for value in values:
        await _assert_faults(house, changed(GENERAL, path, value), pointer(path))


@for_each("value", [ABSENT, None])
@for_each("path", [path for path, required, _, _ in FIELDS if required])
async def test_a_required_field_must_be_there(house: Stages, path: str, value: Any) -> None:
    await _assert_faults(house, changed(GENERAL, path, value), pointer(path))


@for_each("value", [ABSENT, None])
@for_each("path", [path for path, required, _, _ in FIELDS if not required])
async def test_an_optional_field_may_be_absent_or_null(house: Stages, path: str, value: Any) -> None:
    house.requests.clear()
    answer = await _post(house, changed(GENERAL, path, value))
    assert answer.status_code == 202, answer.text
    assert value_at(house.published()["reservation"], path) is ABSENT


@for_each(
    ("path", "empty"),
    [("roomId", ""), ("guest.email", ""), ("currency", ""), ("numberOfGuests", 0), ("numberOfGuests", 0.0)],
)
async def test_what_is_empty_was_not_given(house: Stages, path: str, empty: Any) -> None:
    house.requests.clear()
    answer = await _post(house, changed(GENERAL, path, empty))
    assert answer.status_code == 202, answer.text
    assert value_at(house.published()["reservation"], path) is ABSENT


async def test_the_required_fields_alone_are_enough(house: Stages) -> None:
    body = {"propertyId": 1, "arrivalDate": "2027-06-01", "departureDate": "2027-06-02", "guest": {"name": "A"}}
    assert (await _post(house, body)).status_code == 202
    assert house.published()["reservation"] == body


async def test_without_a_room_the_message_says_none(house: Stages) -> None:
    """The caller may leave it out; the property's id takes its place when the rules are applied."""
    await _post(house, changed(GENERAL, "roomId", ABSENT))
    assert "roomId" not in house.published()["reservation"]


async def test_a_price_without_currency_has_as_many_decimals_as_any_currency(house: Stages) -> None:
    without = changed(GENERAL, "currency", ABSENT)
    assert (await _post(house, without | {"totalPrice": 1.2345})).status_code == 202
    assert house.published()["reservation"]["totalPrice"] == 1.2345
    rounded = await _post(house, without | {"totalPrice": 1.23456})
    assert [each["code"] for each in rounded.json()["warnings"]] == ["price_rounded"]
    assert house.published()["reservation"]["totalPrice"] == 1.2346

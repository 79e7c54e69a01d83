"""Sections 2.1, 2.3, 2.4 and 4.1 of the contract: the request of the booking-engine operation, field by field."""

import re
from collections.abc import AsyncIterator
from typing import Any, get_args

import pytest

from forwarder.reservation.request import Country
from tests.support.cases import for_each
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, CARD, COUNTRIES, changed, pointer, value_at
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, Stages, stages

TIME = ["15:00", "", "around noon", 0, 15, 15.5, 1530]
NO_TIME = ["24:01", "15:60", 25, -3]
TEXT_OR_NUMBER = ["15:00", "", "00123", 0, 15, -3, 15.5, 34600111222, 2**63 - 1]
TEXT = ["", "a", 'Ünïcödé ✓ \n\t"\\', "x" * 256]
COUNT = [0, 1, 1000]
NOT_TEXT: list[Any] = [5, 1.5, True, [], {}]
NOT_A_NUMBER: list[Any] = ["5", True, [], {}]
NEITHER: list[Any] = [True, [], {}]
IDENTIFIER = [1001, 0, 2**63 - 1, "1001", "00123", "A-7", "x" * 128, " padded "]
NO_IDENTIFIER: list[Any] = [True, [], {}, 1.5, 2.0**63, -1, -1.0, 2**63, "", "  ", "x" * 129, "a\0b"]
# The last two are blank in some dialects of patterns, and not in others.
NO_EMAIL = ["", "ana", "ana@", "a b@c.de", "a@b", "a@b..c", "a\x85b@c.de", "a\ufeffb@c.de"]
NO_DATE: list[Any] = [
    5, 20270601, True, [], {}, "", "2027-6-1", "01-06-2027", "2027/06/01", "20270601", "2027-02-29", "2027-13-01",
    "2027-06-01T00:00:00Z", "1811808000", "tomorrow", " 2027-06-01", "2027-W22-2",
]  # fmt: skip

# The field table of 2.1: path, required, values that are taken as they are, values that are refused.
FIELDS: list[tuple[str, bool, list[Any], list[Any]]] = [
    ("morChannel", True, ["SELF", "PMS"], [*NOT_TEXT, "", "self", "OTHER"]),
    ("propertyId", True, IDENTIFIER, NO_IDENTIFIER),
    ("roomId", True, IDENTIFIER, NO_IDENTIFIER),
    ("arrivalDate", True, ["2027-06-01", "2027-06-04", "2027-01-01"], NO_DATE),
    ("departureDate", True, ["2027-06-02", "2028-05-31"], [*NO_DATE, "2027-06-01", "2027-05-31", "2028-06-01"]),
    ("arrivalEstimatedTime", False, TIME, [*NEITHER, *NO_TIME, "x" * 257, 2**63]),
    ("departureEstimatedTime", False, TIME, [*NEITHER, *NO_TIME]),
    ("guest", True, [], [5, "Ana", True, []]),
    ("guest.name", True, TEXT, [*NOT_TEXT, "x" * 257, "a\0b"]),
    ("guest.firstName", True, TEXT, NOT_TEXT),
    ("guest.lastName", True, TEXT, NOT_TEXT),
    ("guest.email", True, ["a@b.co", "ana.ruiz+x@mail.example.com"], [*NOT_TEXT, *NO_EMAIL]),
    ("guest.phone", False, TEXT_OR_NUMBER, NEITHER),
    ("guest.address", True, [], [5, "Calle Mayor", True, []]),
    ("guest.address.line1", True, TEXT, NOT_TEXT),
    ("guest.address.line2", True, TEXT, NOT_TEXT),
    ("guest.address.postalCode", True, ["28013", "SW1A 1AA", ""], [True, 1.5, [], {}]),
    ("guest.address.city", True, TEXT, NOT_TEXT),
    ("guest.address.state", True, TEXT, NOT_TEXT),
    ("guest.address.country", True, ["ES", "GB"], [*NOT_TEXT, "", "ESP", "Spain", "XX", "UM"]),
    ("numberOfGuests", True, [1, 1000], [*NOT_A_NUMBER, 0, -1, 1.5, 1001, 10**30]),
    ("numberOfAdults", False, COUNT, [*NOT_A_NUMBER, -1, 1.5, 1001]),
    ("numberOfChildren", False, COUNT, [*NOT_A_NUMBER, -1, 1.5]),
    ("numberOfInfants", False, COUNT, [*NOT_A_NUMBER, -1, 1.5]),
    ("numberOfPets", False, COUNT, [*NOT_A_NUMBER, -1, 1.5]),
    ("totalPrice", True, [0, 480, 480.5, 0.01, 999999999.99], [*NOT_A_NUMBER, -0.01, 1e13]),
    ("currency", True, ["EUR", "USD", "GBP"], [*NOT_TEXT, "", "eu", "EURO", "XXY", "€"]),
    ("notes", False, [*TEXT, "x" * 10_000], [*NOT_TEXT, "x" * 10_001]),
    ("comments", False, TEXT, NOT_TEXT),
    ("paymentProviderKey", False, ["pm_1", ""], NOT_TEXT),
    ("paymentProviderId", False, ["77", *TEXT_OR_NUMBER], NEITHER),
    ("transactionId", False, ["tx-1", ""], NOT_TEXT),
    ("promotionCode", False, ["SUMMER", ""], NOT_TEXT),
    ("status", False, ["CONFIRMED", "confirmed", "Confirmed"], [*NOT_TEXT, "", "PENDING", "CONFIRMED "]),
]  # fmt: skip

CARD_FIELDS = ["cardNumber", "cardHolderName", "expiryMonth", "expiryYear", "cvv"]

# None of the counts is too many for the others.
MANY_GUESTS = BOOKING_ENGINE | {"numberOfGuests": 1000, "numberOfAdults": 0, "numberOfChildren": 0}


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


async def _post(house: Stages, body: Any) -> Any:
    return await house.client.post(BOOKING_ENGINE_PATH, json=body)


async def _assert_faults(house: Stages, body: Any, *pointers: str) -> list[dict[str, Any]]:
    answer = await _post(house, body)
    assert answer.status_code == 422, answer.text
    errors: list[dict[str, Any]] = answer.json()["errors"]
    assert [error["pointer"] for error in errors] == list(pointers)
    assert not house.requests
    return errors


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
        [error] = await _assert_faults(house, changed(BOOKING_ENGINE, path, value), pointer(path))
        assert re.fullmatch(r"[a-z_]+", error["code"]), value
        assert error["detail"].startswith("must "), value


@for_each("path", [path for path, required, _, _ in FIELDS if required])
async def test_a_required_field_must_be_there(house: Stages, path: str) -> None:
    [error] = await _assert_faults(house, changed(BOOKING_ENGINE, path, ABSENT), pointer(path))
    assert error == {"pointer": pointer(path), "code": "required", "detail": "is required"}


@for_each("path", [path for path, required, _, _ in FIELDS if required])
async def test_a_required_field_must_not_be_null(house: Stages, path: str) -> None:
    await _assert_faults(house, changed(BOOKING_ENGINE, path, None), pointer(path))


@for_each("value", [ABSENT, None])
@for_each("path", [path for path, required, _, _ in FIELDS if not required])
async def test_an_optional_field_may_be_absent_or_null(house: Stages, path: str, value: Any) -> None:
    house.requests.clear()
    answer = await _post(house, changed(BOOKING_ENGINE, path, value))
    assert answer.status_code == 202, answer.text
    assert value_at(house.published()["reservation"], path) is ABSENT


async def test_the_required_fields_alone_are_enough(house: Stages) -> None:
    body = BOOKING_ENGINE
    for path, required, _, _ in FIELDS:
        body = body if required else changed(body, path, ABSENT)
    assert (await _post(house, body)).status_code == 202
    assert house.published()["reservation"] == body


async def test_an_empty_object_names_every_required_field(house: Stages) -> None:
    answer = await _post(house, {})
    missing = {error["pointer"] for error in answer.json()["errors"]}
    assert missing == {pointer(path) for path, required, _, _ in FIELDS if required and "." not in path}


@pytest.mark.parametrize("field", CARD_FIELDS)
async def test_every_card_field_is_optional_text(house: Stages, field: str) -> None:
    assert (await _post(house, BOOKING_ENGINE | {"cardDetails": {field: CARD[field]}})).status_code == 202
    house.requests.clear()
    if field != "cardHolderName":
        written = await _post(
            house, BOOKING_ENGINE | {"cardDetails": CARD | {field: int(CARD[field].replace(" ", ""))}}
        )
        assert written.status_code == 202, written.text
        house.requests.clear()
    for wrong in NOT_TEXT if field == "cardHolderName" else [True, 1.5, [], {}]:
        await _assert_faults(house, BOOKING_ENGINE | {"cardDetails": {field: wrong}}, f"/cardDetails/{field}")


@pytest.mark.parametrize("value", [5, "4111", True, []])
async def test_card_details_are_an_object(house: Stages, value: Any) -> None:
    await _assert_faults(house, BOOKING_ENGINE | {"cardDetails": value}, "/cardDetails")


def test_the_countries_are_those_of_section_2_4() -> None:
    assert sorted(get_args(Country)) == sorted(COUNTRIES)
    assert len(set(COUNTRIES)) == len(COUNTRIES) == 222


@for_each("country", ["AF", "AX", "BQ", "SZ", "TW", "ZW"])
async def test_countries_of_the_list_are_taken(house: Stages, country: str) -> None:
    assert (await _post(house, changed(BOOKING_ENGINE, "guest.address.country", country))).status_code == 202


@pytest.mark.parametrize(
    ("currency", "price", "good"),
    [
        ("EUR", 10.25, True), ("EUR", 10.255, False), ("JPY", 1000, True), ("JPY", 1000.0, True), ("JPY", 1000.5, False),
        ("KWD", 10.255, True), ("KWD", 10.2555, False), ("CLF", 1.2345, True), ("ISK", 10.1, False), ("EUR", 0.1 + 0.2, True),
    ],
)  # fmt: skip
async def test_a_price_with_more_decimals_than_its_currency_is_rounded_with_a_warning(
    house: Stages, currency: str, price: float, *, good: bool
) -> None:
    body = BOOKING_ENGINE | {"currency": currency, "totalPrice": price}
    answer = await _post(house, body)
    assert answer.status_code == 202
    warnings = [(each["code"], each["pointer"]) for each in answer.json().get("warnings", ())]
    assert warnings == ([] if good else [("price_rounded", "/totalPrice")])


@pytest.mark.parametrize(
    ("departure", "code"),
    [
        ("2027-06-01", "departure_not_after_arrival"),
        ("2026-06-05", "departure_not_after_arrival"),
        ("2028-06-01", "stay_too_long"),
    ],
)
async def test_the_departure_is_1_to_365_nights_after_the_arrival(house: Stages, departure: str, code: str) -> None:
    [error] = await _assert_faults(house, BOOKING_ENGINE | {"departureDate": departure}, "/departureDate")
    assert error["code"] == code


def test_the_example_body_has_every_field_of_the_table() -> None:
    assert all(value_at(BOOKING_ENGINE, path) is not ABSENT for path, *_ in FIELDS)

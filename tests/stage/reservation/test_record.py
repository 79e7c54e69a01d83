"""The record of section 2.5, composed: from the request, from what the PMS said, and what is derived."""

from decimal import Decimal
from typing import Any

import pytest

from forwarder.reservation.checks.card_numbers import find
from forwarder.reservation.outcome import Status
from forwarder.reservation.record import SubmissionState, can_compose, compose_record, record_id_of
from forwarder.reservation.request import json_number
from tests.support.cases import for_each
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, GENERAL, changed

FINANCES = {
    "totalPrice": 500,
    "currency": "USD",
    "totalPaid": 100.1,
    "remainingBalance": 399.9,
    "basePrice": {"totalBasePrice": 400, "breakdown": [{"name": "Nights", "type": "RoomRate", "total": 400}]},
    "fee": {"totalFee": 60, "breakdown": [{"name": "Cleaning", "type": "Fee", "total": 60}]},
    "tax": {"totalTax": 40, "breakdown": [{"name": "VAT", "type": "Tax", "total": 40}]},
    "discount": {"totalDiscount": 0, "breakdown": []},
}


def _compose(request: dict[str, Any], status: Status = Status.CONFIRMED, **known: Any) -> dict[str, Any]:
    created, updated = "2027-01-01T00:00:00.000Z", "2027-01-02T03:04:05.678Z"
    return compose_record(request, SubmissionState(7, "rsv_1", status, created, updated, **known))


@pytest.mark.parametrize(
    ("arrival", "departure", "nights"),
    [("2027-06-01", "2027-06-02", 1), ("2028-02-28", "2028-03-01", 2), ("2027-12-31", "2028-12-30", 365)],
)
def test_nights(arrival: str, departure: str, nights: int) -> None:
    assert _compose(BOOKING_ENGINE | {"arrivalDate": arrival, "departureDate": departure})["nights"] == nights


@for_each(
    ("given", "shown"),
    [
        (1001, 1001), ("1001", 1001), ("0", 0), ("00123", "00123"), ("A-7", "A-7"), ("1.5", "1.5"), ("-1", "-1"), ("١٢", "١٢"),
        ("9007199254740991", 9007199254740991), ("9007199254740992", "9007199254740992"), (2**63 - 1, 2**63 - 1),
    ],
)  # fmt: skip
def test_the_property_is_a_number_where_its_id_is_one(given: Any, shown: Any) -> None:
    record = _compose(BOOKING_ENGINE | {"propertyId": given})
    assert (type(record["propertyId"]), record["propertyId"]) == (type(shown), shown)


@for_each(("room", "shown"), [("A-7", "A-7"), (7, 7), ("7", "7"), (ABSENT, 1001), (None, 1001)])
def test_the_room_as_it_came_or_else_the_property(room: Any, shown: Any) -> None:
    assert _compose(changed(BOOKING_ENGINE, "roomId", room))["roomId"] == shown


@pytest.mark.parametrize(
    ("counts", "total"),
    [
        ({"numberOfGuests": 4, "numberOfAdults": 1}, 4),
        ({"numberOfAdults": 2, "numberOfChildren": 1, "numberOfInfants": 1, "numberOfPets": 3}, 4),
        ({"numberOfAdults": None}, 0),
        ({}, 0),
    ],
)
def test_the_number_of_guests_or_the_sum_of_those_given(counts: dict[str, Any], total: int) -> None:
    body = {name: value for name, value in GENERAL.items() if not name.startswith("numberOf")} | counts
    assert _compose(body)["numberOfGuests"] == total


@for_each(
    ("guest", "shown"),
    [
        ({"name": "Ana", "email": "a@b.co", "phone": 34600}, ("Ana", ["a@b.co"], ["34600"])),
        ({"firstName": "Ana", "lastName": "Ruiz", "phone": "+34 600"}, ("Ana Ruiz", [], ["+34 600"])),
        ({"phone": ""}, ("", [], [])),
        ({"phone": 0, "email": None}, ("", [], ["0"])),
        ({}, ("", [], [])),
    ],
)
def test_the_primary_guest(guest: dict[str, Any], shown: tuple[str, list[str], list[str]]) -> None:
    primary = _compose(GENERAL | {"guest": guest})["primaryGuest"]
    assert (primary["name"], primary["emails"], primary["mobileNumbers"]) == shown
    assert primary["nationality"] is None


@for_each(("given", "shown"), [("15:00", "15:00"), (15, "15"), (15.5, "15.5"), (0, "0"), (None, ""), (ABSENT, "")])
@for_each("field", ["arrivalEstimatedTime", "departureEstimatedTime"])
def test_estimated_times_are_texts(field: str, given: Any, shown: str) -> None:
    assert _compose(changed(BOOKING_ENGINE, field, given))[field] == shown


@pytest.mark.parametrize(("given", "shown"), [("Late", "Late"), ("", ""), (None, None), (ABSENT, None)])
def test_notes_are_a_text_or_null(given: Any, shown: str | None) -> None:
    assert _compose(changed(BOOKING_ENGINE, "notes", given))["notes"] == shown


def test_without_a_word_of_the_pms_the_finances_are_derived() -> None:
    assert _compose(BOOKING_ENGINE)["finances"] == {
        "totalPrice": 480.5,
        "currency": "EUR",
        "totalPaid": 0,
        "remainingBalance": 480.5,
        "basePrice": {
            "totalBasePrice": 480.5,
            "breakdown": [{"name": "Room rate", "type": "RoomRate", "total": 480.5}],
        },
        "fee": {"totalFee": 0, "breakdown": []},
        "tax": {"totalTax": 0, "breakdown": []},
        "discount": {"totalDiscount": 0, "breakdown": []},
    }


def test_what_the_pms_said_counts() -> None:
    given = {
        "paymentUrl": "https://pay.test/1",
        "source": "DIRECT",
        "codes": {"accessCode": ["1234"]},
        "notes": "From the PMS",
        "totalPrice": 500,
        "currency": "USD",
        "primaryGuest": {"name": "A. Ruiz", "emails": [], "mobileNumbers": [], "nationality": "ES"},
        "finances": FINANCES,
    }
    record = _compose(BOOKING_ENGINE, pms_record=given)
    assert {name: record[name] for name in given} == given


def test_what_is_ours_to_say_the_pms_does_not() -> None:
    given = {"id": 99, "status": "CANCELLED", "arrivalDate": "1999-01-01", "nights": 3, "requestId": "x", "unheard": 1}
    record = _compose(BOOKING_ENGINE, pms_record=given)
    assert (record["id"], record["status"], record["arrivalDate"], record["nights"]) == (
        7,
        "CONFIRMED",
        "2027-06-01",
        4,
    )
    assert record["requestId"] == "rsv_1"
    assert "unheard" not in record


def test_finances_given_in_part_are_completed_exactly() -> None:
    given = {"totalPrice": 0.3, "finances": {"totalPaid": 0.1, "fee": FINANCES["fee"]}}
    finances = _compose(BOOKING_ENGINE, pms_record=given)["finances"]
    assert finances["remainingBalance"] == 0.2
    assert finances["fee"] == FINANCES["fee"]
    assert finances["totalPrice"] == finances["basePrice"]["totalBasePrice"] == 0.3


@for_each("status", list(Status))
def test_the_status_is_the_submissions(status: Status) -> None:
    assert _compose(BOOKING_ENGINE, status)["status"] == status.value


def test_what_is_known_of_the_submission() -> None:
    problem = {"code": "room_unavailable"}
    record = _compose(
        BOOKING_ENGINE, cancelled_at="2027-01-03T00:00:00.000Z", pms_reservation_id="pms-1", problem=problem
    )
    assert (record["createdAt"], record["updatedAt"]) == ("2027-01-01T00:00:00.000Z", "2027-01-02T03:04:05.678Z")
    assert record["cancelledAt"] == "2027-01-03T00:00:00.000Z"
    assert (record["pmsReservationId"], record["problem"]) == ("pms-1", problem)
    assert "problem" not in _compose(BOOKING_ENGINE)


def test_the_masked_card_is_no_part_of_the_record() -> None:
    record = _compose(BOOKING_ENGINE | {"cardDetails": {"cardNumber": "411111******1111"}})
    assert "411111" not in str(record)


@for_each("total", [0, 300, 300.0, 300.5, 0.1, 1e15 + 0.5, 2.0**53, 2.0**60, -0.0])
@for_each("paid", [0, 0.0, 0.1, 100])
def test_what_remains_is_exact(total: float, paid: float) -> None:
    exact = json_number(Decimal(str(total)) - Decimal(str(paid)))
    shown = _compose(BOOKING_ENGINE | {"totalPrice": total}, pms_record={"finances": {"totalPaid": paid}})
    remaining = shown["finances"]["remainingBalance"]
    assert (remaining, type(remaining)) == (exact, type(exact))


ODD: tuple[Any, ...] = (
    ABSENT, None, 0, -1, 10**400, 1e300, float("nan"), float("inf"), True, "", "soon", "1" * 5000, "2027-01-01", [], ["a"],
    {}, {"name": ["a"]}, {"name": "", "firstName": 5}, {"name": 0, "lastName": ["a"]}, {"name": {"a": 1}}, b"bytes",
)  # fmt: skip


@pytest.mark.parametrize("base", [BOOKING_ENGINE, GENERAL])
def test_what_surely_composes_does(base: dict[str, Any]) -> None:
    assert can_compose(base)
    odd = [changed(base, field, value) for field in base for value in ODD]
    for request in filter(can_compose, odd):
        _compose(request)
    assert not can_compose(changed(base, "guest", {"name": 0}))


def test_no_id_of_a_record_can_be_a_card_number() -> None:
    """They have as many digits: one in ten could be one, and a scan for cards found them."""
    ids = [record_id_of(f"rsv_{number}") for number in range(500)]
    assert not [each for each in ids if find(f'{{"id":{each}}}')]

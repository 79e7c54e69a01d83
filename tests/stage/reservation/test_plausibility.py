"""What a request of the right form cannot mean, and the checks that an account does without."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwarder.reservation.checks.fields import (
    CHECKS,
    CLOCK_TIMES,
    GUEST_COUNTS,
    GUEST_NAME,
    PAST_ARRIVAL,
    is_possible,
    plausibility,
    read_request,
)
from forwarder.reservation.problems import FieldFault
from tests.support.cases import for_each
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, GENERAL, changed

NOON = datetime(2027, 6, 10, 12, tzinfo=UTC)


def _faults(body: dict[str, Any], now: datetime, *skipped: str) -> list[FieldFault]:
    """Those of a request whose form is right."""
    read = read_request("general", json.dumps(body).encode())
    assert not isinstance(read, list), read
    return plausibility(now, skipped).faults(read.request)


def _from(arrival: date) -> dict[str, Any]:
    return GENERAL | {"arrivalDate": str(arrival), "departureDate": str(arrival + timedelta(days=2))}


@pytest.mark.parametrize(
    ("hour", "earliest"),
    [(0, date(2027, 6, 8)), (11, date(2027, 6, 8)), (12, date(2027, 6, 9)), (23, date(2027, 6, 9))],
)
def test_the_day_before_today_in_the_last_time_zone_is_not_long_past(hour: int, earliest: date) -> None:
    now = NOON.replace(hour=hour)
    assert _faults(_from(earliest), now) == []
    late = _from(earliest - timedelta(days=1))
    assert _faults(late, now) == [
        FieldFault("/arrivalDate", "arrival_in_the_past", "must be no earlier than yesterday")
    ]
    assert _faults(late, now, PAST_ARRIVAL) == []


@given(st.datetimes(datetime(2027, 1, 1), datetime(2028, 1, 1)), st.integers(-12, 14))  # noqa: DTZ001 - made UTC below
def test_today_and_yesterday_are_right_in_every_time_zone(moment: datetime, offset: int) -> None:
    today = (moment + timedelta(hours=offset)).date()
    check = plausibility(moment.replace(tzinfo=UTC))
    for days in (0, 1):
        day = str(today - timedelta(days=days))
        assert check.faults_in("general", {"arrivalDate": day, "guest": {"name": "A"}}) == []


@for_each(
    ("counts", "right"),
    [
        ({"numberOfGuests": 3, "numberOfAdults": 2, "numberOfChildren": 1, "numberOfInfants": 5}, True),
        ({"numberOfGuests": 3, "numberOfAdults": 2, "numberOfChildren": 2}, False),
        ({"numberOfGuests": 3, "numberOfAdults": 4, "numberOfChildren": None}, False),
        ({"numberOfGuests": 3, "numberOfAdults": None, "numberOfChildren": 4}, False),
        ({"numberOfGuests": None, "numberOfAdults": 9}, True),
        ({"numberOfGuests": 0, "numberOfAdults": 9}, True),
        ({"numberOfGuests": 9, "numberOfAdults": 2, "numberOfChildren": 0}, True),
    ],
)
def test_guests_are_at_least_adults_and_children(counts: dict[str, Any], right: bool) -> None:
    faults = _faults(GENERAL | counts, NOON.replace(month=1))
    assert [(fault.pointer, fault.code) for fault in faults] == (
        [] if right else [("/numberOfGuests", "fewer_than_adults_and_children")]
    )
    assert _faults(GENERAL | counts, NOON.replace(month=1), GUEST_COUNTS) == []


@for_each(
    ("guest", "right"),
    [
        ({}, False),
        ({"name": "", "firstName": " "}, False),
        ({"email": "a@b.co"}, False),
        ({"name": "Ana"}, True),
        ({"firstName": "Ana"}, True),
        ({"name": "", "lastName": "Ruiz"}, True),
    ],
)
def test_a_guest_has_a_name(guest: dict[str, Any], right: bool) -> None:
    names = {"name": "", "firstName": "", "lastName": ""}
    read = read_request(
        "booking-engine", json.dumps(BOOKING_ENGINE | {"guest": BOOKING_ENGINE["guest"] | names | guest}).encode()
    )
    assert not isinstance(read, list), read
    faults = plausibility(NOON.replace(month=1)).faults(read.request)
    assert [(fault.pointer, fault.code) for fault in faults] == (
        [] if right else [("/guest/name", "guest_without_name")]
    )
    assert plausibility(NOON.replace(month=1), (GUEST_NAME,)).faults(read.request) == []


POSSIBLE: list[str | float] = [
    "00:00", "15:30", "9:05", "24:00", "15.30", "15h30", "15h", "3pm", "3:30 PM", "12 a.m.", "15:30:59", "15:30:59.123Z",
    "15:30+02:00", "15", "1530", "0930", "15:00-17:00", "", "after 5pm", "around noon", "flight LH 2599", "2027-06-01T15:00:00Z",
    "1.6.2027", "34600111222", 0, 15, 24, 1530, 15.5, 0.25, 54_000, 1_811_808_000_000,
]  # fmt: skip
IMPOSSIBLE: list[str | float] = [
    "25:99", "25:00", "24:01", "15:60", "15:600", "15:30:60", "99", "2599", "13pm", "13:00 pm", "3:60 am", "25h", "-1", " 25:00 ",
    "125:00", 25, 99, 1560, 2599, -1, -0.5, 24.5,
]  # fmt: skip


@for_each("time", POSSIBLE)
def test_a_time_that_a_clock_shows_or_words_are_taken(time: str | float) -> None:
    assert is_possible(time)


@for_each("time", IMPOSSIBLE)
def test_a_time_that_no_clock_shows_is_refused(time: str | float) -> None:
    assert not is_possible(time)


@for_each("time", ["1:1{}x", "1{}:{}1{}x", "1:1:11{}pm{}h{}x", "{}1{}x"])
def test_blanks_are_read_once(time: str) -> None:
    """These took the square of their number: hours."""
    assert is_possible(time.replace("{}", " " * 500_000))


@pytest.mark.parametrize("field", ["arrivalEstimatedTime", "departureEstimatedTime"])
def test_an_impossible_time_is_named(field: str) -> None:
    body = GENERAL | {field: "25:99"}
    [fault] = _faults(body, NOON.replace(month=1))
    assert (fault.pointer, fault.code) == (f"/{field}", "impossible_time")
    assert _faults(body, NOON.replace(month=1), CLOCK_TIMES) == []


@given(st.integers(0, 23), st.integers(0, 59), st.sampled_from(["{:02}:{:02}", "{}.{:02}", "{:02}{:02}", "{}h{:02}"]))
def test_every_minute_of_the_day_is_possible(hours: int, minutes: int, written: str) -> None:
    assert is_possible(written.format(hours, minutes))


@given(st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_any_time_is_decided(time: str | float) -> None:
    assert is_possible(time) in {True, False}


WRONG = {
    "arrivalDate": "2020-01-01", "departureDate": "2020-01-03", "numberOfGuests": 1, "numberOfAdults": 2,
    "arrivalEstimatedTime": "25:99", "guest": BOOKING_ENGINE["guest"] | {"name": "", "firstName": " ", "lastName": ""},
}  # fmt: skip
POINTERS = {"/arrivalDate", "/numberOfGuests", "/arrivalEstimatedTime", "/guest/name"}


@pytest.mark.parametrize("fault", [{"currency": "XXY"}, {"currency": 5}])
def test_they_are_named_together_with_all_other_faults(fault: dict[str, Any]) -> None:
    body = json.dumps(BOOKING_ENGINE | WRONG | fault).encode()
    faults = read_request("booking-engine", body, plausibility(NOON))
    assert isinstance(faults, list)
    assert {each.pointer for each in faults} == {*POINTERS, "/currency"}
    left = read_request("booking-engine", body, plausibility(NOON, CHECKS))
    assert isinstance(left, list)
    assert {each.pointer for each in left} == {"/currency"}


@pytest.mark.parametrize("guest", [{}, {"email": "ana@example.com"}, {"name": " "}])
def test_the_general_operation_takes_a_guest_without_a_name(guest: dict[str, Any]) -> None:
    assert _faults(GENERAL | {"guest": guest}, NOON.replace(month=1)) == []
    wrong = json.dumps(GENERAL | {"guest": guest, "currency": "XXY"}).encode()
    faults = read_request("general", wrong, plausibility(NOON.replace(month=1)))
    assert isinstance(faults, list)
    assert [each.pointer for each in faults] == ["/currency"]


@pytest.mark.parametrize(
    "path", ["guest", "arrivalDate", "numberOfGuests", "numberOfAdults", "arrivalEstimatedTime", "guest.name"]
)
@given(value=st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just([]) | st.just({}))
def test_a_document_that_is_wrong_is_checked_as_far_as_it_goes(path: str, value: Any) -> None:
    body = changed(BOOKING_ENGINE, path, value)
    faults = plausibility(NOON.replace(month=1)).faults_in("booking-engine", body)
    assert {fault.pointer for fault in faults} <= {*POINTERS, "/numberOfGuests"}


def test_a_body_that_is_no_object_is_refused_as_such() -> None:
    faults = read_request("booking-engine", json.dumps([BOOKING_ENGINE]).encode(), plausibility(NOON))
    assert isinstance(faults, list)
    assert [(each.pointer, each.code) for each in faults] == [("", "wrong_type")]


def test_a_guest_that_is_missing_is_refused_as_such() -> None:
    faults = read_request(
        "general", json.dumps(changed(GENERAL, "guest", ABSENT)).encode(), plausibility(NOON.replace(month=1))
    )
    assert faults == [FieldFault("/guest", "required", "is required")]

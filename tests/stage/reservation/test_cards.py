"""Whether a card can be one."""

from datetime import UTC, datetime

import pytest

from forwarder.reservation.booking import MONTH, NUMBER, YEAR, Traits, refusals
from forwarder.reservation.request import CardDetails
from tests.support.cases import for_each
from tests.support.stages.bodies import CARD

NOW = datetime(2027, 1, 20, tzinfo=UTC)


def _faults(now: datetime = NOW, **fields: str | None) -> list[tuple[str, str]]:
    faults = [each for one in refusals(Traits(), {}, CardDetails.model_validate(fields), now) for each in one.faults]
    assert not [value for value in fields.values() if value and value.strip() and value.strip() in repr(faults)]
    return [(fault.pointer, fault.code) for fault in faults]


def _has_number(number: str | None) -> bool:
    card = CardDetails.model_validate({"cardNumber": number})
    return not list(refusals(Traits(cards="payment"), {"morChannel": "PMS"}, card, NOW))


@for_each(
    "number",
    [
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4111\u20131111\u20131111\u20131111",
        " 4111\u00a01111 11111111 ",
        "378282246310005",
        "6304000000000000",
        "501800000009",
        "6759649826438453003",
    ],
)
def test_a_card_number_as_people_write_it(number: str) -> None:
    assert _faults(cardNumber=number) == []
    assert _has_number(number)


@for_each(
    ("number", "code"),
    [
        ("notacard", "invalid_value"),
        ("4111", "invalid_value"),
        ("41111111111", "invalid_value"),
        ("4" * 20, "invalid_value"),
        ("4111/1111/1111/1111", "invalid_value"),
        ("\u0664111111111111111", "invalid_value"),
        ("----", "invalid_value"),
        ("4111111111111112", "wrong_check_digit"),
        ("1411111111111111", "wrong_check_digit"),
    ],
)
def test_what_is_no_card_number(number: str, code: str) -> None:
    assert _faults(cardNumber=number) == [(NUMBER, code)]


@pytest.mark.parametrize("number", ["", "  ", None])
def test_a_blank_number_is_none(number: str | None) -> None:
    assert _faults(cardNumber=number) == []
    assert not _has_number(number)


@for_each(
    ("month", "year", "faults"),
    [
        ("9", "2031", []),
        ("09", "31", []),
        ("12", "27", []),
        (" 1 ", " 2027 ", []),
        ("1", "27", []),
        ("12", "2026", [(YEAR, "card_expired")]),
        ("12", "26", [(YEAR, "card_expired")]),
        ("13", "1999", [(MONTH, "invalid_value"), (YEAR, "card_expired")]),
        ("0", "2031", [(MONTH, "invalid_value")]),
        ("00", "2031", [(MONTH, "invalid_value")]),
        ("sep", "2031", [(MONTH, "invalid_value")]),
        ("9", "041", [(YEAR, "invalid_value")]),
        ("9", "soon", [(YEAR, "invalid_value")]),
        ("9", "02041", [(YEAR, "invalid_value")]),
        (None, None, []),
        ("", " ", []),
        ("9", None, []),
        (None, "2031", []),
        (None, "2026", [(YEAR, "card_expired")]),
    ],
)
def test_an_expiry(month: str | None, year: str | None, faults: list[tuple[str, str]]) -> None:
    assert _faults(expiryMonth=month, expiryYear=year) == faults


@pytest.mark.parametrize(
    ("now", "expired"),
    [
        (datetime(2027, 2, 1, 11, 59, 59, tzinfo=UTC), False),
        (datetime(2027, 2, 1, 12, 0, 0, tzinfo=UTC), True),
        (datetime(2028, 1, 1, 11, 0, 0, tzinfo=UTC), True),
    ],
)
def test_a_card_is_good_until_its_month_ends_wherever_that_is_last(now: datetime, *, expired: bool) -> None:
    assert bool(_faults(now, expiryMonth="1", expiryYear="2027")) is expired


def test_a_year_ends_there_too() -> None:
    assert _faults(datetime(2028, 1, 1, 11, 0, 0, tzinfo=UTC), expiryMonth="12", expiryYear="2027") == []


def test_the_card_of_these_tests_is_one() -> None:
    assert _faults(**CARD) == []

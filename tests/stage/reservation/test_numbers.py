"""Numbers as programs that count in floating point write them: prices with noise, and whole numbers with a point or an exponent."""

import json
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwarder.ingress.message import published_form
from forwarder.reservation.checks.fields import read_request
from forwarder.reservation.request import CURRENCY_DECIMALS, Operation
from tests.support.cases import for_each
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, GENERAL, changed

BODIES: dict[Operation, dict[str, Any]] = {"booking-engine": BOOKING_ENGINE, "general": GENERAL}
TEXT_OR_NUMBER = ["arrivalEstimatedTime", "departureEstimatedTime", "guest.phone", "paymentProviderId"]
IDENTIFIERS = ["propertyId", "roomId"]
OPERATIONS = st.sampled_from([*BODIES])


def _published(operation: Operation, path: str, number: str, **more: Any) -> Any:
    """What is published of the field at `path`, with `number` written there; the faults, if it is refused."""
    body = json.dumps(changed({**BODIES[operation], **more}, path, "@")).replace('"@"', number)
    read = read_request(operation, body.encode())
    if isinstance(read, list):
        return read
    value = json.loads(published_form(read.request, None), parse_float=Decimal)
    for step in path.split("."):
        value = value[step]
    return value


# --- prices ---

ALL_CURRENCIES = st.sampled_from(sorted(CURRENCY_DECIMALS))


@st.composite
def prices(draw: st.DrawFn) -> tuple[str, Decimal]:
    """A currency, and an amount that it can have."""
    currency = draw(ALL_CURRENCIES)
    return currency, Decimal(draw(st.integers(0, 10**10))).scaleb(-CURRENCY_DECIMALS[currency])


def _written(amount: Decimal, digits: int) -> str:
    """With at least so many digits after the point."""
    return f"{amount:.{max(digits, -int(amount.as_tuple().exponent))}f}"


@given(OPERATIONS, prices(), st.integers(-9 * 10**23, 9 * 10**23), st.integers(0, 40))
def test_noise_of_less_than_a_millionth_is_rounded(
    operation: Operation, price: tuple[str, Decimal], noise: int, digits: int
) -> None:
    currency, amount = price
    number = _written(abs(amount + Decimal(noise).scaleb(-30)), digits)
    assert _published(operation, "totalPrice", number, currency=currency) == amount


@given(OPERATIONS, prices(), st.integers(2, 5 * 10**5), st.sampled_from([-1, 1]))
def test_a_real_further_decimal_is_rounded_half_to_even(
    operation: Operation, price: tuple[str, Decimal], parts: int, sign: int
) -> None:
    currency, amount = price
    decimals = CURRENCY_DECIMALS[currency]
    # From two millionths to half of the smallest amount.
    more = max(min(Decimal(parts) / 10**6, Decimal("0.5").scaleb(-decimals)), Decimal("0.000002"))
    number = f"{abs(amount + sign * more):f}"
    rounded = Decimal(number).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_EVEN)
    assert _published(operation, "totalPrice", number, currency=currency) == rounded


@given(OPERATIONS, st.integers(0, 10**7), st.integers(1, 365), st.sampled_from(["EUR", None]))
def test_nights_times_the_price_of_one_is_exact(
    operation: Operation, cents: int, nights: int, currency: str | None
) -> None:
    number = repr(nights * (cents / 100))
    more = {"currency": currency} if operation == "general" else {}
    assert _published(operation, "totalPrice", number, **more) == Decimal(nights * cents) / 100


@given(OPERATIONS, st.lists(st.integers(0, 10**6), max_size=40))
def test_a_sum_of_prices_is_exact(operation: Operation, cents: list[int]) -> None:
    total = 0.0
    for each in cents:
        total += each / 100
    assert _published(operation, "totalPrice", repr(total)) == Decimal(sum(cents)) / 100


@for_each(
    ("number", "published"),
    [
        ("99.30000000000001", "99.3"), ("99.2999999999999999999999", "99.3"), ("1e2", "100"), ("9.93e1", "99.3"),
        ("993E-1", "99.3"),
        ("100.000000000000000000000000000000", "100"), ("-0.0", "0"), ("-2.7755575615628914e-17", "0"), ("5e-324", "0"),
        ("1e12", "1000000000000"), ("999999999999.99", "999999999999.99"),
    ],
)  # fmt: skip
def test_an_amount_is_the_same_however_it_is_written(number: str, published: str) -> None:
    for operation in BODIES:
        assert _published(operation, "totalPrice", number) == Decimal(published)


def test_without_a_currency_the_most_decimals_of_any_are_right() -> None:
    without = changed(GENERAL, "currency", ABSENT)
    read = [
        read_request("general", json.dumps({**without, "totalPrice": price}).encode())
        for price in (99.30000000000001, 1.2345, 1.23456)
    ]
    assert [one if isinstance(one, list) else (one.request.total_price, one.rounded) for one in read] == [
        (Decimal("99.3"), False),
        (Decimal("1.2345"), False),
        (Decimal("1.2346"), True),
    ]


@for_each(
    ("price", "currency", "rounded"),
    [
        (480.335, "EUR", "480.34"),
        (480.345, "EUR", "480.34"),
        (99.5, "JPY", "100"),
        (98.5, "JPY", "98"),
        (0.001, "EUR", "0"),
    ],
)
def test_a_price_is_rounded_half_to_even_to_the_decimals_of_its_currency(
    price: float, currency: str, rounded: str
) -> None:
    for operation, body in BODIES.items():
        changes = {"totalPrice": price, "currency": currency}
        read = read_request(operation, json.dumps(body | changes).encode())
        assert not isinstance(read, list)
        assert (read.request.total_price, read.rounded) == (Decimal(rounded), True)
        exact = read_request(operation, json.dumps(body | changes | {"totalPrice": float(rounded)}).encode())
        assert not isinstance(exact, list)
        assert published_form(read.request, None) == published_form(exact.request, None)


@pytest.mark.parametrize(("written", "published"), [("eur", "EUR"), ("Eur", "EUR"), ("EUR", "EUR")])
def test_a_currency_is_published_in_capitals(written: str, published: str) -> None:
    for operation in BODIES:
        assert _published(operation, "currency", f'"{written}"') == published


# --- whole numbers ---


@for_each("field", ["numberOfGuests", "numberOfPets", *IDENTIFIERS, *TEXT_OR_NUMBER])
@for_each("number", ["7", "7.0", "7e0", "70e-1"])
def test_a_whole_number_is_one_however_it_is_written(field: str, number: str) -> None:
    value = _published("booking-engine", field, number)
    assert (type(value), value) == (int, 7)


@given(
    st.sampled_from([*IDENTIFIERS, *TEXT_OR_NUMBER]),
    st.integers(1, 2**63 - 2**10),
    st.sampled_from(["{}.0", "{}e0", "{}0E-1"]),
)
def test_whole_numbers_are_exact_at_any_length(field: str, number: int, written: str) -> None:
    assert _published("booking-engine", field, written.format(number)) == number


@for_each("field", [*IDENTIFIERS, *TEXT_OR_NUMBER])
def test_none_becomes_an_exponent(field: str) -> None:
    assert _published("booking-engine", field, "1.2e16") == 12_000_000_000_000_000


@for_each("field", [*IDENTIFIERS, *TEXT_OR_NUMBER])
def test_what_can_be_no_exact_number_is_refused(field: str) -> None:
    [fault] = _published("booking-engine", field, "9007199254740993.5")
    assert (fault.pointer, fault.code) == ("/" + field.replace(".", "/"), "inexact_number")


@for_each("other", ["1e-99999999999999999999", "0e99999999999999999999", "-1e-400", "1e99999999999999999999"])
def test_beside_a_long_whole_number_any_other_is_read(other: str) -> None:
    body = json.dumps({**BOOKING_ENGINE, "propertyId": "@", "unknown": "#"})
    read = read_request("booking-engine", body.replace('"@"', "9007199254740993.0").replace('"#"', other).encode())
    assert not isinstance(read, list)
    assert read.request.property_id == 9007199254740993

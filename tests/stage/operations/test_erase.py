"""In which texts a guest is found, and in which another one is."""

import pytest

from forwarder.operate.guests import GuestQuery
from tests.support.cases import for_each

MARIA = GuestQuery(email="Maria@Example.com")
CALLED = GuestQuery(phone="+34 600-100-200")


@pytest.mark.parametrize(
    "value",
    [
        {"guest": {"email": "maria@example.com"}},
        {"notes": "Write to <MARIA@example.com>, please."},
        [{}, {"primaryGuest": {"emails": ["x@y.z", "maria@example.com"]}}],
        "[maria@example.com]",
        "E-mail=maria@example.com|anna@example.com",
        "*Maria@example.com*!",
        "{maria@example.com}",
        "anna@example.com/maria@example.com",
        "'maria@example.com'",
        "https://pay.example/?email=maria%40example.com&stay=4",
        "\uff4daria@example.com",
    ],
)
def test_an_address_is_found_wherever_it_stands(value: object) -> None:
    assert MARIA.is_in(value)
    assert not CALLED.is_in(value)


@for_each(
    "text",
    [
        *("anna.maria@example.com", "anna-maria@example.com", "anna+maria@example.com", "o'maria@example.com"),
        *("maria@example.com.au", "maria@example.com-mail.net", "maria@example.co", "maria", ""),
    ],
)
def test_another_address_is_another_guest(text: str) -> None:
    assert not MARIA.is_in({"guest": {"email": text}})


def test_an_address_with_an_apostrophe_is_found() -> None:
    assert GuestQuery(email="o'brien@example.com").is_in({"guest": {"email": "O'Brien@example.com"}})


@for_each(
    "text", ["a" * 1_000_000, "a." * 500_000, "maria@" * 150_000, "+1-" * 300_000, "1 " * 500_000, "%" * 1_000_000]
)
def test_a_long_text_is_looked_through_in_linear_time(text: str) -> None:
    assert not MARIA.is_in(text)
    assert not CALLED.is_in(text)


@pytest.mark.parametrize(
    "phone",
    [
        *("34600100200", 34600100200, "0034 600 100 200", "call (+34) 600.100.200 at night"),
        *("+34 600 100 200 / 600 100 201", "600 100 201\n+34 600 100 200", "34 600 100 200 - 34 600 100 201"),
    ],
)
def test_a_number_is_found_however_it_is_written(phone: object) -> None:
    assert CALLED.is_in({"guest": {"phone": phone}})


@for_each("phone", ["346001002001", "600100200", "34600100201", True, None, 1.5])
def test_another_number_is_another_guest(phone: object) -> None:
    assert not CALLED.is_in({"guest": {"phone": phone}})

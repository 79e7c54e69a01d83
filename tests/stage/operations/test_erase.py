"""In which texts a guest is found, and in which another one is."""

import pytest

from forwarder.operate.privacy.guests import GuestQuery
from tests.support.cases import for_each

MARIA = GuestQuery(email="Maria@Example.com")
CALLED = GuestQuery(phone="+34 600-100-200")


@pytest.mark.parametrize(
    "value",
    [
        {"guest": {"email": "maria@example.com"}},
        {"notes": "Write to <MARIA@example.com>, please."},
        [{}, {"primaryGuest": {"emails": ["x@y.z", "maria@example.com"]}}],
    ],
)
def test_an_address_is_found_wherever_it_stands(value: object) -> None:
    assert MARIA.is_in(value)
    assert not CALLED.is_in(value)


@for_each("text", ["anna.maria@example.com", "maria@example.com.au", "maria@example.co", "maria", ""])
def test_another_address_is_another_guest(text: str) -> None:
    assert not MARIA.is_in({"guest": {"email": text}})


@pytest.mark.parametrize("phone", ["34600100200", 34600100200, "0034 600 100 200", "call (+34) 600.100.200 at night"])
def test_a_number_is_found_however_it_is_written(phone: object) -> None:
    assert CALLED.is_in({"guest": {"phone": phone}})


@for_each("phone", ["346001002001", "600100200", "34600100201", True, None, 1.5])
def test_another_number_is_another_guest(phone: object) -> None:
    assert not CALLED.is_in({"guest": {"phone": phone}})

"""An answer that shows other nights, another price, guest or room than was asked is another reservation's, whatever its kind."""

from collections.abc import Mapping
from typing import Any

from forwarder.pms.responses import Echo
from tests.support.cases import for_each
from tests.support.simulator.server import booking

ECHO = Echo("from", "to", "price", "mail")


@for_each(
    ("shown", "anothers"),
    [
        ({}, False),
        ({"from": "2027-03-01", "to": "2027-03-04T11:00:00Z", "price": 450.35, "mail": " MARIA@example.com"}, False),
        ({"from": "", "to": None, "price": "999", "mail": ""}, False),
        ({"from": 7, "to": [], "price": True, "mail": {}}, False),
        ({"price": 450.354}, False),
        ({"from": "2027-03-02"}, True),
        ({"to": "2027-03-05"}, True),
        ({"price": 450.36}, True),
        ({"price": 999}, True),
        ({"mail": "jan@example.com"}, True),
    ],
)
def test_what_is_shown_contradicts_what_was_asked_or_says_nothing(shown: Mapping[str, Any], anothers: bool) -> None:
    assert ECHO.contradicts(shown, booking()) is anothers


def test_what_a_pms_does_not_show_is_not_compared() -> None:
    assert not Echo().contradicts({"from": "2027-01-01", "price": 999}, booking())

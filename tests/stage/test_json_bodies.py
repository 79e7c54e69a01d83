"""What JSON leaves open in a body: whole numbers written with a point, and names that an object has twice."""

import json
from typing import Any

import pytest

from forwarder.reservation.json_names import names_are_unique
from forwarder.reservation.request import BookingEngineRequest
from forwarder.reservation.validation import MalformedJson, read_cancellation, read_request
from tests.support.bodies import BOOKING_ENGINE, GENERAL, changed


@pytest.mark.parametrize("field", ["propertyId", "roomId", "numberOfGuests", "numberOfPets"])
def test_a_whole_number_is_one_however_it_is_written(field: str) -> None:
    request = read_request("booking-engine", json.dumps({**BOOKING_ENGINE, field: 7.0}).encode())
    assert isinstance(request, BookingEngineRequest)
    assert f'"{field}":7,' in request.model_dump_json(by_alias=True)


@pytest.mark.parametrize("value", [7.5, -7.0, 2.0**53 + 2, 1e300])
def test_what_is_no_whole_number_or_may_be_another_one_is_refused(value: float) -> None:
    faults = read_request("booking-engine", json.dumps({**BOOKING_ENGINE, "propertyId": value}).encode())
    assert isinstance(faults, list)
    assert [fault.pointer for fault in faults] == ["/propertyId"]


TWICE = [
    '{"a": 1, "a": 1}',
    '{"a": 1, "\\u0061": 2}',
    '{"x": [{"y": {"a": 1, "b": 2, "a": 3}}]}',
    '[{"": 1, "": 2}]',
]
ONCE = [
    '{"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 1}]}',
    '{"a": "a\\": 1, \\"a", "A": 1}',
    "[" * 150 + "]" * 150,
    '{"a": ' + "9" * 10_000 + ', "b": 1e999999}',
    "{}",
]


@pytest.mark.parametrize(("document", "unique"), [*((one, False) for one in TWICE), *((one, True) for one in ONCE)])
def test_a_name_that_an_object_has_twice_is_found(document: str, unique: bool) -> None:
    assert names_are_unique(document.encode()) is unique


@pytest.mark.parametrize(
    "twice",
    [
        json.dumps(GENERAL)[:-1] + ', "propertyId": "00123"}',
        json.dumps(GENERAL)[:-1] + ', "unknown": {"x": 1, "x": 2}}',
        json.dumps(changed(GENERAL, "guest.name", "A")).replace('"name": "A"', '"name": "A", "name": "B"'),
    ],
)
def test_a_body_with_a_name_twice_is_not_taken(twice: str) -> None:
    document: Any = json.loads(twice)
    assert not isinstance(read_request("general", json.dumps(document).encode()), list)
    with pytest.raises(MalformedJson, match="one name twice"):
        read_request("general", twice.encode())


def test_nor_is_a_cancellation() -> None:
    with pytest.raises(MalformedJson, match="one name twice"):
        read_cancellation(b'{"reason": "a", "reason": "b"}')

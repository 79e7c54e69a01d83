"""What JSON leaves open in a body: numbers that are none, and names that an object has twice."""

import json
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwarder.reservation.checks.faults import MalformedJson
from forwarder.reservation.checks.fields import read_item, read_object, read_request, refuse_names_given_twice
from forwarder.reservation.fast import max_names
from forwarder.reservation.outcome import CancellationBody
from tests.support.cases import for_each
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL, changed


@pytest.mark.parametrize("value", [7.5, -7.0, 2.0**63, 1e300])
def test_what_is_no_whole_number_or_beyond_all_bounds_is_refused(value: float) -> None:
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


@for_each(("document", "unique"), [*((one, False) for one in TWICE), *((one, True) for one in ONCE)])
def test_a_name_that_an_object_has_twice_is_found(document: str, unique: bool) -> None:
    with nullcontext() if unique else pytest.raises(MalformedJson):
        refuse_names_given_twice(document.encode())


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


def test_a_byte_order_mark_is_named() -> None:
    """RFC 8259 (8.1): JSON has none, whatever an editor or a library puts there."""
    item = {"operation": "general", "reservation": GENERAL}
    with pytest.raises(MalformedJson, match="byte order mark"):
        read_request("general", json.dumps(GENERAL).encode("utf-8-sig"))
    with pytest.raises(MalformedJson, match="byte order mark"):
        read_item(json.dumps(item).encode("utf-8-sig"))
    with pytest.raises(MalformedJson, match="byte order mark"):
        read_object(CancellationBody, b"\xef\xbb\xbf{}")


def _fields(request: dict[str, Any], path: str = "") -> list[str]:
    inner = [(name, value) for name, value in request.items() if isinstance(value, dict)]
    return [path + name for name in request] + [
        each for name, value in inner for each in _fields(value, f"{path}{name}.")
    ]


WITH_CARD = {**BOOKING_ENGINE, "cardDetails": {"cardNumber": "4111111111111111", "cvv": "123"}}


@pytest.mark.parametrize("separators", [(",", ":"), (" ,\n", "\t:\r\n ")])
@pytest.mark.parametrize("spelt", [lambda name: name, lambda name: f"\\u{ord(name[0]):04x}{name[1:]}"])
def test_no_field_may_come_twice_however_it_is_written(separators: Any, spelt: Any) -> None:
    once = json.dumps(WITH_CARD, separators=separators)
    assert not isinstance(read_request("booking-engine", once.encode()), list)
    for field in _fields(WITH_CARD):
        whole = json.loads(json.dumps(WITH_CARD))
        *way, name = field.split(".")
        place = whole
        for step in way:
            place = place[step]
        place["again"] = place[name]
        body = json.dumps(whole, separators=separators).replace('"again"', f'"{spelt(name)}"')
        with pytest.raises(MalformedJson, match="one name twice"):
            read_request("booking-engine", body.encode())


@for_each("field", ["propertyId", "numberOfGuests", "totalPrice", "notes", "guest.phone", "unknown"])
@for_each("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_no_json_in_any_field(field: str, value: float) -> None:
    with pytest.raises(MalformedJson):
        read_request("booking-engine", json.dumps(changed(BOOKING_ENGINE, field, value)).encode())


@for_each("text", ['so: "fine": yes', "a : b", '{"propertyId":1,"propertyId":2}', "NaN", "Infinity: "])
def test_a_text_may_look_like_names_and_numbers(text: str) -> None:
    read = read_request("booking-engine", json.dumps({**BOOKING_ENGINE, "notes": text}).encode())
    assert not isinstance(read, list)
    assert read.request.notes == text
    assert not read.unknown


@pytest.mark.parametrize(
    ("document", "names"), [("{}", 0), ('{"a":1}', 1), ('{"a" : {"b"\n:2}, "c":\t[{"d"\r\t:1}]}', 4)]
)
def test_names_are_counted_without_being_read(document: str, names: int) -> None:
    assert max_names(document.encode()) == names


@given(
    st.recursive(
        st.none() | st.text(st.sampled_from('a":\\ \n'), max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=10,
    )
)
def test_no_name_is_left_uncounted(document: Any) -> None:
    assert max_names(json.dumps(document).encode()) >= _names_in(document)


def _names_in(document: Any) -> int:
    if isinstance(document, dict):
        return len(document) + sum(map(_names_in, document.values()))
    return sum(map(_names_in, document)) if isinstance(document, list) else 0


def test_nor_is_a_cancellation() -> None:
    with pytest.raises(MalformedJson, match="one name twice"):
        read_object(CancellationBody, b'{"reason": "a", "reason": "b"}')

"""From bytes to a request or to every fault: whatever comes, in words of ours that quote none of it."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwarder.reservation.checks.faults import MalformedJson
from forwarder.reservation.checks.fields import read_request
from forwarder.reservation.fast import AnyRequest
from forwarder.reservation.problems import FieldFault
from forwarder.reservation.request import BookingEngineRequest, GeneralRequest, Operation
from tests.support.profile import examples
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, CARD, GENERAL, changed

OPERATIONS: list[Operation] = ["booking-engine", "general"]
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner), max_leaves=8
)
PATHS = [
    *BOOKING_ENGINE,
    *(f"guest.{name}" for name in BOOKING_ENGINE["guest"]),
    *(f"guest.address.{name}" for name in BOOKING_ENGINE["guest"]["address"]),
    "cardDetails",
]
POINTER = re.compile(r"(/[A-Za-z0-9]+)*")


def _read(operation: Operation, body: Any) -> AnyRequest | list[FieldFault]:
    read = read_request(operation, json.dumps(body).encode())
    return read if isinstance(read, list) else read.request


def _faults(operation: Operation, body: Any) -> list[FieldFault]:
    faults = _read(operation, body)
    assert isinstance(faults, list)
    return faults


def test_a_whole_request_is_read() -> None:
    assert isinstance(_read("booking-engine", BOOKING_ENGINE | {"cardDetails": CARD}), BookingEngineRequest)
    assert isinstance(_read("general", GENERAL), GeneralRequest)


@pytest.mark.parametrize(
    ("path", "value", "code", "detail"),
    [
        ("propertyId", 1.5, "wrong_type", "must be a string or a whole number"),
        ("propertyId", "", "invalid_value", "must not be empty"),
        ("propertyId", " ", "invalid_value", "must not be empty, nor contain the character U+0000"),
        ("propertyId", "a\0", "invalid_value", "must not be empty, nor contain the character U+0000"),
        ("propertyId", "x" * 129, "too_long", "must have at most 128 characters"),
        ("propertyId", -1, "too_small", "must be at least 0"),
        ("propertyId", 2**63, "too_large", "must be at most 9223372036854775807"),
        ("arrivalDate", "soon", "invalid_date", "must be a date that exists, written YYYY-MM-DD"),
        ("arrivalDate", None, "invalid_date", "must be a date that exists, written YYYY-MM-DD"),
        ("departureDate", "2027-06-01", "departure_not_after_arrival", "must be at least one day after arrivalDate"),
        ("departureDate", "2029-06-01", "stay_too_long", "must be at most 365 nights after arrivalDate"),
        ("arrivalEstimatedTime", True, "wrong_type", "must be a string or a number"),
        ("paymentProviderId", 2**63, "too_large", "must be at most 9223372036854775807"),
        ("paymentProviderId", -(2**63) - 1, "too_small", "must be at least -9223372036854775808"),
        ("paymentProviderId", 1e300, "too_large", "must be at most 9223372036854775808"),
        ("numberOfGuests", 0, "too_small", "must be at least 1"),
        ("numberOfGuests", 1.5, "wrong_type", "must be a whole number"),
        ("numberOfGuests", 1001, "too_large", "must be at most 1000"),
        ("totalPrice", "12", "wrong_type", "must be a JSON number, not a string: 480.50, without quotes"),
        ("totalPrice", [12], "wrong_type", "must be a finite JSON number"),
        ("totalPrice", 1e13, "too_large", "must be at most 1000000000000"),
        ("currency", "eu", "invalid_value", "must be an ISO 4217 currency code, such as EUR"),
        ("currency", "XXY", "unknown_currency", "must be an ISO 4217 currency code, such as EUR"),
        ("guest", 1, "wrong_type", "must be a JSON object"),
        ("guest.email", "ana", "invalid_value", "must be an e-mail address, such as guest@example.com"),
        ("guest.address.country", "Spain", "invalid_value",
         "must be one of the ISO 3166-1 alpha-2 codes that this service accepts, such as ES: see /docs#Address"),
        ("morChannel", "X", "invalid_value", "must be 'SELF' or 'PMS'"),
        ("notes", "a\0b", "invalid_value", "must not contain the character U+0000"),
        ("notes", 5, "wrong_type", "must be a string"),
        ("status", "maybe", "invalid_value", "must be CONFIRMED, in any case, or be left out"),
    ],
)  # fmt: skip
def test_a_fault_says_what_would_be_right(path: str, value: Any, code: str, detail: str) -> None:
    assert _faults("booking-engine", changed(BOOKING_ENGINE, path, value)) == [
        FieldFault("/" + path.replace(".", "/"), code, detail)
    ]


def test_rules_between_fields_are_named_together_with_faults_of_fields() -> None:
    body = BOOKING_ENGINE | {"departureDate": "2027-05-01", "currency": "XXY", "numberOfGuests": "2"}
    assert {fault.pointer for fault in _faults("booking-engine", body)} == {
        "/departureDate",
        "/currency",
        "/numberOfGuests",
    }


@pytest.mark.parametrize(
    ("place", "name", "sent"),
    [("", "propertyId", "property_id"), ("", "arrivalDate", "ArrivalDate"), ("guest.", "lastName", "lastNmae")],
)
def test_a_misspelt_required_field_is_named(place: str, name: str, sent: str) -> None:
    body = changed(BOOKING_ENGINE, place + name, ABSENT)
    body = changed(body, place + sent, "2027-06-01")
    pointer = f"/{place}{name}".replace(".", "/")
    assert _faults("booking-engine", body) == [
        FieldFault(pointer, "required", f"is required; you sent {sent}: did you mean {name}?")
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"}", b"{} {}", b"{'a': 1}", b'{"a": 1,}', b"nul", b"\xff", b'{"a": "\xff"}', b'{"a": "\\ud800"}',
        b'{"a": NaN}', b'{"a": -Infinity}', b"[" * 10_000, b'{"guest":' * 1_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_not_json_says_where(operation: Operation, body: bytes) -> None:
    with pytest.raises(MalformedJson, match=r"at line \d+ column \d+"):
        read_request(operation, body)


@pytest.mark.parametrize("body", [b"", b" \n"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_nothing_is_called_empty(operation: Operation, body: bytes) -> None:
    with pytest.raises(MalformedJson, match="it is empty"):
        read_request(operation, body)


def test_a_text_may_speak_of_what_is_not_a_number() -> None:
    assert isinstance(_read("general", GENERAL | {"notes": "NaN Infinity"}), GeneralRequest)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" * 400])
@pytest.mark.parametrize("path", ["totalPrice", "paymentProviderId", "numberOfGuests", "propertyId"])
def test_numbers_beyond_all_bounds_are_faults(path: str, number: str) -> None:
    body = json.dumps(GENERAL | {path: "@"}).replace('"@"', number).encode()
    faults = read_request("general", body)
    assert isinstance(faults, list)
    assert [fault.pointer for fault in faults] == [f"/{path}"]


@settings(max_examples=examples(300), deadline=None, database=None)
@given(document=DOCUMENTS, operation=st.sampled_from(OPERATIONS))
def test_any_document_is_a_request_or_faults(document: Any, operation: Operation) -> None:
    _assert_well_told(_read(operation, document))


@settings(max_examples=examples(500), deadline=None, database=None)
@given(path=st.sampled_from(PATHS), value=DOCUMENTS)
def test_any_value_in_any_field_is_taken_or_named(path: str, value: Any) -> None:
    result = _read("booking-engine", changed(BOOKING_ENGINE, path, value))
    _assert_well_told(result)
    if isinstance(result, list):
        place = "/" + path.replace(".", "/")
        assert all(fault.pointer.startswith((place, "/departureDate")) for fault in result)


def _assert_well_told(result: object) -> None:
    if not isinstance(result, list):
        return
    assert result
    assert len({fault.pointer for fault in result}) == len(result)
    for fault in result:
        assert POINTER.fullmatch(fault.pointer)
        assert re.fullmatch(r"[a-z_]+", fault.code)
        assert fault.detail.startswith(("must ", "is required"))


@pytest.mark.parametrize("secret", ["4111111111111111", "not-a-country-4111", "x" * 300])
def test_no_fault_quotes_the_value(secret: str) -> None:
    body: dict[str, Any] = dict.fromkeys(BOOKING_ENGINE, secret) | {"cardDetails": {"cardNumber": [secret], "cvv": 987}}
    body["guest"] = {name: [secret] for name in BOOKING_ENGINE["guest"]}
    assert secret not in str(_faults("booking-engine", body))
    assert "987" not in str(_faults("booking-engine", body))

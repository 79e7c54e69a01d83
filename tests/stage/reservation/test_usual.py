"""The usual form of a request, read and written by msgspec, is what pydantic reads and writes, or is left to it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from forwarder.ingress.message import canonical_form, published_form
from forwarder.reservation import usual
from forwarder.reservation.checks.faults import MalformedJson
from forwarder.reservation.checks.fields import (
    BookingEngineItem,
    ItemReading,
    UsualItem,
    checked,
    read_item,
    read_request,
    refuse_hidden,
)
from forwarder.reservation.duplicates import contents_of
from forwarder.reservation.request import Address, BookingEngineRequest, Guest, fields_given
from forwarder.reservation.usual import UsualAddress, UsualGuest, UsualRequest, read_usual, write_usual
from tests.support.profile import examples
from tests.support.stages.bodies import BOOKING_ENGINE, CARD, changed

TEXTS = st.text(max_size=300) | st.sampled_from(["", " ", "1001", 'a":b', "\0", "\x7f", "\u2028", "\ufeff", "é" * 256])
NUMBERS = (
    st.integers()
    | st.integers(0, 1001)
    | st.floats()
    | st.decimals(0, 10**13, places=2).map(float)
    | st.sampled_from([0.1 + 0.2, 3 * 33.10, -0.0, 2.0**53, 2.0**63, 2**63 - 1, 2**63, 1e12, 1e-5, 850.0, 12.345678])
)
VALUES = (
    TEXTS
    | NUMBERS
    | st.none()
    | st.booleans()
    | st.sampled_from(["2031-01-06", "EUR", "eur", "Confirmed", "SELF", "XK"])
)
PATHS = [
    *(field.encode_name for field in msgspec.structs.fields(UsualRequest) if field.name != "guest"),
    *(f"guest.{field.encode_name}" for field in msgspec.structs.fields(UsualGuest) if field.name != "address"),
    *(f"guest.address.{field.encode_name}" for field in msgspec.structs.fields(UsualAddress)),
]
CHANGES = st.lists(
    st.tuples(st.sampled_from(PATHS), VALUES)
    | st.tuples(st.just("guest.email"), st.emails() | st.text("ab.@-_ é\n+", max_size=12))
    | st.tuples(st.just("totalPrice"), NUMBERS),
    max_size=3,
)


@pytest.mark.parametrize(
    ("form", "model"), [(UsualRequest, BookingEngineRequest), (UsualGuest, Guest), (UsualAddress, Address)]
)
def test_it_has_the_fields_of_the_model_in_their_order(form: type[msgspec.Struct], model: type[BaseModel]) -> None:
    fields = msgspec.structs.fields(form)
    expected = {name: field for name, field in model.model_fields.items() if name != "card_details"}
    assert [field.encode_name for field in fields] == [field.alias for field in expected.values()]
    assert [field.required for field in fields] == [field.is_required() for field in expected.values()]


def test_what_nearly_all_send_has_it() -> None:
    read = read_request("booking-engine", json.dumps(BOOKING_ENGINE).encode())
    assert not isinstance(read, list)
    assert isinstance(read.request, UsualRequest)


@settings(max_examples=examples(1_500))
@given(CHANGES, st.booleans())
def test_what_has_it_is_read_and_written_as_by_pydantic(changes: list[tuple[str, Any]], ascii_alone: bool) -> None:
    body: Any = BOOKING_ENGINE
    for path, value in changes:
        body = changed(body, path, value)
    _same_as_pydantic(json.dumps(body, ensure_ascii=ascii_alone).encode("utf-8", "surrogatepass"))


@settings(max_examples=examples(1_000))
@given(st.integers(0, 900), st.binary(max_size=3), st.integers(0, 3))
def test_whatever_bytes_come_it_is_none_or_the_same(at: int, inserted: bytes, removed: int) -> None:
    body = json.dumps(BOOKING_ENGINE).encode()
    _same_as_pydantic(body[:at] + inserted + body[at + removed :])


def _same_as_pydantic(body: bytes) -> None:
    read = read_usual(body)
    if read is None:
        return
    plain = BookingEngineRequest.model_validate_json(body)
    assert not refuse_hidden(body, fields_given(plain))
    written = published_form(plain, None)
    assert write_usual(read) == written
    assert canonical_form(read, written) == canonical_form(plain, written)
    assert read.total_price == plain.total_price
    assert contents_of("booking-engine", read, b"{}", b"") == contents_of("booking-engine", plain, b"{}", b"")
    of_both = checked(read, (), None), checked(plain, (), None)
    assert [each if isinstance(each, list) else (each.rounded, each.request.total_price) for each in of_both[:1]] == [
        each if isinstance(each, list) else (each.rounded, each.request.total_price) for each in of_both[1:]
    ]
    assert usual.given(read) == json.loads(written)


@settings(max_examples=examples(500))
@given(CHANGES, st.none() | st.text(max_size=260) | st.text("ab ~", min_size=1), st.none() | NUMBERS, st.booleans())
def test_an_item_of_a_bulk_is_read_as_by_pydantic(
    changes: list[tuple[str, Any]], key: str | None, seconds: float | None, given_both: bool
) -> None:
    body: Any = BOOKING_ENGINE
    for path, value in changes:
        body = changed(body, path, value)
    terms = {"idempotencyKey": key, "deadlineSeconds": seconds}
    terms = terms if given_both else {name: value for name, value in terms.items() if value is not None}
    text = json.dumps({"operation": "booking-engine", "reservation": body, **terms}).encode()
    item = _read_item(text)
    if not isinstance(item, UsualItem):
        return
    plain = BookingEngineItem.model_validate_json(text)
    assert write_usual(item.reservation) == published_form(plain.reservation, None)
    assert (item.idempotency_key, item.deadline_seconds) == (plain.idempotency_key, plain.deadline_seconds)
    assert not refuse_hidden(text, len(plain.model_fields_set) + fields_given(plain.reservation))


def _read_item(text: bytes) -> object:
    try:
        read = read_item(text)
    except MalformedJson:
        return None
    return read.item if isinstance(read, ItemReading) else None


def test_a_usual_item_has_a_key_and_a_deadline_or_none() -> None:
    item = {"operation": "booking-engine", "reservation": BOOKING_ENGINE}
    for terms in ({}, {"idempotencyKey": "a"}, {"idempotencyKey": "a", "deadlineSeconds": 60}):
        assert isinstance(_read_item(json.dumps(item | terms).encode()), UsualItem)
    for beside in ({"idempotencyKey": None}, {"deadlineSeconds": 60.0}):
        assert isinstance(_read_item(json.dumps(item | beside).encode()), BookingEngineItem)
    assert _read_item(json.dumps(item)[:-1].encode() + b',"operation":"booking-engine"}') is None


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(BOOKING_ENGINE | {"cardDetails": CARD}).encode(),
        json.dumps(BOOKING_ENGINE | {"notes": None}).encode(),
        json.dumps(BOOKING_ENGINE | {"unknown": 1}).encode(),
        json.dumps(BOOKING_ENGINE | {"notes": "\0"}).encode(),
        json.dumps(BOOKING_ENGINE | {"totalPrice": 3 * 33.10}).encode(),
        json.dumps(BOOKING_ENGINE | {"propertyId": " "}).encode(),
        json.dumps(BOOKING_ENGINE)[:-1].encode() + b',"morChannel":"SELF"}',
        json.dumps(BOOKING_ENGINE)[:-1].encode() + b',"unknown":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b"",
        b"null",
        b"\xef\xbb\xbf" + json.dumps(BOOKING_ENGINE).encode(),
    ],
)
def test_whatever_else_comes_is_left_to_pydantic(body: bytes) -> None:
    assert read_usual(body) is None


def test_a_whole_price_is_written_as_one_however_it_came() -> None:
    read = read_usual(json.dumps(BOOKING_ENGINE | {"totalPrice": 850.0}).encode())
    assert read is not None
    assert b'"totalPrice":850,' in write_usual(read)

"""The usual form of a request, read and written by msgspec, is what pydantic reads and writes, or is left to it."""

import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    computed_field,
    model_validator,
)

from forwarder.ingress.message import canonical_form, published_form
from forwarder.reservation import fast
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
from forwarder.reservation.fast import Usual, UsualRequest, form_decoder, is_usual, max_names, read_usual, write_usual
from forwarder.reservation.request import Address, BookingEngineRequest, Guest, fields_given
from forwarder.reservation.submission import contents_of
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


def form_of(model: type[BaseModel]) -> type[Usual]:
    decoder = form_decoder(model, Usual)
    assert decoder is not None
    return decoder.type


PATHS = [
    f"{place}{field.encode_name}"
    for place, model in (("", BookingEngineRequest), ("guest.", Guest), ("guest.address.", Address))
    for field in msgspec.structs.fields(form_of(model))
    if field.name not in {"guest", "address"}
]
# fmt: off
ODD: list[Any] = [
    "", " ", "a", " a ", "a b", "A", "é", "\0", "a\0", "\n", "\x1c", "\x7f", "\x85", "\ufeff", "\u2028", "\ud800", "😀", "a'b",
    "١٢", "x" * 128, "x" * 129, "x" * 256, "é" * 256, "x" * 257, "x" * 10_000, "x" * 10_001, "1001",
    "2031-01-06", "2031-1-6", "2031-02-30", "20310106", "2031-01-06T00:00:00Z", "0000-01-01", "9999-12-31", " 2031-01-06",
    "EUR", "eur", "EUr", "EUR\n", "EU", "EURO", "ÉUR", "EU\u017f", "Confirmed", "CONFIRMED", "confirmed\n", "conf\u0131rmed",
    "SELF", "self", "ES", "es", "XK", "a@b.co", "A.b+c@d-e.f.gh", "a@b", "a@@b.co", ".a@b.co", "a@b.co\n", "é@b.co", "a@é.co",
    '"a"@b.co', "a\x7f@b.co", "a b@c.de", "a" * 248 + "@b.co", "a" * 249 + "@b.co", "a`{|}~@b.co",
    -1, 0, 1, 2, 365, 999, 1000, 1001, 10**12, 10**12 + 1, 2**53, 2**63 - 1, 2**63, -(2**63), 1 - 2**63, 10**30,
    -0.0, 0.0, 0.5, 1.0, 7.0, 99.99, 0.1 + 0.2, 3 * 33.10, 12.3456, 12.34567, 1e-7, 1e12, 1e12 + 0.5, 2.0**53, 2.0**63, 1e300,
    float("nan"), float("inf"), None, True, False, [], ["a"], {}, {"a": 1},
]
# fmt: on
"""Good, odd or bad values, depending on the field."""
CHANGES = st.lists(
    st.tuples(st.sampled_from(PATHS), VALUES)
    | st.tuples(st.just("guest.email"), st.emails() | st.text("ab.@-_ é\n+", max_size=12))
    | st.tuples(st.just("totalPrice"), NUMBERS),
    max_size=3,
)


@pytest.mark.parametrize("model", [BookingEngineRequest, Guest, Address])
def test_it_has_the_fields_of_the_model_in_their_order(model: type[BaseModel]) -> None:
    fields = msgspec.structs.fields(form_of(model))
    expected = {name: field for name, field in model.model_fields.items() if name != "card_details"}
    assert [field.encode_name for field in fields] == [field.alias for field in expected.values()]
    assert [field.required for field in fields] == [field.is_required() for field in expected.values()]


@pytest.mark.parametrize("path", PATHS)
def test_every_field_takes_what_pydantic_takes_or_leaves_it(path: str) -> None:
    bodies = [json.dumps(changed(BOOKING_ENGINE, path, value)).encode() for value in ODD]
    read = [_same_as_pydantic(body) for body in bodies]
    assert True in read
    assert False in read


class Later(BookingEngineRequest):
    """A later version of the request."""

    number_of_guests: Annotated[int, Field(strict=True, ge=1, le=3)]
    loyalty_id: Annotated[str, StringConstraints(max_length=5, pattern=r"^\w+$", to_upper=True)] | None = None
    remarks: Annotated[str, AfterValidator(str.strip)] | None = None


@pytest.mark.parametrize(
    ("fields", "is_in_form"),
    [
        ({}, True),
        ({"numberOfGuests": 3}, True),
        ({"numberOfGuests": 4}, False),
        ({"loyaltyId": "AB_12"}, True),
        ({"loyaltyId": "ab"}, False),
        ({"loyaltyId": "AB_123"}, False),
        ({"loyaltyId": "É"}, False),
        ({"remarks": "a"}, False),
    ],
)
def test_a_field_that_is_added_or_changed_is_so_in_the_form(fields: dict[str, Any], is_in_form: bool) -> None:
    decoder = form_decoder(Later, UsualRequest)
    body = json.dumps(BOOKING_ENGINE | {"numberOfGuests": 2} | fields).encode()
    read = fast.decoded(decoder, body)
    assert (read is not None and is_usual(read, max_names(body))) is is_in_form
    if read is not None and is_in_form:
        plain = Later.model_validate_json(body)
        assert (read.number_of_guests, read.loyalty_id, read.remarks) == (
            plain.number_of_guests,
            plain.loyalty_id,
            None,
        )
        assert write_usual(read) == plain.model_dump_json(by_alias=True, exclude_none=True).encode()


class _Validated(Address):
    @model_validator(mode="after")
    def _check(self) -> "_Validated":
        return self


class _Stripping(Address):
    model_config = ConfigDict(str_strip_whitespace=True)


class _Computing(Address):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def whole(self) -> str:
        return self.line1


class _Defaulting(Address):
    floor: str = "1"


class _Made(Address):
    floor: str | None = Field(default_factory=lambda: "1")


class _ByEitherName(Address):
    floor: str | None = Field(None, validation_alias=AliasChoices("floor", "level"))


class _Serializing(Address):
    floor: Annotated[str, PlainSerializer(str.lower)]


class _Multiple(Address):
    floor: Annotated[int, Field(multiple_of=2)]


class _Parent(Address):
    child: _Validated


@pytest.mark.parametrize(
    "model",
    [_Validated, _Stripping, _Computing, _Defaulting, _Made, _ByEitherName, _Serializing, _Multiple, _Parent],
)
def test_a_model_that_msgspec_may_read_otherwise_has_no_form(model: type[BaseModel]) -> None:
    assert form_decoder(model, Usual) is None
    assert fast.decoded(form_decoder(model, Usual), b"{}") is None


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


def _same_as_pydantic(body: bytes) -> bool:
    """Whether it has the usual form; then it is as pydantic reads it."""
    read = read_usual(body)
    if read is None:
        return False
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
    assert fast.given(read) == json.loads(written)
    return True


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

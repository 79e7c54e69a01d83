"""JSON texts are written by two libraries, the fast one where it can, and read by a third: nobody sees which."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticSerializationError, from_json, to_json

from forwarder.reservation.fast import json_text, read_json
from forwarder.reservation.outcome import Status
from tests.support.cases import for_each


@dataclass(frozen=True)
class _Pair:
    first: str
    second: datetime


class _Text(str):
    __slots__ = ()


_MOMENT = datetime(2027, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), parts),
    max_leaves=20,
)


def _by_pydantic(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null")


@given(_values)
def test_it_is_what_pydantic_writes(value: Any) -> None:
    assert json_text(value) == _by_pydantic(value)


def test_numbers_of_every_size_are_written_alike() -> None:
    random = Random(20270304)
    floats = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(100_000)]
    prices = [round(random.uniform(0, 10 ** random.randrange(1, 18)), 2) for _ in range(100_000)]
    edges = [0.0, -0.0, 5e-324, 1.7976931348623157e308, 1e15, 1e16, 1e17, 1e21, 1e22, 1e-4, 1e-5, 1e-6, 1e-7, math.nan]
    for value in (floats, prices, edges, [2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]):
        assert json_text(value) == _by_pydantic(value)


def test_characters_are_escaped_alike() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    assert json_text(every) == _by_pydantic(every)


@for_each(
    "value",
    [
        2**64,
        -(2**63) - 1,
        Decimal("120.50"),
        date(2027, 3, 4),
        _MOMENT,
        _MOMENT.replace(tzinfo=None),
        UUID(int=7),
        Status.CONFIRMED,
        _Pair("a", _MOMENT),
        _Text("text"),
        b"bytes",
        (1, "two"),
        {1: "one"},
        {Status.CONFIRMED: 1},
        {"a": [{"b": Decimal(1)}, math.inf]},
    ],
    ids=repr,
)
def test_what_one_of_them_refuses_or_writes_in_its_own_way(value: Any) -> None:
    for each in (value, [value], {"within": value}):
        assert json_text(each) == _by_pydantic(each)


def _nested(depth: int) -> Sequence[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_what_is_deep_is_written() -> None:
    assert from_json(json_text(_nested(150))) == _nested(150)


@pytest.mark.parametrize("value", [object(), "\ud800"], ids=["an object", "half a character"])
def test_what_cannot_be_written_is_an_error_of_pydantics(value: object) -> None:
    with pytest.raises(PydanticSerializationError):
        json_text(value)


@given(_values)
def test_it_is_read_as_pydantic_reads_it(value: Any) -> None:
    text = _by_pydantic(value)
    assert read_json(text) == from_json(text)
    assert repr(read_json(text)) == repr(from_json(text))


@for_each(
    "text",
    [
        *(
            b"12345678901234567890123456789",
            b"-9223372036854775809",
            b"18446744073709551616",
            b"-0",
            b"-0.0",
            b"1E5",
            b"1e-400",
            b"1e400",
            b"-1e999",
        ),
        *(
            b"0.1234567890123456789",
            b"123456789.12345678901234567e5",
            b"9007199254740993.0",
            b"2.2250738585072011e-308",
        ),
        *(
            b'{"a":1,"a":2}',
            b" [1 , 2]\n",
            b'"\\u0000"',
            b'"\\ud83d\\ude00"',
            b'"\xef\xbf\xbe"',
            b'"\\/"',
            b"{}",
            b"[]",
            b'""',
            b"null",
        ),
    ],
)
def test_odd_texts_are_read_alike(text: bytes) -> None:
    assert repr(read_json(text)) == repr(from_json(text))


@for_each(
    "text",
    [
        *(
            b"",
            b" ",
            b"NaN",
            b"Infinity",
            b"-Infinity",
            b"01",
            b"1.",
            b".5",
            b"+1",
            b"1 2",
            b"{",
            b'{"a":1,}',
            b"[1,]",
            b"{1:2}",
            b"'a'",
        ),
        *(
            b'"\\ud800"',
            b'"\\ude00\\ud83d"',
            b'"\xff"',
            b'"\xed\xa0\x80"',
            b'"\x01"',
            b'"\t"',
            b"\xef\xbb\xbf1",
            b'"\\x"',
            b"9" * 5000,
        ),
        b"[" * 150_000 + b"]" * 150_000,
    ],
)
def test_what_pydantic_refuses_is_refused(text: bytes) -> None:
    for read in (read_json, partial(from_json, allow_inf_nan=False)):
        with pytest.raises(ValueError):  # noqa: PT011 - of several libraries
            read(text)

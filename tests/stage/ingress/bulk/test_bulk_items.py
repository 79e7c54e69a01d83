"""How a bulk is told apart into its items: whatever is in them, and without reading them."""

import json
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwarder.ingress.bulk import begins_array, elements, lines
from forwarder.reservation.checks.faults import MalformedJson
from tests.support.cases import for_each

_TEXTS = st.text(st.sampled_from('ab"\\[]{},: \n\té🙂\x7f'), max_size=12)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)


def _elements(body: bytes) -> list[bytes]:
    return [text for text in elements(body, _as_it_is) if text is not None]


def _as_it_is(text: bytes) -> bytes:
    """One that takes what is not JSON too, unless it could be the beginning of more."""
    try:
        json.loads(text)
    except ValueError:
        if text.rstrip().endswith(b"}"):
            raise MalformedJson("not one document") from None
    return text


@given(st.lists(_VALUES, max_size=6), st.sampled_from([None, 1]), st.booleans(), st.sampled_from(["", " ", "\r\n\t"]))
def test_the_elements_of_any_array(values: list[Any], indent: int | None, ascii_only: bool, blank: str) -> None:
    body = (blank + json.dumps(values, indent=indent, ensure_ascii=ascii_only) + blank).encode()
    assert begins_array(body)
    assert [json.loads(text) for text in _elements(body)] == values


@given(st.lists(_VALUES, max_size=6), st.sampled_from(["\n", "\r\n", "\n \n"]))
def test_the_lines_of_any_values(values: list[Any], end: str) -> None:
    body = "".join(json.dumps(value, ensure_ascii=False) + end for value in values).encode()
    assert [json.loads(line) for _, line in lines(body)] == values


@for_each("body", [b"[", b"[1", b"[[]", b'["', b'["]', b'["\\"]', b"[]]", b"[] 1", b"[}", b"[1}"])
def test_what_does_not_end_with_its_array(body: bytes) -> None:
    with pytest.raises(MalformedJson):
        _elements(body)


@pytest.mark.parametrize(
    ("body", "found"), [(b"[1,]", [b"1", b""]), (b"[,]", [b"", b""]), (b"[1 2]", [b"1 2"]), (b"[\xff]", [b"\xff"])]
)
def test_whether_an_element_is_json_is_left_to_its_reader(body: bytes, found: list[bytes]) -> None:
    assert _elements(body) == found


@for_each(
    "value",
    [
        {"note": 'a"},{"b'},
        {"note": "},{"},
        {"many": [{"a": 1}, {"b": 2}]},
        [{"a": 1}, {"b": [{}, {}]}],
    ],
)
@for_each("separators", [(",", ":"), (" , ", " : ")])
def test_what_looks_like_the_end_of_an_element_is_none_where_it_goes_on(value: Any, separators: Any) -> None:
    values = [{"plain": 1}, value, {"plain": 2}, value, {"plain": 3}]
    assert [json.loads(text) for text in _elements(json.dumps(values, separators=separators).encode())] == values


def test_an_element_that_is_read_where_it_is_guessed_to_end_is_read_once() -> None:
    seen: list[bytes] = []

    def read(text: bytes) -> bytes:
        seen.append(text)
        return _as_it_is(text)

    body = b'[{"a":{"b":1}},{"a":{"b":2}} ,\n {"a":{"b":3}}]'
    assert list(elements(body, read)) == seen == [b'{"a":{"b":1}}', b'{"a":{"b":2}} ', b'\n {"a":{"b":3}}']


@pytest.mark.parametrize("part", [b"[],", b'"a",'])
def test_others_have_their_turn_in_the_midst_of_a_long_element(part: bytes) -> None:
    body = b"[[" + part * 200_000
    seen = 0
    with suppress(MalformedJson):  # it has no end
        for text in elements(body, _as_it_is):
            assert text is None
            seen += 1
    assert seen >= 1


@for_each("body", [b"", b" ", b"{}", b'"[]"', b"\xef\xbb\xbf[]", b"\x0b[]"])
def test_what_does_not_begin_as_an_array(body: bytes) -> None:
    assert not begins_array(body)


@pytest.mark.parametrize("endless", [b"[" * 8_000_000, b'[{"a":' + b"[],{}" * 1_600_000, b'["' + b"[" * 8_000_000])
def test_the_end_of_an_element_is_not_looked_for_in_all_of_a_large_body(endless: bytes) -> None:
    """Each bracket of eight million took its time."""
    turns = elements(endless, _as_it_is)
    with pytest.raises(MalformedJson):
        list(islice(turns, 1000))

"""Messages that nobody of ours wrote, as Hypothesis draws them: junk, and valid messages with something wrong in them."""

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from forwarder.topics.port import MAX_MESSAGE_BYTES, Message

LARGE: Final = MAX_MESSAGE_BYTES - 200
"""Bytes of a value with which a message just fits on the log, and a dead letter of it does not."""

_NO_NUMBERS: Final = (b"NaN", b"Infinity", b"-Infinity")

_TEXT = "".join(random.Random(7).choices(string.ascii_letters, k=9_000)).encode()
"""As good as not to be compressed: it fits in no index."""

_ODD_VALUES: Final[Sequence[bytes]] = (
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e400",
    b"2147483648",
    b"9223372036854775808",
    b"1" + b"0" * 400,
    b"1" + b"0" * 5_000,
    *_NO_NUMBERS,
    b'""',
    b'"\\u0000"',
    b'"\\ud800"',
    b'"\xff"',
    b'"9999-12-31T23:59:59Z"',
    b'"9999-12-31T23:59:59-12:00"',
    b'"0001-01-01T00:00:00Z"',
    b'"0001-01-01T00:00:00+12:00"',
    b'"9999-12-31"',
    b'"' + b"x" * 300 + b'"',
    b'"' + _TEXT + b'"',
    b'"' + b"z" * 400_000 + b'"',
    b"[]",
    b"{}",
    b'[{"a":[1,NaN]}]',
    b"[" * 150 + b"]" * 150,
    b"[" * 50_000,
)
"""JSON, or nearly."""

_ODD_CONTENTS: Final = (b"", b"\0", b"\xff\xfe", _TEXT, b"rsv_1." + b"9" * 5_000, b"x" * 300_000, b"rsv_x.1")
"""Of headers."""

_names = st.sampled_from(
    "ce_id ce_type ce_time ce_subject ce_specversion traceparent replay-of content-type dlt-event-id dlt-failure-class "
    "dlt-attempts dlt-original-partition dlt-original-offset h".split()
)
_contents = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(_ODD_CONTENTS),
)
_headers = st.lists(st.tuples(st.one_of(_names, st.sampled_from(["", "é" * 200])), _contents), max_size=4).map(tuple)
_keys = st.one_of(st.binary(max_size=12), st.sampled_from([b"", b"\xff", b"acc:\0", b"k" * 100_000]))

junk: Final = st.builds(
    Message,
    _keys,
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from(_ODD_VALUES),
        st.sampled_from([b"x" * LARGE, b'{"a":"' + b"\xc3\xa9" * (LARGE // 2 - 8) + b'"}']),
    ),
    _headers,
).filter(lambda message: message.size <= MAX_MESSAGE_BYTES)
"""Whatever bytes the log takes."""


@st.composite
def _mutated(draw: st.DrawFn, valid: Callable[[], Message]) -> Message:
    message = valid()
    value = message.value
    for _ in range(draw(st.integers(1, 2))):
        value = draw(st.sampled_from([_member, _cut, _doubled]))(draw, value)
    kept = draw(st.sampled_from([message.headers, message.headers, ()]))
    given_keys = draw(st.one_of(st.just(message.key), _keys))
    return replace(message, key=given_keys, value=value, headers=(*draw(_headers), *kept))


def _member(draw: st.DrawFn, value: bytes) -> bytes:
    """Another value for one of its members, or for one more."""
    names = [name for name in _paths(value) if b'"%s":' % name.encode() in value]
    if not names:
        return value
    name = draw(st.sampled_from(names)).encode()
    odd = draw(st.sampled_from(_ODD_VALUES))
    return _with(value, name, odd)


def _with(value: bytes, name: bytes, odd: bytes) -> bytes:
    before, _, after = value.partition(b'"%s":' % name)
    return before + b'"%s":%s,"was-%s":' % (name, odd, name) + after


def _doubled(draw: st.DrawFn, value: bytes) -> bytes:
    """A member twice."""
    return b'{"requestId":%s,' % draw(st.sampled_from(_ODD_VALUES)) + value[1:]


def _cut(draw: st.DrawFn, value: bytes) -> bytes:
    return value[: draw(st.integers(0, len(value)))]


def _paths(value: bytes) -> Sequence[str]:
    """The names in it, at whatever depth; none where it is JSON no more."""
    try:
        document = from_json(value)
    except ValueError:
        return ()
    found: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            found.extend(node)
            for each in node.values():
                visit(each)

    visit(document)
    return sorted({name for name in found if to_json(name) == b'"%s"' % name.encode()})


def every_odd_member(message: Message) -> list[Message]:
    """`message` with each odd value for each of its members, one at a time."""
    value = message.value
    at = [name.encode() for name in _paths(value)]
    return [replace(message, value=_with(value, name, odd)) for name in at for odd in _ODD_VALUES]


def every_odd_header(message: Message) -> list[Message]:
    """`message` with each odd value for each of its headers, one at a time."""
    return [
        replace(message, headers=tuple((name, odd if name == changed else value) for name, value in message.headers))
        for changed, _ in message.headers
        for odd in _ODD_CONTENTS
    ]


def foreign_to(*valid: Callable[[], Message]) -> st.SearchStrategy[Message]:
    """What may stand on a topic beside messages such as `valid` makes. Some of it may be read all the same."""
    mutated = st.one_of(*(_mutated(make) for make in valid))
    return st.one_of(mutated, mutated, junk).filter(lambda message: message.size <= MAX_MESSAGE_BYTES)

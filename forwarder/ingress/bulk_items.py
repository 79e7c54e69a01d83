"""Where one item of a bulk ends and the next begins: in a JSON array, or on the lines of NDJSON. Pure.

Items are told apart by brackets, quotes and line ends alone, without reading them: a body of many megabytes then costs no more
memory than itself, however it is built, and the reader of an item says whether it is JSON.
"""

import re
from collections.abc import Iterator
from typing import Final

from forwarder.reservation.validation import MalformedJson

_BLANK: Final = re.compile(rb"[ \t\r\n]*")
_LINE: Final = re.compile(rb"[^ \t\r\n][^\n]*")
# What stands before the next mark, strings included, and that. Nothing is tried twice: the time is that of one reading.
_BRACKET: Final = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"){0,128}+([\[\]{}])?', re.DOTALL)
_BRACKET_OR_COMMA: Final = re.compile(rb'(?:[^"\[\]{},]++|"(?:[^"\\]++|\\.)*+"){0,128}+([\[\]{},])?', re.DOTALL)
_STEPS_AT_ONCE: Final = 1024


def lines(body: bytes) -> Iterator[bytes]:
    """The lines, without those that are blank."""
    return (line[0] for line in _LINE.finditer(body))


def begins_array(body: bytes) -> bool:
    """Whether the first thing in `body` is an array."""
    return body.startswith(b"[", _end_of_blank(body, 0))


def elements(body: bytes) -> Iterator[bytes | None]:
    """The elements of the JSON array with which `body` begins. None after each stretch of a long one, for the caller to let others
    work. Raises `MalformedJson` where `body` does not end with it, which may be found after its last element."""
    at = begin = _end_of_blank(body, 0)
    depth = steps = commas = 0
    mark: bytes | None = None
    while depth or not steps:
        step = (_BRACKET_OR_COMMA if depth == 1 else _BRACKET).match(body, at)
        if step is None or step.end() == at:
            raise MalformedJson("the array has no end")
        at, mark = step.end(), step[1]
        steps += 1
        if mark in {b"[", b"{"}:
            depth += 1
            begin = at if depth == 1 else begin
        elif mark in {b"]", b"}"}:
            depth -= 1
        elif mark == b",":
            commas += 1
            yield body[begin : at - 1]
            begin = at
        if steps % _STEPS_AT_ONCE == 0:
            yield None
    last = body[begin : at - 1]
    if commas or _end_of_blank(last, 0) < len(last):
        yield last
    if mark != b"]" or _end_of_blank(body, at) < len(body):
        raise MalformedJson("there is more after the array")


def _end_of_blank(body: bytes, start: int) -> int:
    blank = _BLANK.match(body, start)
    return start if blank is None else blank.end()

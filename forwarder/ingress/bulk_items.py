"""Where one item of a bulk ends and the next begins: in a JSON array, or on the lines of NDJSON. Pure.

The reader of an item says whether it is JSON. Where an element of an array ends is guessed, which is right where its reader takes
it; else elements are told apart by brackets and quotes alone. A body of many megabytes costs no more memory than itself.
"""

import re
from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeVar

from forwarder.reservation.bulk import MAX_ITEM_BYTES
from forwarder.reservation.checks.fields import MalformedJson

_BLANK: Final = re.compile(rb"[ \t\r\n]*")
_LINE: Final = re.compile(rb"[^ \t\r\n][^\n]*")
# What stands before the next mark, strings included, and that. Nothing is tried twice: the time is that of one reading.
_BRACKET: Final = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"){0,128}+([\[\]{}])?', re.DOTALL)
_BRACKET_OR_COMMA: Final = re.compile(rb'(?:[^"\[\]{},]++|"(?:[^"\\]++|\\.)*+"){0,128}+([\[\]{},])?', re.DOTALL)
_STEPS_AT_ONCE: Final = 1024
_MAX_DEPTH: Final = 200
"""More deeply nested an item is not read either."""
_MAX_SCANNED: Final = 8 * MAX_ITEM_BYTES
"""For how many bytes the end of an element is looked for. One of `MAX_ITEM_BYTES` is refused alone, one of this spoils the bulk:
brackets alone take seconds to count."""
_LIKELY_LINES: Final = re.compile(rb"[ \t\r\n]*\{[^\n]*\}[ \t\r]*\n[ \t\r\n]*\{")
_LIKELY_END: Final = re.compile(rb"\}[ \t\r\n]*(,)[ \t\r\n]*\{")

R = TypeVar("R")


def lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines, each with its number from 1 on, without those that are blank."""
    number, counted = 1, 0
    for line in _LINE.finditer(body):
        number += body.count(b"\n", counted, line.start())
        counted = line.start()
        yield number, line[0]


def looks_like_lines(body: bytes) -> bool:
    """Whether `body` is no array, but seems to be several objects, each on a line of its own."""
    return _LIKELY_LINES.match(body) is not None


def begins_array(body: bytes) -> bool:
    """Whether the first thing in `body` is an array."""
    return body.startswith(b"[", _end_of_blank(body, 0))


def elements(body: bytes, read: Callable[[bytes], R]) -> Iterator[R | None]:
    """What `read` makes of each element of the JSON array with which `body` begins; it raises `MalformedJson` for what is not one
    JSON document. None after each stretch of a long element, for the caller to let others work. Raises `MalformedJson` where
    `body` does not end with the array, which may be found after its last element."""
    begin = yield from _guessed(body, _end_of_blank(body, 0) + 1, read)
    several = body[begin - 1 : begin] == b","
    end = yield from _end_of_element(body, begin)
    while body[end : end + 1] == b",":
        yield read(body[begin:end])
        begin, several = end + 1, True
        end = yield from _end_of_element(body, begin)
    if several or _end_of_blank(body, begin) < end:
        yield read(body[begin:end])
    if body[end : end + 1] != b"]" or _end_of_blank(body, end + 1) < len(body):
        raise MalformedJson("there is more after the array")


def _guessed(body: bytes, begin: int, read: Callable[[bytes], R]) -> Generator[R, None, int]:
    """The elements from `begin` on that end where the next object seems to begin, as most do; then, where the first other begins.
    What its reader takes for one object is all of it, whatever follows."""
    while (likely := _LIKELY_END.search(body, begin, begin + MAX_ITEM_BYTES)) is not None:
        try:
            one = read(body[begin : likely.start(1)])
        except MalformedJson:
            break
        yield one
        begin = likely.end(1)
    return begin


def _end_of_element(body: bytes, begin: int) -> Generator[None, None, int]:
    """Where the comma or the bracket stands that ends the element. None after each stretch. Raises `MalformedJson`."""
    at, depth, steps = begin, 1, 0
    while depth:
        step = (_BRACKET_OR_COMMA if depth == 1 else _BRACKET).match(body, at)
        if step is None or step.end() == at:
            raise MalformedJson("the array has no end")
        at, mark = step.end(), step[1]
        if depth > _MAX_DEPTH:
            raise MalformedJson("it is nested too deeply")
        if at - begin > _MAX_SCANNED:
            raise MalformedJson(f"it does not end within {_MAX_SCANNED} bytes")
        if mark in {b"[", b"{"}:
            depth += 1
        elif mark in {b"]", b"}"}:
            depth -= 1
        elif mark == b",":
            break
        steps += 1
        if steps % _STEPS_AT_ONCE == 0:
            yield None
    return at - 1


def _end_of_blank(body: bytes, start: int) -> int:
    blank = _BLANK.match(body, start)
    return start if blank is None else blank.end()

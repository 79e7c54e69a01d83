"""The items of a bulk: splits a JSON array or lines of NDJSON into items, and reads each. Pure.

The end of an array's element is guessed, and the guess is right if the reader accepts the text as JSON; otherwise brackets and
quotes are counted. A body of many megabytes needs no memory beyond its own size."""

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from pydantic_core import from_json

from forwarder.ingress.responses import ITEM_TOO_LARGE, malformed_json, validation_failed
from forwarder.reservation.checks.card_numbers import find, may_hold
from forwarder.reservation.checks.faults import MalformedJson
from forwarder.reservation.checks.fields import MAX_ITEM_BYTES, RESERVATION, ItemReading, read_item
from forwarder.reservation.checks.plausibility import Plausibility
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Problem, summary_of

_BLANK: Final = re.compile(rb"[ \t\r\n]*")
_LINE: Final = re.compile(rb"[^ \t\r\n][^\n]*")
# The text up to the next mark, strings included, and the mark. Possessive, without backtracking: the time is linear.
_BRACKET: Final = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"){0,128}+([\[\]{}])?', re.DOTALL)
_BRACKET_OR_COMMA: Final = re.compile(rb'(?:[^"\[\]{},]++|"(?:[^"\\]++|\\.)*+"){0,128}+([\[\]{},])?', re.DOTALL)
_STEPS_AT_ONCE: Final = 1024
_MAX_DEPTH: Final = 200
"""The reader of an item does not accept deeper nesting either."""
_MAX_SCANNED: Final = 8 * MAX_ITEM_BYTES
"""How far the end of an element is searched. A longer one refuses the whole bulk: counting its brackets would take seconds."""
_LIKELY_LINES: Final = re.compile(rb"[ \t\r\n]*\{[^\n]*\}[ \t\r]*\n[ \t\r\n]*\{")
_LIKELY_END: Final = re.compile(rb"\}[ \t\r\n]*(,)[ \t\r\n]*\{")
_MAX_KEY: Final = 255

R = TypeVar("R")


class Item(NamedTuple):
    """A read item: the reading or the problem, its size in bytes, its idempotency key, and its line."""

    read: ItemReading | Problem
    size: int
    key: str | None = None
    line: int | None = None


def lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number, from 1."""
    number, counted = 1, 0
    for line in _LINE.finditer(body):
        number += body.count(b"\n", counted, line.start())
        counted = line.start()
        yield number, line[0]


def looks_like_lines(body: bytes) -> bool:
    """Whether `body` looks like NDJSON: several objects, one per line."""
    return _LIKELY_LINES.match(body, 0, _MAX_SCANNED) is not None


def begins_array(body: bytes) -> bool:
    """Whether `body` begins with an array, after white space."""
    return body.startswith(b"[", _end_of_blank(body, 0))


def elements(body: bytes, read: Callable[[bytes], R]) -> Iterator[R | None]:
    """The result of `read` for each element of the JSON array in `body`; `read` raises `MalformedJson` unless its text is one JSON
    document. Yields None from time to time within a long element, so that the caller can yield to the event loop. Raises
    `MalformedJson` if `body` does not end with the array, possibly only after the last element."""
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


def read_element(text: bytes, check: Plausibility) -> Item:
    """Reads an element of an array. Raises `MalformedJson`: then the whole document is malformed."""
    size = len(text)
    if size > MAX_ITEM_BYTES:
        return Item(ITEM_TOO_LARGE, size)
    read = read_item(text, check)
    if not isinstance(read, list):
        return Item(read, size, _shown_key(read.item.idempotency_key))
    if all(fault.pointer.startswith(f"{RESERVATION}/") for fault in read):  # in the words of the single operation
        refused = validation_failed([replace(each, pointer=each.pointer.removeprefix(RESERVATION)) for each in read])
    else:
        refused = catalogue.INVALID_ITEM.problem(summary_of(read), faults=read)
    item = from_json(text)
    key = item.get("idempotencyKey") if isinstance(item, dict) else None  # which may be anything
    return Item(refused, size, _shown_key(key) if isinstance(key, str) and len(key) <= _MAX_KEY else None)


def read_line(line: tuple[int, bytes], check: Plausibility) -> Item:
    """Reads a line of NDJSON, which is a document of its own."""
    number, text = line
    try:
        return read_element(text, check)._replace(line=number)
    except MalformedJson as error:
        return Item(malformed_json(str(error), f"line {number}"), len(text), line=number)


def _guessed(body: bytes, begin: int, read: Callable[[bytes], R]) -> Generator[R, None, int]:
    """The elements from `begin` on whose guessed end is right: `read` accepts the text. Returns where another begins."""
    while (likely := _LIKELY_END.search(body, begin, begin + MAX_ITEM_BYTES)) is not None:
        try:
            one = read(body[begin : likely.start(1)])
        except MalformedJson:
            break
        yield one
        begin = likely.end(1)
    return begin


def _end_of_element(body: bytes, begin: int) -> Generator[None, None, int]:
    """The position of the comma or bracket that ends the element. Yields None from time to time. Raises `MalformedJson`."""
    at, depth, steps = begin, 1, 0
    while depth:
        step = (_BRACKET_OR_COMMA if depth == 1 else _BRACKET).match(body, at, begin + _MAX_SCANNED)
        if step is None or step.end() == at:
            raise MalformedJson(f"it has no end, or none within {_MAX_SCANNED} bytes")
        at, mark = step.end(), step[1]
        if depth > _MAX_DEPTH:
            raise MalformedJson("it is nested too deeply")
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


def _shown_key(key: str | None) -> str | None:
    """The key by which a result names its item. A card number is not sent back."""
    return None if key is not None and may_hold(key) and find(key) else key

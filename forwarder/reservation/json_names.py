"""Whether an object of a JSON document has a name twice: readers disagree on which value counts (RFC 8259, section 4). Pure."""

import json
from collections.abc import Sequence
from typing import Any, Final

_BLANK: Final = b" \t\r\n"


class _Twice(Exception):
    """An object has one name twice."""


def most_names(document: bytes) -> int:
    """No fewer than the names in all of its objects, told without reading it; just as many where no text in it looks like one."""
    return document.translate(None, _BLANK).count(b'":')


def names_are_unique(document: bytes) -> bool:
    """Of a document that was read already, and so is JSON of no great depth."""
    try:
        _DECODER.decode(document.decode())
    except _Twice:
        return False
    return True


def _refuse_twice(members: Sequence[tuple[str, Any]]) -> None:
    if len({name for name, _ in members}) < len(members):
        raise _Twice


# The values are of no interest: numbers of any length stay unread.
_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_twice, parse_int=bool, parse_float=bool)

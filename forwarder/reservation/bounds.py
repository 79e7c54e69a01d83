"""Bounds on outside data, so that it can always be stored and published. Pure.

A text that is too long ends in `… [cut]`. A list that is too long ends with an item that gives the number of the rest; the last
line of a breakdown has their sum, so that its total still adds up. Values that databases or JSON cannot hold are replaced: half
of a surrogate pair by U+FFFD; NaN, infinity and numbers of absurd size by null.
"""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from forwarder.reservation.json_text import json_text
from forwarder.reservation.request import json_number

MAX_RECORD_BYTES: Final = 64 * 1024
"""Maximum size of a record as JSON. Everything that a caller can send in one request fits."""

MAX_EVENT_BYTES: Final = 128 * 1024
"""Maximum size of a result event's data: its record and the rest."""

MAX_DETAIL: Final = 1000
"""Maximum characters of an attempt's detail, and of a problem's."""

MAX_REASON: Final = 100

_CUT: Final = "… [cut]"
_LARGEST: Final = 10**30
_DEEPEST: Final = 8
_STEPS: Final = ((200, 10_000), (100, 2_000), (50, 500), (20, 200), (5, 100), (1, 40))
"""Limits of list items and text characters, tried in turn until the whole fits."""

_HALF_OF_A_PAIR: Final = re.compile("[\ud800-\udfff]")


def cut_text(text: str, most: int) -> str:
    """`text`, at most `most` characters, without halves of surrogate pairs and U+0000."""
    if not text.isascii():
        text = _HALF_OF_A_PAIR.sub("\ufffd", text)
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def cut_list(items: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of `items`, the last of which summarizes the omitted ones."""
    if len(items) <= most:
        return list(items)
    kept, rest = items[: most - 1], items[most - 1 :]
    summary = f"… [{len(rest)} more]"
    if not all(isinstance(each, Mapping) for each in rest):
        return [*kept, summary]
    if all("total" in each for each in rest):
        return [*kept, {"name": summary, "type": "Cut", "total": _sum([each["total"] for each in rest])}]
    return [*kept, {"name": summary}]


def _sum(amounts: Sequence[Any]) -> float:
    numbers = [each for each in amounts if isinstance(each, int | float) and math.isfinite(each)]
    return json_number(sum((Decimal(str(each)) for each in numbers), Decimal(0)))


def bounded(value: Any, max_bytes: int) -> Any:
    """JSON-like `value`, cut to JSON of at most `max_bytes`; null if even its structure is larger."""
    for items, characters in _STEPS:
        cut = _cut(value, items, characters, _DEEPEST)
        if len(json_text(cut)) <= max_bytes:
            return cut
    return None


def _cut(value: Any, items: int, characters: int, depth: int) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) <= _LARGEST else None
        case float():
            return value if math.isfinite(value) and abs(value) <= _LARGEST else None
        case str():
            return cut_text(value, characters)
        case Mapping() if depth:
            some = [*value.items()][: items + 20]
            return {cut_text(str(name), 100): _cut(each, items, characters, depth - 1) for name, each in some}
        case list() | tuple() if depth:
            return [_cut(each, items, characters, depth - 1) for each in cut_list(value, items)]
        case _:
            return None


def fits(value: Mapping[str, Any], max_bytes: int) -> bool:
    """Whether `value` can be written as JSON of at most `max_bytes`."""
    try:
        return len(json_text(value)) <= max_bytes
    except (ValueError, TypeError, RecursionError):
        return False

"""JSON of the hot path: messages, receipts, records, rows, and requests to and responses from PMSs; and counting the names in a
text. Pure.

orjson writes in a third of pydantic's time; msgspec reads in half of it and, unlike orjson, keeps integers of any size. Values that
they refuse and pydantic accepts fall back to pydantic.
"""

from typing import Any, Final

import msgspec
import orjson
from pydantic_core import from_json, to_json

_OF_PYDANTIC: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
"""Types that both support, each in its own form."""

_READER: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()


def json_text(value: Any) -> bytes:
    """`value` as JSON, byte for byte as pydantic writes it. NaN and infinity, which JSON lacks, become null. Raises pydantic's
    errors for values that it cannot write."""
    try:
        return orjson.dumps(value, option=_OF_PYDANTIC)
    except orjson.JSONEncodeError:  # an integer of more than 64 bits, a Decimal, …
        return to_json(value, inf_nan_mode="null")


_BLANK: Final = b" \t\r\n"


def max_names(document: bytes) -> int:
    """An upper bound of the number of names in all objects, without parsing; exact if no text looks like a name."""
    return document.translate(None, _BLANK).count(b'":')


def read_json(text: bytes) -> Any:
    """The value of `text`, as pydantic reads it: a repeated name has its last value. Raises `ValueError` for invalid JSON, such
    as NaN or half of a surrogate pair, and for deep nesting."""
    try:
        return _READER.decode(text)
    except (ValueError, RecursionError):  # a number beyond the range of floats, …
        return from_json(text, allow_inf_nan=False)

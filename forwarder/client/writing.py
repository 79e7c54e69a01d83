"""What the client sends: bodies, and the headers that have a syntax of their own. Pure."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any


def json_bytes(body: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """`body` as JSON: days as `YYYY-MM-DD`, decimals as numbers. Raises `TypeError` for what has no form in JSON, and `ValueError`
    for NaN and the infinities."""
    return json.dumps(body, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> str | float | dict[Any, Any] | list[Any]:
    match value:
        case date():
            return value.isoformat()
        case Decimal():
            # What a float writes down is what was meant, up to 15 digits: more than any amount has.
            return int(value) if value == value.to_integral_value() else float(value)
        case Mapping():
            return dict(value)
        case Sequence():
            return list(value)
        case _:
            raise TypeError(f"a {type(value).__name__} has no form in JSON")


def quoted(key: str) -> str:
    """`key` as a string of structured fields (RFC 8941, section 3.3.3), which `Idempotency-Key` is."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def preference(wait: int | None) -> dict[str, str]:
    """The `Prefer` of one who waits so many seconds (RFC 7240); of one who says nothing, none."""
    if wait is None:
        return {}
    return {"Prefer": f"wait={wait}" if wait else "respond-async"}

"""Parses numbers, days and times from outside: a PMS, a webhook endpoint, a caller, an operator. Pure.

Every function takes any text or JSON value, and returns None if it cannot parse it. None of them raises, takes long, or returns
a value on which later arithmetic could fail: numbers are finite and bounded, times are in UTC.
"""

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

MAX_DIGITS: Final = 18
"""So many decimal digits fit a 64-bit integer."""

_WHOLE: Final = re.compile(r"[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_MAX_NUMBER_LENGTH: Final = 400
_MAX_DECIMAL_EXPONENT: Final = 400
_MAX_MOMENT_LENGTH: Final = 64


def whole_number(text: str, max_digits: int = MAX_DIGITS) -> int | None:
    """The number that `text` writes in the digits 0 to 9, without a sign, if it has at most `max_digits`."""
    return int(text) if len(text) <= max_digits and _WHOLE.fullmatch(text) else None


def number(text: str) -> float | None:
    """The decimal number that `text` writes without an exponent. Finite."""
    if len(text) > _MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def decimal(value: object) -> Decimal | None:
    """The number that a JSON number, or a text, writes; exact. Finite, and with an exponent that any form of it has room for."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        exact = value if isinstance(value, Decimal) else Decimal(str(value))
    except (ArithmeticError, ValueError):  # not a number; an integer with more digits than Python writes
        return None
    # "1e999999999" is a short text and a gigabyte of zeros.
    return exact if exact.is_finite() and abs(exact.adjusted()) <= _MAX_DECIMAL_EXPONENT else None


def day(text: object) -> date | None:
    """The day at the beginning of `text`, written YYYY-MM-DD; ignores the rest, such as a time."""
    try:
        return date.fromisoformat(text[:10]) if isinstance(text, str) else None
    except ValueError:
        return None


def moment(text: object) -> datetime | None:
    """The ISO 8601 time in `text`, in UTC; without a zone it counts as UTC."""
    if not isinstance(text, str) or len(text) > _MAX_MOMENT_LENGTH:
        return None
    try:
        written = datetime.fromisoformat(text)
        return written.replace(tzinfo=UTC) if written.tzinfo is None else written.astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: the first and the last day have moments that UTC lacks
        return None


def unix_moment(seconds: float) -> datetime | None:
    """The moment so many seconds after 1970 began."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def days_later(first: date, days: int) -> date:
    """`days` after `first`; no later than the last day there is, and no earlier than the first."""
    try:
        return first + timedelta(days=days)
    except OverflowError:
        return date.min if days < 0 else date.max

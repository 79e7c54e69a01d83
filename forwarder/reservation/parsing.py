"""Parses numbers, days and times from outside: a PMS, a webhook endpoint, a caller, an operator. Pure. Every function takes any
text or JSON value, and returns None if it cannot parse it. None of them raises, takes long, or returns a value on which later
arithmetic could fail: numbers are finite and bounded, times are in UTC."""

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_tz
from typing import Final

MAX_DIGITS: Final = 18  # the number of decimal digits that fit a 64-bit integer
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_MAX_NUMBER_LENGTH: Final = 400  # also the largest decimal exponent
_MAX_MOMENT_LENGTH: Final = 64


def whole_number(text: str, max_digits: int = MAX_DIGITS) -> int | None:
    """The number in `text`: digits 0 to 9 without a sign, at most `max_digits` of them."""
    return int(text) if len(text) <= max_digits and text.isascii() and text.isdigit() else None


def number(text: str) -> float | None:
    """The decimal number in `text`, without an exponent. Finite."""
    if len(text) > _MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def decimal(value: object) -> Decimal | None:
    """The exact number of a JSON number or a text. Finite, with a moderate exponent."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        exact = value if isinstance(value, Decimal) else Decimal(str(value))
    except (ArithmeticError, ValueError):  # not a number; an integer with more digits than Python prints
        return None
    # "1e999999999" is a short text and a gigabyte of zeros.
    return exact if exact.is_finite() and abs(exact.adjusted()) <= _MAX_NUMBER_LENGTH else None


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
    except (ValueError, OverflowError):  # OverflowError: some times on the first and last days have no UTC equivalent
        return None


def unix_moment(seconds: float) -> datetime | None:
    """The time for a Unix timestamp in seconds."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def days_later(first: date, days: int) -> date:
    """`first` plus `days`, limited to the range of dates."""
    try:
        return first + timedelta(days=days)
    except OverflowError:
        return date.min if days < 0 else date.max


def http_date(text: str) -> datetime | None:
    """The time in any of the three forms of RFC 9110, section 5.6.7, also with a numeric zone or none (UTC)."""
    parts = parsedate_tz(text) if len(text) <= _MAX_MOMENT_LENGTH else None
    if parts is None:
        return None
    year, month, day_of_month, hour, minute, second, *_, zone = parts
    try:
        # A leap second counts as the one before it.
        local = datetime(year, month, day_of_month, hour, minute, min(second, 59), tzinfo=UTC)
        return local - timedelta(seconds=zone or 0)
    except (ValueError, OverflowError):
        return None

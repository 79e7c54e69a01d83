"""Parsers of header fields: `Prefer` (RFC 7240); `Retry-After` and the charset of a `Content-Type` (RFC 9110). They do not raise on
any input. Pure."""

import codecs
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.request import parse_http_list

from forwarder.reservation.parsing import http_date, number

_SECONDS = re.compile(r'([0-9]{1,18})|"([0-9]{1,18})"')
_DIGITS: Final = re.compile(r"[0-9]+")

MAX_RETRY_AFTER: Final = 2.0**31
"""Seconds that a longer `Retry-After` counts as: 68 years, the bound that RFC 9111 sets for such numbers."""

_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([A-Za-z0-9._:+-]{1,40})', re.ASCII | re.IGNORECASE)
_TEXT: Final = re.compile(
    r"ascii|utf-(8|16|32)(-[bl]e)?|iso8859-\d+|cp125\d|gb\d+|gbk|big5|shift_jis|euc_(jp|kr)|koi8-[ru]"
)
"""The codecs that a body may be in: Python has others, which are no charsets."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long to wait for the outcome; 0 answers at once. `applied`: the value of `Preference-Applied`."""

    seconds: float
    applied: str = ""


def read_wait(prefer: str, default: Wait, max_seconds: int) -> Wait:
    """The wait that the `Prefer` header requests. Ignores unknown and malformed preferences."""
    asked: dict[str, str] = {}
    for preference in parse_http_list(prefer):
        name, _, value = preference.partition(";")[0].partition("=")
        asked.setdefault(name.strip().lower(), value.strip())
    seconds = _SECONDS.fullmatch(asked.get("wait", ""))
    respond_async = "respond-async" in asked
    if seconds is None:
        return Wait(0, "respond-async") if respond_async else default
    # Together they request the outcome if it comes within the wait, else a 202, which is what a wait always means here.
    wait = min(int(seconds[1] or seconds[2]), max_seconds)
    return Wait(wait, f"respond-async, wait={wait}" if respond_async else f"wait={wait}")


def read_retry_after(text: str, now: datetime) -> float | None:
    """The seconds in `Retry-After` (RFC 9110, section 10.2.3), a number or the time until a date, in any of the three forms of
    section 5.6.7, also with a numeric zone or none (UTC); at most `MAX_RETRY_AFTER`, negative for a past date, None if neither."""
    text = text.strip()
    seconds = float(text) if _DIGITS.fullmatch(text) else number(text)
    if seconds is None and (moment := http_date(text)) is not None:
        seconds = (moment - now).total_seconds()
    return None if seconds is None else min(seconds, MAX_RETRY_AFTER)


def charset_of(content_type: str) -> str | None:
    """The codec of the charset that a `Content-Type` names; None where it names none, or none of texts."""
    named = _CHARSET.search(content_type)
    try:
        codec = None if named is None else codecs.lookup(named[1]).name
    except (LookupError, ValueError):
        return None
    return codec if codec is not None and _TEXT.fullmatch(codec) else None

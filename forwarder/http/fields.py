"""Parsers of header fields: `Prefer` (RFC 7240); `Retry-After`, HTTP dates and the charset of a `Content-Type` (RFC 9110). They do
not raise on any input. Pure."""

import codecs
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.request import parse_http_list

from forwarder.reservation.parsing import number

_SECONDS = re.compile(r'([0-9]{1,18})|"([0-9]{1,18})"')
_DIGITS: Final = re.compile(r"[0-9]+")

MAX_RETRY_AFTER: Final = 2.0**31
"""Seconds that a longer `Retry-After` counts as: 68 years, the bound that RFC 9111 sets for such numbers."""

_MAX_DATE_LENGTH: Final = 64
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME: Final = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?"
_ZONE: Final = r"(?:\s+(?:GMT|UTC|UT|Z|(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-5][0-9])))?"
_DATES: Final = tuple(
    re.compile(form, re.ASCII | re.IGNORECASE)
    for form in (
        # Sun, 06 Nov 1994 08:49:37 GMT; Sunday, 06-Nov-94 08:49:37 GMT
        rf"(?:[a-z]+,\s*)?(?P<day>[0-9]{{1,2}})[\s-](?P<month>[a-z]{{3}})[\s-](?P<year>[0-9]{{4}}|[0-9]{{2}})\s+{_TIME}{_ZONE}",
        # Sun Nov  6 08:49:37 1994
        rf"[a-z]+\s+(?P<month>[a-z]{{3}})\s+(?P<day>[0-9]{{1,2}})\s+{_TIME}{_ZONE}\s+(?P<year>[0-9]{{4}})",
    )
)
_YEARS_AHEAD: Final = 50
"""A year of two digits that seems further ahead is a past one (RFC 9110, section 5.6.7)."""

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
    """The seconds in `Retry-After` (RFC 9110, section 10.2.3), a number or the time until a date; at most `MAX_RETRY_AFTER`,
    negative for a past date, None if it is neither."""
    text = text.strip()
    seconds = float(text) if _DIGITS.fullmatch(text) else number(text)
    if seconds is None and (moment := read_http_date(text, now)) is not None:
        seconds = (moment - now).total_seconds()
    return None if seconds is None else min(seconds, MAX_RETRY_AFTER)


def read_http_date(text: str, now: datetime) -> datetime | None:
    """The moment in any of the three forms of RFC 9110, section 5.6.7, also with a numeric zone or none (UTC); None for anything
    else. `now` determines the century of a two-digit year."""
    found = (
        next(filter(None, (form.fullmatch(text) for form in _DATES)), None) if len(text) <= _MAX_DATE_LENGTH else None
    )
    if found is None or found["month"].lower() not in _MONTHS:
        return None
    year = int(found["year"])
    if len(found["year"]) == 2:  # noqa: PLR2004 - digits
        year += now.year - now.year % 100
        year -= 100 * (year > now.year + _YEARS_AHEAD)
    try:
        moment = datetime(
            year,
            _MONTHS.index(found["month"].lower()) + 1,
            int(found["day"]),
            int(found["hour"]),
            int(found["minute"]),
            min(int(found["second"] or 0), 59),  # a leap second
            tzinfo=UTC,
        )
        if found["sign"]:
            offset = timedelta(hours=int(found["hours"]), minutes=int(found["minutes"]))
            moment += -offset if found["sign"] == "+" else offset
    except (ValueError, OverflowError):
        return None
    return moment


def charset_of(content_type: str) -> str | None:
    """The codec of the charset that a `Content-Type` names; None where it names none, or none of texts."""
    named = _CHARSET.search(content_type)
    try:
        codec = None if named is None else codecs.lookup(named[1]).name
    except (LookupError, ValueError):
        return None
    return codec if codec is not None and _TEXT.fullmatch(codec) else None

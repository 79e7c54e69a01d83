"""Header fields with a grammar of their own: what `Prefer` asks for (RFC 7240), and what `Retry-After` says, whoever sent it.
Pure."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.request import parse_http_list

_SECONDS = re.compile(r'([0-9]{1,18})|"([0-9]{1,18})"')


@dataclass(frozen=True, slots=True)
class Wait:
    """How long to wait for the outcome; 0 is to answer at once. `applied` is what is said of it in `Preference-Applied`."""

    seconds: float
    applied: str = ""


def read_wait(prefer: str, default: Wait, max_seconds: int) -> Wait:
    """What the `Prefer` header asks for. Preferences that we do not know, or that make no sense, change nothing."""
    asked: dict[str, str] = {}
    for preference in parse_http_list(prefer):
        name, _, value = preference.partition(";")[0].partition("=")
        asked.setdefault(name.strip().lower(), value.strip())
    seconds = _SECONDS.fullmatch(asked.get("wait", ""))
    respond_async = "respond-async" in asked
    if seconds is None:
        return Wait(0, "respond-async") if respond_async else default
    # Together they ask for the outcome if it comes within the wait, else for a 202: what a wait always means here.
    wait = min(int(seconds[1] or seconds[2]), max_seconds)
    return Wait(wait, f"respond-async, wait={wait}" if respond_async else f"wait={wait}")


def read_retry_after(text: str, now: datetime) -> float | None:
    """The seconds that `Retry-After` says (RFC 9110, section 10.2.3), as a number or until a date; negative where that is
    over, None for what is neither."""
    seconds = _number(text)
    return _seconds_until(text, now) if seconds is None else seconds


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds_until(http_date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(http_date)
    except ValueError:
        return None
    # "-0000" makes a date without a zone; HTTP dates are GMT.
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()

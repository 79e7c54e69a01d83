"""What a PMS's answer says of its pace: for how long the whole account should send nothing more. Pure.

    Retry-After                                    with 429 and 503: seconds, or an HTTP date
    RateLimit: "default";r=0;t=30                  draft-ietf-httpapi-ratelimit-headers; several at once may be given
    RateLimit-Remaining, RateLimit-Reset           an earlier draft of the same; seconds
    X-RateLimit-Remaining, X-RateLimit-Reset       no standard: seconds, or a moment as a unix time
    X-FiveMinCreditLimit-Remaining, -ResetsIn      Beds24, by its OpenAPI file; seconds
    X-Five-Min-Limit-Remaining, -Resets-In         Beds24, as it is served

What cannot be read, or makes no sense, is ignored: the PMS will say so again.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Final

import httpx

from forwarder.pms.http.failure import retry_after
from forwarder.pms.http.response import WholeResponse

LONGEST_SECONDS: Final = 3600.0
"""The longest pause; a longer one is kept in part, and then asked for anew."""

_ABSURD_SECONDS: Final = 24 * 60 * 60.0
"""No limit is as long as that: a reset so far off is in another unit, or by another clock."""
_FIRST_UNIX_TIME: Final = 1e9
_BUSY = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_STANDARD: Final = b"ratelimit"
_PAIRS: Final = (
    (b"ratelimit-remaining", b"ratelimit-reset"),
    (b"x-ratelimit-remaining", b"x-ratelimit-reset"),
    (b"x-fivemincreditlimit-remaining", b"x-fivemincreditlimit-resetsin"),
    (b"x-five-min-limit-remaining", b"x-five-min-limit-resets-in"),
)
_NAMES: Final = frozenset({_STANDARD, *(name for pair in _PAIRS for name in pair)})
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"')
_REMAINING = re.compile(rb";\s*r=(\d{1,15})\s*(?:;|$)")
_RESETS_IN = re.compile(rb";\s*t=(\d{1,15})\s*(?:;|$)")


def hold_off_asked(response: httpx.Response, now: datetime) -> float:
    """Seconds until the PMS takes requests again, at most `LONGEST_SECONDS`; 0.0 where it asks for no pause."""
    asked = (retry_after(response, now) or 0.0) if response.status_code in _BUSY else 0.0
    if said := _said(response):
        asked = max(asked, _of_standard(said), *(_of_pair(said, *pair, now) for pair in _PAIRS))
    return min(asked, LONGEST_SECONDS)


def _said(response: httpx.Response) -> dict[bytes, bytes]:
    said: dict[bytes, bytes] = {}
    headers = response.raw_headers if isinstance(response, WholeResponse) else response.headers.raw
    for name, value in headers:
        if (known := name.lower()) in _NAMES:
            said[known] = b",".join((said[known], value)) if known in said else value
    return said


def _of_standard(said: Mapping[bytes, bytes]) -> float:
    longest = 0.0
    for policy in _QUOTED.sub(b"", said.get(_STANDARD, b"")).split(b","):
        remaining, resets_in = _REMAINING.search(policy), _RESETS_IN.search(policy)
        if remaining is not None and resets_in is not None and int(remaining[1]) == 0:
            longest = max(longest, _sensible(float(resets_in[1])))
    return longest


def _of_pair(said: Mapping[bytes, bytes], remaining: bytes, reset: bytes, now: datetime) -> float:
    left, resets = _number(said.get(remaining)), _number(said.get(reset))
    if left is None or left >= 1.0 or resets is None:
        return 0.0
    return _sensible(resets if resets < _FIRST_UNIX_TIME else resets - now.timestamp())


def _sensible(seconds: float) -> float:
    return seconds if 0.0 < seconds <= _ABSURD_SECONDS else 0.0


def _number(text: bytes | None) -> float | None:
    try:
        number = float(text or b"")
    except ValueError:
        return None
    return number if math.isfinite(number) else None

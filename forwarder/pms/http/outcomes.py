"""What a request without a decided response means for the reservation, and for how long a PMS asks to be left alone. Pure.

    NotSent, NoResponse                            → `outcome_of`
    a response that the adapter did not decide     → `unexpected`, by its status
    any response                                   → `hold_off_asked`, by these headers:

    Retry-After                                    with 429 and 503: seconds, or an HTTP date
    RateLimit: "default";r=0;t=30                  draft-ietf-httpapi-ratelimit-headers; several at once may be given
    RateLimit-Remaining, RateLimit-Reset           an earlier draft of the same; seconds
    X-RateLimit-Remaining, X-RateLimit-Reset       no standard: seconds, or a moment as a unix time
    X-FiveMinCreditLimit-Remaining, -ResetsIn      Beds24, by its OpenAPI file; seconds
    X-Five-Min-Limit-Remaining, -Resets-In         Beds24, as it is served

A header that cannot be read, or makes no sense, is ignored: the PMS will say so again.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Final

from forwarder.http.fields import read_retry_after
from forwarder.pms.http.errors import NoResponse, NotSent
from forwarder.pms.http.response import Response
from forwarder.reservation.outcome import Deferred, InDoubt

MAX_WAIT_SECONDS = 7 * 24 * 60 * 60.0
"""What a PMS may ask us to wait at most; longer is taken for this."""

_MOVED = {
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
}
_NOT_LET_IN = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED}


MAX_HOLD_OFF_SECONDS: Final = 3600.0
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


def outcome_of(failure: NotSent | NoResponse) -> Deferred | InDoubt:
    """What a create that ended in `failure` came to."""
    match failure:
        case NotSent():
            return Deferred(failure.reason, failure.detail, failure.retry_after_seconds)
        case NoResponse():
            return InDoubt(failure.reason, failure.detail)


def harmless(outcome: Deferred | InDoubt) -> Deferred:
    """The same of a request that may be made any number of times: a doubt about it is no more than a delay."""
    return outcome if isinstance(outcome, Deferred) else Deferred(outcome.reason, outcome.detail)


def not_understood(response: Response) -> InDoubt:
    """An answer in the right status and the wrong form."""
    detail = f"The PMS answered HTTP {response.status_code} with a body that is not as agreed."
    return InDoubt("pms_answer_not_understood", detail)


def unexpected(response: Response, now: datetime) -> Deferred | InDoubt:
    """What an answer means that the adapter did not decide, by its status alone.

    Deferred, never Rejected, where an operator can repair the account (credential, address): nothing is lost meanwhile.
    """
    status = response.status_code
    match status:
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Deferred(
                "pms_throttled", "The PMS takes no more requests for now (HTTP 429).", retry_after(response, now)
            )
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return Deferred("pms_unavailable", "The PMS is not in service (HTTP 503).", retry_after(response, now))
        case HTTPStatus.REQUEST_TIMEOUT:
            return Deferred("pms_timed_out_reading", "The PMS did not get the whole request in time (HTTP 408).")
        case _ if status in _MOVED:
            detail = f"The PMS has moved (HTTP {status}); the account's base URL needs to be put right."
            return Deferred("pms_redirected", detail)
        case _ if status in _NOT_LET_IN:
            detail = f"The PMS does not accept the account's credential (HTTP {status})."
            return Deferred("pms_unauthorized", detail)
        case _ if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            detail = f"The PMS does not know such a request (HTTP {status}); is the account's base URL right?"
            return Deferred("pms_refused_request", detail)
        case _ if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return not_understood(response)
        case _:
            return InDoubt("pms_failed", f"The PMS failed while it had the request (HTTP {status}).")


def retry_after(response: Response, now: datetime) -> float | None:
    """Seconds that `Retry-After` asks for, from its number or from its date; None without a usable one."""
    for asked in response.header_values("retry-after")[:1]:  # of several, the first
        seconds = read_retry_after(asked, now)
        return None if seconds is None else bounded(seconds)
    return None


def bounded(seconds: float) -> float:
    """A wait that can be kept: not negative, at most `MAX_WAIT_SECONDS`."""
    return min(max(seconds, 0.0), MAX_WAIT_SECONDS)


def hold_off_asked(response: Response, now: datetime) -> float:
    """Seconds until the PMS takes requests again, at most `MAX_HOLD_OFF_SECONDS`; 0.0 where it asks for no pause."""
    asked = (retry_after(response, now) or 0.0) if response.status_code in _BUSY else 0.0
    if said := _said(response):
        asked = max(asked, _of_standard(said), *(_of_pair(said, *pair, now) for pair in _PAIRS))
    return min(asked, MAX_HOLD_OFF_SECONDS)


def _said(response: Response) -> dict[bytes, bytes]:
    said: dict[bytes, bytes] = {}
    for name, value in response.headers:
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

"""What is known of an exchange that did not bring what was asked for. The one place where that is decided.

Private to the seam; what leaves it are outcomes:

    NotSent     surely nothing reached the PMS              → Deferred
    NoResponse    bytes may have, and no whole answer came    → InDoubt
    an answer that the adapter did not decide by itself     → `unexpected`, by its status

Text from a driver or a PMS is shortened and rid of long runs of digits before it is passed on.
"""

from datetime import datetime
from http import HTTPStatus

import httpx

from forwarder.http.retry_after import read_retry_after
from forwarder.pms.redaction import shortened
from forwarder.reservation.outcome import Deferred, InDoubt

LONGEST_WAIT_SECONDS = 7 * 24 * 60 * 60.0
"""What a PMS may ask us to wait at most; longer is taken for this."""

_MOVED = {
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
}
_NOT_LET_IN = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED}


class NotSent(Exception):
    """Nothing reached the PMS. `passing`: another try within seconds may succeed. `retry_after_seconds`: as of `Deferred`."""

    def __init__(
        self, reason: str, detail: str, *, passing: bool = False, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
        self.passing = passing
        self.retry_after_seconds = retry_after_seconds


class NoResponse(Exception):
    """Something may have reached the PMS, and no whole answer came back."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


def failure_of(error: httpx.HTTPError | TimeoutError) -> NotSent | NoResponse:
    """What a transport's error tells. Whatever is not known to have come before the first byte is a `NoResponse`."""
    said = shortened(str(error))
    match error:
        case httpx.ConnectTimeout():
            return NotSent("pms_connect_timed_out", "The PMS did not take the connection in time.", passing=True)
        case httpx.PoolTimeout():
            return NotSent("no_connection_free", "All connections to PMSs were in use.", passing=True)
        case httpx.ConnectError():
            return NotSent("pms_unreachable", f"No connection to the PMS: {said}.", passing=True)
        case httpx.UnsupportedProtocol():
            return NotSent("pms_address_invalid", "The account's base URL is not an http or https address.")
        case httpx.TimeoutException() | TimeoutError():
            return NoResponse("pms_timed_out", "The PMS was sent the request and did not answer in time.")
        case httpx.DecodingError() | httpx.ProtocolError():
            return NoResponse("pms_broke_protocol", f"The PMS was sent the request; its answer is not HTTP: {said}.")
        case _:
            return NoResponse("pms_connection_lost", f"The connection was lost before the PMS had answered: {said}.")


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


def not_understood(response: httpx.Response) -> InDoubt:
    """An answer in the right status and the wrong form."""
    detail = f"The PMS answered HTTP {response.status_code} with a body that is not as agreed."
    return InDoubt("pms_answer_not_understood", detail)


def unexpected(response: httpx.Response, now: datetime) -> Deferred | InDoubt:
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


def retry_after(response: httpx.Response, now: datetime) -> float | None:
    """Seconds that `Retry-After` asks for, from its number or from its date; None without a usable one."""
    # Of several, the first: joined by httpx's commas, they would be none.
    for asked in response.headers.get_list("retry-after")[:1]:
        seconds = read_retry_after(asked, now)
        return None if seconds is None else bounded(seconds)
    return None


def bounded(seconds: float) -> float:
    """A wait that can be kept: not negative, at most `LONGEST_WAIT_SECONDS`."""
    return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)

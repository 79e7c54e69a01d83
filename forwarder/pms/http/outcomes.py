"""What a request means for the reservation where the adapter did not decide it. Pure.

NotSent, NoResponse                          → `outcome_of`
a response that the adapter did not decide   → `unexpected`, by its status
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from forwarder.pms.http.errors import NoResponse, NotSent
from forwarder.pms.http.response import Response, read_object, retry_after
from forwarder.pms.port import REFUSED_IN_WORDS
from forwarder.pms.responses.record import discreet
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Deferred, InDoubt

_MOVED = {
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
}
_NO = {HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}
_REASONS: Final = ("detail", "message", "error_description", "reason", "title", "error")
_NOT_HERE = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.GONE}
_NOT_LET_IN = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED}


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
    """A response in the right status and the wrong form."""
    detail = f"The PMS answered HTTP {response.status_code} with a body that is not as agreed."
    return InDoubt("pms_answer_not_understood", detail)


def unexpected(response: Response, now: datetime) -> Deferred | InDoubt:
    """What a response means that the adapter did not decide, by its status alone.

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
            return Deferred("pms_refused_request", _refused_without_words(status))
        case _ if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return not_understood(response)
        case _:
            return InDoubt("pms_failed", f"The PMS failed while it had the request (HTTP {status}).")


def refused_in_words(response: Response, booking: Booking) -> Deferred | None:
    """The PMS's no that no adapter was told to read: 400, 409 or 422 with a text where servers usually say why, or a 200 with
    `success: false` beside one. None for any other response."""
    body = read_object(response) or {}
    is_no = response.status_code in _NO or (response.status_code == HTTPStatus.OK and body.get("success") is False)
    said = next(_reasons(body), "") if is_no else ""
    if not said:
        return None
    detail = f"The PMS refused it (HTTP {response.status_code}). It says: {discreet(said, booking)}"
    return Deferred(REFUSED_IN_WORDS, detail)


def _reasons(body: Mapping[str, Any]) -> Iterator[str]:
    parts = [body, body.get("error"), *(errors[:1] if isinstance(errors := body.get("errors"), list) else [errors])]
    for part in parts:
        texts = [part.get(name) for name in _REASONS] if isinstance(part, dict) else [part]
        yield from (text.strip() for text in texts if isinstance(text, str) and text.strip())


def _refused_without_words(status: int) -> str:
    """Which may be the PMS's no to the reservation, or the answer of some other server. Nothing was made."""
    if status in _NOT_HERE:
        return f"The PMS has nothing at this address (HTTP {status}). Ask the operator whether the account's base URL is right."
    return (
        f"The PMS refused the request without saying why (HTTP {status}). Check propertyId, roomId, the dates, the guest and the "
        "price; if they are right, ask the operator to check the account."
    )


def gateway_failure(response: Response) -> InDoubt | None:
    """The doubt that a 503 without `Retry-After` leaves of a create that must not be sent twice: a gateway says so too when it
    loses the server behind it, which may have booked by then."""
    if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE and response.header("retry-after") is None:
        return InDoubt("pms_unavailable", "The PMS's gateway lost it while it had the request (HTTP 503).")
    return None

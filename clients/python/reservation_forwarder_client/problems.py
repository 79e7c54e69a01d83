"""What the service, or the way to it, can say instead of what was asked for. Pure but for reading an httpx answer.

ForwarderError
├── Refused            4xx: sending the same again brings the same answer
│   ├── NotAllowed     401, 403: the key is unknown, or is not for this
│   ├── NotFound       404
│   ├── Conflict       409: it contradicts how things stand, such as a transaction that another has
│   └── RateLimited    429, for longer than its retry policy allows
├── Unavailable        no answer, or 5xx, for longer than its retry policy allows
├── Unexpected         an answer that is none of the service's: another server's, or a contract other than v1
└── OutcomeTimeout     no outcome yet, after waiting (reservation_forwarder_client.submissions)
WebhookInvalid         reservation_forwarder_client.webhooks
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import httpx

from reservation_forwarder_client.bulk import Item
from reservation_forwarder_client.wire import Malformed, members_of, read

_NO_PROBLEM: Final = "about:blank"
_MAX_RETRY_AFTER: Final = 2.0**31
_MAX_DATE_LENGTH: Final = 64


@dataclass(frozen=True, slots=True)
class Fault:
    """One value at fault: `pointer` is its RFC 6901 JSON Pointer."""

    pointer: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Problem:
    """RFC 9457, with the service's own members. Branch on `code`, which is empty where something else than the service answered.
    Of `similar_submission`: `similar_to` has the earlier submission's request id, `differing` the JSON Pointers of the fields that
    differ."""

    type: str
    title: str
    status: int
    detail: str = ""
    code: str = ""
    request_id: str | None = None
    transaction_of: str | None = None
    scope: str | None = None
    instance: str | None = None
    errors: tuple[Fault, ...] = ()
    similar_to: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    reference: str | None = None

    def __str__(self) -> str:
        faults = "".join(f"; {fault.pointer}: {fault.detail}" for fault in self.errors)
        return f"{self.status} {self.code or self.title}: {self.detail}{faults}"


class ForwarderError(Exception):
    """The base of all errors. `http_request_id` names the request in the service's log; quote it when you ask about it.
    `idempotency_key`: the key of a failed submission. Submit it again under that key: the reservation may have been accepted. A
    second call with the same reservation object uses it by itself. `items`: the unanswered items of `submit_many`, with their keys;
    submit them again, followed by the rest, and none is booked twice."""

    http_request_id: str | None = None
    idempotency_key: str | None = None
    items: tuple[Item, ...] = ()


class Refused(ForwarderError):
    """The service said no. `problem` says why, with every value at fault."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    @property
    def code(self) -> str:
        return self.problem.code


class NotAllowed(Refused):
    """The API key is unknown or expired, or not for this: `problem.scope` is the scope that it lacks."""


class NotFound(Refused):
    """There is no such submission, reservation or account, as far as this key can see."""


class Conflict(Refused):
    """It contradicts how things stand: branch on `code`."""


class RateLimited(Refused):
    """The key's rate is used up. `retry_after`: the seconds until there is room again, where the service said."""

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after = retry_after


class Unavailable(ForwarderError):
    """It is not known whether the call took effect. Make the same call again later; a submission under its `idempotency_key`.
    `problem` is None where nothing answered."""

    def __init__(self, said: str, problem: Problem | None = None, retry_after: float | None = None) -> None:
        super().__init__(said)
        self.problem = problem
        self.retry_after = retry_after


class Unexpected(ForwarderError):
    """What answered does not speak this contract."""


def error_of(answer: httpx.Response, now: datetime) -> ForwarderError:
    """The error that `answer`, which is not of the 2xx, is."""
    error = _error_of(answer, now)
    error.http_request_id = answer.headers.get("request-id")
    return error


_REFUSALS: Final[Mapping[int, type[Refused]]] = {
    HTTPStatus.UNAUTHORIZED: NotAllowed,
    HTTPStatus.FORBIDDEN: NotAllowed,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
}


def _error_of(answer: httpx.Response, now: datetime) -> ForwarderError:
    if answer.status_code < HTTPStatus.BAD_REQUEST:
        return Unexpected(f"{answer.status_code} from {answer.request.url}: not an answer of the service")
    problem, again = problem_of(answer), retry_after(answer, now)
    if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        return RateLimited(problem, again)
    if answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return _REFUSALS.get(answer.status_code, Refused)(problem)
    return Unavailable(str(problem), problem, again)


def problem_of(answer: httpx.Response) -> Problem:
    """The problem that is answered; where it is none, such as a proxy's own page, one made of the status alone."""
    try:
        return read(Problem, members_of(answer.content))
    except Malformed:
        return Problem(_NO_PROBLEM, answer.reason_phrase or "Refused", answer.status_code)


def retry_after(answer: httpx.Response, now: datetime) -> float | None:
    """The seconds that `Retry-After` names, by number or by date (RFC 9110, section 10.2.3), at most 68 years; None without a valid
    one."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), _MAX_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text[:_MAX_DATE_LENGTH])
        seconds = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()
    except (
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
    ):  # what the standard library raises for dates that are none
        return None
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER)

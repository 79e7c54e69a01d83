"""Requests, and making them again while that is safe and may help: as steps, which a client that blocks and one that does not
both take. Pure.

Nearly every request of this client may be repeated: those that read change nothing, a submission carries a key, and cancelling
twice cancels once. Other requests are repeated only after 429, which says that nothing was done.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from itertools import count
from random import SystemRandom
from typing import Any, Final, Protocol, TypeVar

import httpx

from reservation_forwarder_client.problems import RateLimited, Unavailable, Unexpected, error_of
from reservation_forwarder_client.wire import Malformed, members_of

_PASSING: Final = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
_RANDOM: Final = SystemRandom()


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request. `wait_seconds`: for how long the service may take its time before it answers. `repeatable`: making it twice does
    what making it once does."""

    method: str
    path: str
    headers: Mapping[str, str]
    params: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    wait_seconds: float = 0.0
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    """Time to let pass."""

    seconds: float


_Result = TypeVar("_Result")
Step = ApiRequest | Pause
Reply = httpx.Response | Unavailable | None
"""What a step came to: an answer, or that there was none; None after a pause."""
Steps = Generator[Step, Reply, _Result]
"""The steps of an operation, each given the reply to the one before; then the result."""


class Time(Protocol):
    """Where the time is read."""

    def now(self) -> datetime:
        """The current time, aware."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a call is made again: no try begins later than `total_seconds` after the first. Between two tries lies what the
    service asks for in `Retry-After`, and a pause at random, up to `first_seconds` and doubling, at most `max_seconds`
    (exponential backoff with full jitter: callers who were refused together do not come back together)."""

    total_seconds: float = 60.0
    first_seconds: float = 0.2
    max_seconds: float = 10.0

    def pause(self, tries: int, chance: float, retry_after: float | None = None) -> float:
        """The seconds to wait after the `tries`-th try, counted from 1. `chance` is drawn from 0 to 1."""
        most = min(self.first_seconds * 2.0 ** min(tries - 1, 32), self.max_seconds)
        return (retry_after or 0.0) + chance * most


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the 2xx: its status, its members, and its headers by their names in small letters."""

    status: int
    members: Mapping[str, Any]
    headers: Mapping[str, str]

    @property
    def accepted(self) -> bool:
        """It was accepted, and its outcome is found elsewhere."""
        return self.status == HTTPStatus.ACCEPTED


class Exchange:
    """Makes requests, and makes them again as `retry_policy` allows."""

    def __init__(self, retry_policy: RetryPolicy, time: Time, chance: Callable[[], float] = _RANDOM.random) -> None:
        self._retry_policy = retry_policy
        self._time = time
        self._chance = chance

    def answer(self, request: ApiRequest) -> Steps[Answer]:
        """What answers `request`. Raises a `ForwarderError`."""
        begun = self._time.monotonic()
        for tries in count(1):
            result = _result((yield request), self._time.now())
            if isinstance(result, httpx.Response):
                return _answer(result)
            if not (request.repeatable or isinstance(result, RateLimited)):
                raise result
            pause = self._retry_policy.pause(tries, self._chance(), result.retry_after)
            if self._time.monotonic() - begun + pause > self._retry_policy.total_seconds:
                raise result
            yield Pause(pause)
        raise AssertionError


def _result(reply: Reply, now: datetime) -> httpx.Response | Unavailable | RateLimited:
    """The answer, of the 2xx, or the trouble that may pass. Raises what will not."""
    if not isinstance(reply, httpx.Response):
        assert reply is not None  # noqa: S101 - that follows a pause
        return reply
    if reply.is_success:
        return reply
    trouble = error_of(reply, now)
    if isinstance(trouble, Unavailable | RateLimited) and _passes(reply, trouble):
        return trouble
    raise trouble


def _passes(reply: httpx.Response, trouble: Unavailable | RateLimited) -> bool:
    """Whether the trouble is temporary. A problem of a submission is its outcome, and never temporary."""
    return reply.status_code in _PASSING and (trouble.problem is None or trouble.problem.request_id is None)


def _answer(reply: httpx.Response) -> Answer:
    try:
        return Answer(reply.status_code, members_of(reply.content), reply.headers)
    except Malformed as error:
        unexpected = Unexpected(f"{reply.status_code} from {reply.request.url}: {error}")
        unexpected.http_request_id = reply.headers.get("request-id")
        raise unexpected from error

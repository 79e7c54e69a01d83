"""Requester over HTTP, made again while that is safe and may help. Touches the network, by httpx.

Every call of this client may be repeated: those that read change nothing, a submission carries a key, and cancelling twice cancels
once.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import count
from random import SystemRandom
from typing import Any, Final, Protocol

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
_NO_ANSWER: Final = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)


class Clock(Protocol):
    """Where the client takes time from."""

    def now(self) -> datetime:
        """The current time, aware."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


class MachineClock:
    """The machine's."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


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
class ApiRequest:
    """One call. `wait_seconds`: for how long the service may take its time before it answers."""

    method: str
    path: str
    headers: Mapping[str, str]
    params: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    wait_seconds: float = 0.0


class Requester:
    """Makes requests, and makes them again as `retry_policy` allows. Any number may be under way at once."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        timeout_seconds: float,
        retry_policy: RetryPolicy,
        clock: Clock,
        chance: Callable[[], float] = _RANDOM.random,
    ) -> None:
        self._http = http
        self._timeout_seconds = timeout_seconds
        self._retry_policy = retry_policy
        self._clock = clock
        self._chance = chance

    async def members(self, call: ApiRequest) -> tuple[int, Mapping[str, Any]]:
        """The status, of the 2xx, and the members that answer `call`. Raises a `ForwarderError`."""
        answer = await self._send(call)
        try:
            return answer.status_code, members_of(answer.content)
        except Malformed as error:
            raise Unexpected(f"{answer.status_code} from {answer.request.url}: {error}") from error

    async def _send(self, call: ApiRequest) -> httpx.Response:
        begun = self._clock.monotonic()
        for tries in count(1):
            result = await self._try(call)
            if isinstance(result, httpx.Response):
                return result
            pause = self._retry_policy.pause(tries, self._chance(), result.retry_after)
            if self._clock.monotonic() - begun + pause > self._retry_policy.total_seconds:
                raise result
            await self._clock.sleep(pause)
        raise AssertionError

    async def _try(self, call: ApiRequest) -> httpx.Response | Unavailable | RateLimited:
        """The answer, of the 2xx, or the trouble that may pass. Raises what will not."""
        try:
            answer = await self._http.request(
                call.method,
                call.path,
                params=dict(call.params),
                headers=dict(call.headers),
                content=call.content,
                timeout=httpx.Timeout(self._timeout_seconds, read=self._timeout_seconds + call.wait_seconds),
            )
        except _NO_ANSWER as error:
            return Unavailable(f"no answer to {call.method} {call.path}: {type(error).__name__}: {error}")
        if answer.is_success:
            return answer
        trouble = error_of(answer, self._clock.now())
        if isinstance(trouble, Unavailable | RateLimited) and _passes(answer, trouble):
            return trouble
        raise trouble


def _passes(answer: httpx.Response, trouble: Unavailable | RateLimited) -> bool:
    """Whether it is trouble of the moment. A problem of a submission is its outcome, whatever its status."""
    return answer.status_code in _PASSING and (trouble.problem is None or trouble.problem.request_id is None)

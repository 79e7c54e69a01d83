"""Takes the steps of operations over HTTP, blocking or not. Touches the network, by httpx."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar

import httpx

from reservation_forwarder_client.problems import Unavailable
from reservation_forwarder_client.requests import ApiRequest, Pause, Reply, Steps, Time

# Those who wait for an outcome hold a connection each: a bound would make calls wait for one another.
CONNECTIONS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=100)
_NO_ANSWER: Final = (
    httpx.TimeoutException,
    httpx.NetworkError,
    httpx.RemoteProtocolError,
    httpx.ProxyError,
    httpx.DecodingError,
)

_Result = TypeVar("_Result")


class Clock(Time, Protocol):
    """Time that a thread waits for."""

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


class AsyncClock(Time, Protocol):
    """Time that a task waits for."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


class _MachineTime:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class MachineClock(_MachineTime):
    """The machine's, for threads."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class AsyncMachineClock(_MachineTime):
    """The machine's, for tasks."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Connection:
    """Any number of threads may use it at once."""

    def __init__(self, http: httpx.Client, timeout_seconds: float, clock: Clock) -> None:
        self.http = http
        self._timeout_seconds = timeout_seconds
        self._clock = clock

    def run(self, steps: Steps[_Result]) -> _Result:
        """Take all steps, and return their result. Raises what they raise."""
        reply: Reply = None
        with closing(steps):  # at once, whatever ends the call: its error keeps the frames
            while True:
                try:
                    step = steps.send(reply)
                except StopIteration as done:
                    result: _Result = done.value
                    return result
                if isinstance(step, Pause):
                    self._clock.sleep(step.seconds)
                    reply = None
                else:
                    reply = self._reply(step)

    def _reply(self, request: ApiRequest) -> Reply:
        until = self._clock.monotonic() + self._timeout_seconds + request.wait_seconds
        try:
            with closing(self.http.send(_built(self.http, request, self._timeout_seconds), stream=True)) as answer:
                answer.stream = _Timed(answer.stream, until, self._clock)
                answer.read()
                return answer
        except _NO_ANSWER as error:
            return _unanswered(request, error)


class _Timed(httpx.SyncByteStream):
    """A body that ends `until` then: httpx limits the time between two reads only."""

    def __init__(self, stream: object, until: float, clock: Clock) -> None:
        assert isinstance(stream, httpx.SyncByteStream)  # noqa: S101 - of a client that blocks
        self._stream = stream
        self._until = until
        self._clock = clock

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if self._clock.monotonic() > self._until:
                raise httpx.ReadTimeout("the answer is not complete in time")
            yield chunk

    def close(self) -> None:
        self._stream.close()


class AsyncConnection:
    """Any number of tasks may use it at once."""

    def __init__(self, http: httpx.AsyncClient, timeout_seconds: float, clock: AsyncClock) -> None:
        self.http = http
        self._timeout_seconds = timeout_seconds
        self._clock = clock

    async def run(self, steps: Steps[_Result]) -> _Result:
        """As `Connection.run`."""
        reply: Reply = None
        with closing(steps):  # at once, whatever ends the call: its error keeps the frames
            while True:
                try:
                    step = steps.send(reply)
                except StopIteration as done:
                    result: _Result = done.value
                    return result
                if isinstance(step, Pause):
                    await self._clock.sleep(step.seconds)
                    reply = None
                else:
                    reply = await self._reply(step)

    async def _reply(self, request: ApiRequest) -> Reply:
        try:
            async with asyncio.timeout(self._timeout_seconds + request.wait_seconds):
                return await self.http.send(_built(self.http, request, self._timeout_seconds))
        except (*_NO_ANSWER, TimeoutError) as error:
            return _unanswered(request, error)


def default_headers(token: str, workspace: str) -> dict[str, str]:
    """What goes with every request of a client."""
    return {"Authorization": f"Bearer {token}", "workspaceId": workspace, "User-Agent": "forwarder-client"}


def _built(http: httpx.Client | httpx.AsyncClient, request: ApiRequest, timeout_seconds: float) -> httpx.Request:
    return http.build_request(
        request.method,
        request.path,
        params=dict(request.params),
        headers=dict(request.headers),
        content=request.content,
        timeout=httpx.Timeout(timeout_seconds, read=timeout_seconds + request.wait_seconds),
    )


def _unanswered(request: ApiRequest, error: Exception) -> Unavailable:
    return Unavailable(f"no answer to {request.method} {request.path}: {type(error).__name__}: {error}")

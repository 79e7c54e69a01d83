"""The requests of one push: within the push time-out, at the account's pace, and tried again only where surely nothing was sent.

An adapter builds a `Request`, gives it to the `Send` of its push, and reads a `Response` whose body is in memory.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from forwarder.pms.http.connection import Held
from forwarder.pms.http.errors import NoResponse, NotSent
from forwarder.pms.http.request import Request
from forwarder.pms.http.response import MAX_RESPONSE_BYTES, Response, hold_off_asked
from forwarder.pms.port import UNPACED, Pace
from forwarder.process.clock import Clock

Send = Callable[[Request], Awaitable[Response]]
"""Sends a request of one push. Raises `NotSent` or `NoResponse`, nothing else; being cancelled leaves it in doubt."""


class Transport(Protocol):
    """What carries requests to PMSs: `ConnectionPool`, or a test's own."""

    async def exchange(self, request: Request, deadline: float, held: Held | None = None) -> Response:
        """The response, with its body in memory, by `deadline` of the loop's clock or a moment after it. `held` is asked in the
        step that sends; where it says no, nothing is sent. Raises `NotSent` only where it is certain that nothing was sent, else
        `NoResponse`, and nothing besides."""
        ...

    async def aclose(self) -> None:
        """Leave nothing open."""
        ...


@dataclass(frozen=True, slots=True)
class PushPolicy:
    """`push_seconds`: how long one push may take, all its requests and tries together. `max_tries`: how often a request is
    tried of which surely nothing was sent; the pauses between, in seconds, are random, at most `max_pause_seconds` each."""

    push_seconds: float = 30.0
    max_tries: int = 3
    max_pause_seconds: float = 1.0


def always() -> bool:
    """Held for as long as anybody asks."""
    return True


class PmsClient:
    """Every push's way out, over one transport. Belongs to the event loop of its first push."""

    def __init__(self, transport: Transport, clock: Clock, policy: PushPolicy) -> None:
        self._transport = transport
        self._clock = clock
        self._policy = policy
        self._loop: asyncio.AbstractEventLoop | None = None

    def push(self, pace: Pace = UNPACED, held: Callable[[], bool] = always) -> Send:
        """A way to send the requests of one push: its time runs from now. Call it in the running loop. `pace` hears of every
        request, before it is sent, and of every response that asks for a pause. A request that comes when it is not `held` any
        more is `NotSent`."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # once: it is a system call
        return _Push(self._transport, self._clock, self._policy, self._loop, pace, held).send


class _Push:
    __slots__ = ("_clock", "_deadline", "_held", "_loop", "_pace", "_policy", "_transport")

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        policy: PushPolicy,
        loop: asyncio.AbstractEventLoop,
        pace: Pace,
        held: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._policy = policy
        self._loop = loop
        self._deadline = loop.time() + policy.push_seconds
        self._pace = pace
        self._held = held

    async def send(self, request: Request) -> Response:
        # tenacity comes in only when a try has failed: entering it costs about as much CPU as an exchange.
        try:
            return await self._exchange(request)
        except NotSent as error:
            if not error.passing:
                raise
            first = error
        return await self._send_again(request, first)

    async def _send_again(self, request: Request, first: NotSent) -> Response:
        tries = AsyncRetrying(
            sleep=self._clock.sleep,
            stop=self._enough,
            wait=wait_random_exponential(
                multiplier=self._policy.max_pause_seconds / 2, max=self._policy.max_pause_seconds
            ),
            retry=retry_if_exception(lambda error: isinstance(error, NotSent) and error.passing),
            reraise=True,
        )
        async for attempt in tries:
            with attempt:
                if attempt.retry_state.attempt_number == 1:
                    raise first  # that try is behind us: it counts, and has its pause
                return await self._exchange(request)
        raise first

    def _enough(self, state: RetryCallState) -> bool:
        too_late = self._loop.time() + state.upcoming_sleep >= self._deadline
        return too_late or state.attempt_number >= self._policy.max_tries

    async def _exchange(self, request: Request) -> Response:
        if self._loop.time() >= self._deadline:
            raise NotSent("push_timed_out", "The time for one push had run out before this was sent.")
        self._pace.requested()
        response = await self._transport.exchange(request, self._deadline, self._held)
        seconds = hold_off_asked(response, self._clock.now())
        if seconds > 0.0:
            self._pace.hold_off(seconds)
        if len(response.content) > MAX_RESPONSE_BYTES:
            raise NoResponse("pms_answer_too_large", f"The PMS answered with more than {MAX_RESPONSE_BYTES} bytes.")
        return response

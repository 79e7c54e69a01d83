"""One HTTP exchange with a PMS: sent whole, answered whole, within the push time-out, or else `NotSent` or `NoResponse`.

Private to the seam. An adapter builds an `httpx.Request`, gives it to the `Send` of its push, and reads an `httpx.Response`
whose body is in memory. What sends it is any `httpx.AsyncBaseTransport`.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from forwarder.pms.http.connection import NotHeld
from forwarder.pms.http.exchange import PunctualTransport, punctual
from forwarder.pms.http.failure import NoResponse, NotSent, failure_of
from forwarder.pms.http.pace import hold_off_asked
from forwarder.pms.http.request import Destination, PlainRequest, destination_of
from forwarder.pms.port import LEASE_LOST, UNPACED, Pace
from forwarder.process.clock import Clock

Send = Callable[[httpx.Request], Awaitable[httpx.Response]]
"""Sends a request of one push. Raises `NotSent` or `NoResponse`, nothing else; being cancelled leaves it in doubt."""

Headers = Sequence[tuple[bytes, bytes]]

MAX_RESPONSE_BYTES: Final = 1024 * 1024
_VISIBLE_ASCII = re.compile(rb"[\x21-\x7e]+")
_DOT_SEGMENTS = {"", ".", ".."}


@dataclass(frozen=True, slots=True)
class PushPolicy:
    """`push_seconds`: how long one push may take, all its exchanges and tries together. `max_tries`: how often a request is
    offered of which surely nothing was sent; the pauses between, in seconds, are random, at most `max_pause_seconds` each."""

    push_seconds: float = 30.0
    max_tries: int = 3
    max_pause_seconds: float = 1.0


def always() -> bool:
    """Held for as long as anybody asks."""
    return True


class PmsClient:
    """Every push's way out, over one transport. Belongs to the event loop of its first push."""

    def __init__(self, transport: httpx.AsyncBaseTransport, clock: Clock, policy: PushPolicy) -> None:
        self._transport = punctual(transport)
        self._clock = clock
        self._policy = policy
        self._loop: asyncio.AbstractEventLoop | None = None

    def push(self, pace: Pace = UNPACED, held: Callable[[], bool] = always) -> Send:
        """A way to send the requests of one push: its time runs from now. Call it in the running loop. `pace` hears of every
        request, before it is sent, and of every answer that asks for a pause. A request that comes when it is not `held` any more
        is `NotSent`."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # once: it is a system call
        return _Push(self._transport, self._clock, self._policy, self._loop, pace, held).send


class _Push:
    __slots__ = ("_clock", "_deadline", "_held", "_loop", "_pace", "_policy", "_transport")

    def __init__(
        self,
        transport: PunctualTransport,
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

    async def send(self, request: httpx.Request) -> httpx.Response:
        # tenacity comes in only when a try has failed: entering it costs about as much CPU as an exchange.
        try:
            return self._judged(await self._exchange(request))
        except (httpx.HTTPError, TimeoutError) as error:
            first = _failure_of(error)
            if not (isinstance(first, NotSent) and first.passing):
                raise first from error
        return await self._send_again(request, first)

    async def _send_again(self, request: httpx.Request, first: NotSent) -> httpx.Response:
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
                return await self._exchange_again(request)
        raise first

    def _enough(self, state: RetryCallState) -> bool:
        too_late = self._loop.time() + state.upcoming_sleep >= self._deadline
        return too_late or state.attempt_number >= self._policy.max_tries

    async def _exchange_again(self, request: httpx.Request) -> httpx.Response:
        try:
            return self._judged(await self._exchange(request))
        except (httpx.HTTPError, TimeoutError) as error:
            raise _failure_of(error) from error

    def _exchange(self, request: httpx.Request) -> Awaitable[httpx.Response]:
        if self._loop.time() >= self._deadline:
            raise NotSent("push_timed_out", "The time for one push had run out before this was sent.")
        self._pace.requested()
        return self._transport.exchange(request, self._deadline, self._held)

    def _judged(self, response: httpx.Response) -> httpx.Response:
        seconds = hold_off_asked(response, self._clock.now())
        if seconds > 0.0:
            self._pace.hold_off(seconds)
        if len(response.content) > MAX_RESPONSE_BYTES:
            raise NoResponse("pms_answer_too_large", f"The PMS answered with more than {MAX_RESPONSE_BYTES} bytes.")
        return response


def _failure_of(error: httpx.HTTPError | TimeoutError) -> NotSent | NoResponse:
    if isinstance(error, NotHeld):
        return NotSent(LEASE_LOST, "It was held no longer when this was to be sent.")
    return failure_of(error)


def request_to(method: str, url: str, headers: Headers, content: bytes = b"", *, query: str = "") -> httpx.Request:
    """A request for `send`, built at a tenth of the CPU that httpx's defaults cost. `Host` and `Content-Length` are the
    transport's to add. `query` comes encoded. Raises `NotSent` where `url` is none."""
    address, destination = _parsed(url)
    if query:
        address, destination = address.copy_with(query=query.encode("ascii")), None
    return PlainRequest(method, address, headers, content, destination)


@lru_cache(maxsize=4096)
def _parsed(url: str) -> tuple[httpx.URL, Destination | None]:
    # Cached, because an account's pushes all go to one address or a few, and parsing one costs 15 µs.
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise NotSent("pms_address_invalid", "The account's base URL is not a URL.") from error
    try:
        return address, destination_of(address)
    except httpx.UnsupportedProtocol:
        return address, None  # which is the transport's to say, when it is to send


def bearer(credential: str) -> Headers:
    """The `Authorization` header; as `credential_header`."""
    return credential_header(b"Authorization", credential, scheme=b"Bearer ")


def credential_header(name: bytes, credential: str, *, scheme: bytes = b"") -> Headers:
    """The header that carries it; none for an account without a credential. Raises `NotSent` where no header can carry it."""
    token = credential.encode()
    if not token:
        return ()
    if _VISIBLE_ASCII.fullmatch(token) is None:
        raise NotSent("pms_credential_invalid", "The account's credential is not made of visible ASCII characters.")
    return ((name, scheme + token),)


def path_segment(identifier: str) -> str | None:
    """`identifier` as one segment of a path; None for the few that no path can name, since they would mean another one."""
    return None if identifier in _DOT_SEGMENTS else quote(identifier, safe="")

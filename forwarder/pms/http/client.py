"""The requests of one push: within the push time-out, at the account's pace, and tried again only where surely nothing was sent;
and the pool of connections that they go over.

An adapter builds a `Request`, gives it to the `Send` of its push, and reads a `Response` whose body is in memory.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, Self

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from forwarder.pms.http.connection import Connection, Held, connect
from forwarder.pms.http.errors import NoResponse, NotSent, unreachable
from forwarder.pms.http.request import Origin, Request, destination_of, encoded
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


# --- the connections: how many are in use at once, and which are kept for the next request ---

_LOOK_SECONDS: Final = 0.1
"""How often all connections are looked at for those whose time is over: a timer for each exchange would cost 2 µs."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """`max_connections`: in use at once, of all PMSs together; `pool_seconds`: how long to wait for one.

    `max_idle_per_pms` are kept open, for `idle_seconds`: less than the 5 s after which common servers close theirs, so that a
    request seldom meets a connection that is just being closed, which would leave it in doubt.
    """

    max_connections: int = 2048
    pool_seconds: float = 2.0
    connect_seconds: float = 5.0
    max_idle_per_pms: int = 64
    idle_seconds: float = 4.0


class ConnectionPool:
    """A `Transport`. Belongs to the event loop of its first request. `aclose` it in the end: it leaves nothing open.

    What can be relied on: `NotSent` is raised only when it is certain that nothing was sent. After the first byte was written it is
    `NoResponse`. No request is sent a second time, and no other connection is tried. It follows no redirect, keeps no cookie, uses
    no proxy of the environment, and reads no more of a response than its limit.

    `trusted`: whose certificates are believed; the system's, unless given.

    Of the connections that are kept, the one that was used last is used next. Exchanges whose time is over fail within
    `_LOOK_SECONDS`.
    """

    def __init__(self, limits: PoolLimits, trusted: ssl.SSLContext | None = None) -> None:
        self._limits = limits
        self._trusted = trusted
        self._free = limits.max_connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: dict[Connection, Origin] = {}
        self._look: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._closed = False

    async def exchange(self, request: Request, deadline: float, held: Held | None = None) -> Response:
        """The response, with its body in memory. `held` is asked when the connection stands, in the very step of the event loop
        that then hands the request to the system: nothing else that the loop has to do comes between the two.

        Cancelling it ends its connection, and nothing of it goes on; what was written by then may reach the PMS all the same.
        """
        destination = destination_of(request.url)
        content = encoded(request, destination)
        origin = destination.origin
        connection = self._kept(origin) or await self._obtained(origin, deadline)
        try:
            return await connection.exchange(content, deadline, held=held, bodiless=request.method == "HEAD")
        finally:
            self._give_back(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all connections, and the exchanges on them. Nothing is open when it returns, and nothing can be opened any more."""
        self._closed = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        if self._look is not None:
            self._look.cancel()
        for connection in list(self._open):
            connection.abort()
        if self._open:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def _kept(self, origin: Origin) -> Connection | None:
        """One that is fit to be used at once, if there is any."""
        if not self._free or (connection := self._fit(origin)) is None:
            return None
        self._free -= 1
        return connection

    async def _obtained(self, origin: Origin, until: float) -> Connection:
        """One that is kept or new, in turn. Raises `NotSent`."""
        await self._turn(until)
        try:
            return self._fit(origin) or await self._opened(origin, until)
        except BaseException:
            self._pass_on()
            raise

    def _give_back(self, connection: Connection) -> None:
        """After an exchange, or instead of one."""
        idle = self._idle.setdefault(self._open[connection], []) if connection in self._open else None
        if idle is None or len(idle) >= self._limits.max_idle_per_pms or not connection.is_reusable():
            connection.abort()
        else:
            connection.keep_for(self._limits.idle_seconds)
            idle.append(connection)
        self._pass_on()

    def _fit(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.is_fit():
                return connection
            connection.abort()
        return None

    async def _turn(self, until: float) -> None:
        """Return when one more may be in use: first come, first served."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(self._sooner(until, self._limits.pool_seconds)):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            if isinstance(error, TimeoutError):
                raise NotSent("no_connection_free", "All connections to PMSs were in use.", passing=True) from error
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def _opened(self, origin: Origin, until: float) -> Connection:
        if self._is_closed():
            raise unreachable("no connections are opened any more")
        try:
            async with asyncio.timeout_at(self._sooner(until, self._limits.connect_seconds)):
                connection = await connect(lambda: Connection(MAX_RESPONSE_BYTES, self._lost), origin, self._trusted)
        except TimeoutError as error:
            detail = "The PMS did not take the connection in time."
            raise NotSent("pms_connect_timed_out", detail, passing=True) from error
        if self._is_closed() or not connection.is_open():
            connection.abort()
            raise unreachable("the connection ended before anything was sent")
        self._open[connection] = origin
        if self._look is None:
            self._look_later()
        return connection

    def _is_closed(self) -> bool:
        return self._closed

    def _sooner(self, until: float, seconds: float) -> float:
        return min(until, asyncio.get_running_loop().time() + seconds)

    def _lost(self, connection: Connection) -> None:
        origin = self._open.pop(connection, None)
        if origin is not None and connection in (idle := self._idle.get(origin, [])):
            idle.remove(connection)
        if origin is not None and not self._idle.get(origin):
            self._idle.pop(origin, None)
        if not self._open and self._emptied is not None:
            self._emptied.set_result(None)

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_through)

    def _look_through(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self._open if each.expires <= now]:
            connection.expire()
        self._look = None
        if self._open:
            self._look_later()

"""What every simulated PMS does before and after its own part of a request: count it, let it in, and go wrong as ordered.

The connection itself is touched for one thing: to reset it, which ASGI has no word for.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from forwarder.runtime.http import Answer
from forwarder.simulator.faults import Faults, Order
from forwarder.simulator.world import World

Handler = Callable[[Request], Awaitable[ASGIApp]]
Endpoint = Callable[[Request], Awaitable[ASGIApp]]
NOWHERE = "nowhere"
"""The one name under which there is no PMS: a base URL that is wrong."""

_WRONG_CREDENTIAL = "wrong"
_HUGE = 10 * 1024 * 1024
_STATUS = {"down": 503, "throttle": 429, "error500": 500}


def below_any_base(path: str, method: str, endpoint: Endpoint) -> list[BaseRoute]:
    """`path` below every base URL: each is a PMS of its own."""
    return [Route(base + path, endpoint, methods=[method]) for base in ("", "/{base:path}")]


def place_of(request: Request) -> str:
    """Which PMS is asked: its base URL's path."""
    base: str = request.path_params.get("base", "")
    return base.strip("/")


def name_of(request: Request) -> str:
    """What faults are ordered for: the first segment of the base URL's path, or `pms` where there is none."""
    return place_of(request).partition("/")[0] or "pms"


class Failing(Protocol):
    """How a kind of PMS words an answer that is no more than a status, with the wait that it asks for."""

    def __call__(self, status: int, retry_after: float | None = None) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Gate:
    """The way into the PMSs of one kind: `endpoint` makes Starlette's endpoint of a handler."""

    world: World
    failing: Failing

    def endpoint(self, handler: Handler, *, books: bool = False) -> Endpoint:
        """`handler` for those who bring a credential, under the faults in force. `books`: it makes bookings."""
        world, failing = self.world, self.failing

        async def answered(request: Request) -> ASGIApp:
            name = name_of(request)
            if name == NOWHERE:
                raise HTTPException(404)
            world.requests[name] += 1
            order = world.faults.at(name)
            if order is not None and order.faults.delay_ms:
                await world.clock.sleep(order.faults.delay_ms / 1000)
            if not _let_in(request):
                return failing(401)
            if order is None or not world.faults.strikes(order, books=books):
                return await handler(request)
            if not order.faults.after_booking:
                return _gone_wrong(order, failing)
            answer = await handler(request)
            booked = isinstance(answer, Answer) and answer.status in (200, 201)
            return _gone_wrong(order, failing) if booked else answer

        return answered


def _let_in(request: Request) -> bool:
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and credential not in ("", _WRONG_CREDENTIAL)


def _gone_wrong(order: Order, failing: Failing) -> ASGIApp:
    match order.faults.mode.removesuffix("_after_booking"):
        case "hang":
            return _Hang(order.lifted)
        case "reset":
            return _reset
        case "redirect":
            return Answer(302, b"", ((b"location", b"http://127.0.0.1:9/moved"),))
        case "garbage":
            return Answer(201, b"<html>It works!</html>", media_type=b"text/html")
        case "huge":
            return Answer(201, b'{"id":"' + b"9" * _HUGE + b'"}')
        case mode:
            return failing(_STATUS[mode], _asked_wait(order.faults))


def _asked_wait(faults: Faults) -> float | None:
    return 1.0 if faults.mode == "throttle" and faults.retry_after is None else faults.retry_after


class _Hang:
    """Answers nothing, for as long as the client and the fault stay; then drops the connection."""

    def __init__(self, lifted: asyncio.Event) -> None:
        self._lifted = lifted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_disconnected(receive))
        lifted = asyncio.ensure_future(self._lifted.wait())
        try:
            await asyncio.wait([gone, lifted], return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            lifted.cancel()
        await _reset(scope, receive, send)


async def _reset(_scope: Scope, receive: Receive, _send: Send) -> None:
    # Of uvicorn, `receive` is a method of the object that holds the connection. Where there is none, the error is the answer.
    connection: asyncio.Transport | None = getattr(getattr(receive, "__self__", None), "transport", None)
    if connection is None:
        raise ConnectionResetError("reset by a fault that was asked for")
    peer = connection.get_extra_info("socket")
    if peer is not None and not connection.is_closing():
        # Lingering for no time makes the kernel send a reset instead of an orderly end.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.abort()
    await _disconnected(receive)


async def _disconnected(receive: Receive) -> None:
    """Return when the client is gone; what it still sends is passed over."""
    while (await receive())["type"] != "http.disconnect":
        pass

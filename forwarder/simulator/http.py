"""Shared by all simulated PMSs, around their own part of a request: counting, authentication, and faults as ordered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from forwarder.http.messages import Response, retry_after
from forwarder.simulator.faults import UNBOOKED, Order, drip, hang, mistyped, reset
from forwarder.simulator.world import SLOW_SECONDS, Down, Effect, Made, Wanted, World

Handler = Callable[[Request], Awaitable[ASGIApp]]


def below_any_base(path: str, method: str, endpoint: Handler) -> list[BaseRoute]:
    """`path` below every base URL: each is a PMS of its own."""
    return [Route(base + path, endpoint, methods=[method]) for base in ("", "/{base:path}")]


def place_of(request: Request) -> str:
    """The requested PMS: its base URL's path."""
    base: str = request.path_params.get("base", "")
    return base.strip("/")


def name_of(request: Request) -> str:
    """The name for which faults are ordered: the first segment of the base URL's path, or `pms` if there is none."""
    return place_of(request).partition("/")[0] or "pms"


def bearer_of(request: Request) -> str:
    """The bearer credential of a request; empty if there is none."""
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    return credential if scheme.lower() == "bearer" else ""


def book(world: World, request: Request, wanted: Wanted) -> tuple[Made, bool]:
    """As `World.book`; and passes the effect on the response to the guard."""
    made, is_new = world.book(wanted)
    if is_new:
        request.state.effects = getattr(request.state, "effects", frozenset()) | {wanted.effect}
    return made, is_new


@dataclass(frozen=True, slots=True)
class SimulatorGuard:
    """Guards the PMSs of one kind: `endpoint` wraps a handler as Starlette's endpoint. `credential_of`: where a request of that
    kind carries its credential. `failing` builds a response that is only a status, with the seconds that `Retry-After` asks for."""

    world: World
    failing: Callable[[int, float | None], Response]
    credential_of: Callable[[Request], str] = bearer_of

    def endpoint(self, handler: Handler, *, books: bool = False) -> Handler:
        """`handler` for authenticated requests, with the faults in force. `books`: it makes bookings; test values have effects."""
        world = self.world

        async def handle(request: Request) -> ASGIApp:
            try:
                answer = await handler(request)
            except Down:
                down = self.failing(503, None)
                return replace(down, headers=(*down.headers, retry_after(1)))
            effects = getattr(request.state, "effects", ())
            if Effect.SLOW in effects:
                await world.clock.sleep(SLOW_SECONDS)
            return reset if Effect.ANSWER_LOST in effects else answer

        async def answered(request: Request) -> ASGIApp:
            name = name_of(request)
            if name == "nowhere":  # the one name without a PMS: a wrong base URL
                raise HTTPException(404)
            world.requests[name] += 1
            order = world.faults.at(name)
            if order is not None and order.faults.delay_ms:
                await world.clock.sleep(order.faults.delay_ms / 1000)
            if self.credential_of(request) in ("", "wrong"):
                return self.failing(401, None)
            if order is None or not world.faults.strikes(order, books=books):
                return await handle(request)
            return await self._broken(request, handle, order)

        return answered

    async def _broken(self, request: Request, handler: Handler, order: Order) -> ASGIApp:
        """The fault of `order`, after the booking where that is what it says."""
        failing, answer = self.failing, Response(201, UNBOOKED)
        if order.faults.after_booking:
            booked = await handler(request)
            if not isinstance(booked, Response) or booked.status not in (200, 201):
                return booked
            failing, answer = partial(with_retry_after, body=b""), booked  # a gateway's
        match order.faults.mode.removesuffix("_after_booking"):
            case "hang":
                return hang(order.lifted)
            case "drip":
                return drip(answer, self.world.clock, order.lifted)
            case "reset":
                return reset
            case "wrong_types":
                return replace(answer, body=mistyped(answer.body, order.struck))
            case "huge":
                return Response(201, b'{"id":"' + b"9" * 10 * 1024 * 1024 + b'"}')
            case "garbage":
                return Response(201, b"<html>It works!</html>", media_type=b"text/html")
            case "redirect":
                return Response(302, b"", ((b"location", b"http://127.0.0.1:9/moved"),))
            case mode:
                asked = order.faults.retry_after
                wait = 1.0 if order.faults.mode == "throttle" and asked is None else asked
                return failing({"down": 503, "throttle": 429, "error500": 500}[mode], wait)


def with_retry_after(status: int, seconds: float | None, body: bytes) -> Response:
    """A response with a `Retry-After` of so many seconds, if any."""
    headers = () if seconds is None else ((b"retry-after", b"%d" % round(seconds)),)
    return Response(status, body, headers)

"""Shared by all simulated PMSs, around their own part of a request: counting, authentication, and faults as ordered."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from forwarder.http.messages import Response, retry_after
from forwarder.process.clock import Clock
from forwarder.simulator.bookings import Booked, Down, Made, Wanted
from forwarder.simulator.broken_responses import UNBOOKED, Drip, Hang, mistyped, reset
from forwarder.simulator.faults import Faults, Habit, Order
from forwarder.simulator.magic import SLOW_SECONDS, Effect
from forwarder.simulator.world import World

Handler = Callable[[Request], Awaitable[ASGIApp]]
Endpoint = Callable[[Request], Awaitable[ASGIApp]]
NOWHERE = "nowhere"
"""The one name without a PMS: a wrong base URL."""

_REFERENCE = re.compile(rb"rsv_[a-z0-9]{20,32}")
_ANOTHERS = b"rsv_" + b"z" * 32
_LET_OUT = {"", "wrong"}
_HUGE = 10 * 1024 * 1024
_COME_AGAIN = retry_after(1)
_STATUS = {"down": 503, "throttle": 429, "error500": 500, "timeout": 408}


def below_any_base(path: str, method: str, endpoint: Endpoint) -> list[BaseRoute]:
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


def book(world: World, request: Request, wanted: Wanted) -> Booked:
    """Books `wanted` for `request`, and passes the effects on the response to the guard. Raises `Down`."""
    booked = world.book(wanted)
    if wanted.effect is not None and isinstance(booked, Made):
        request.state.effects = {*_effects(request), wanted.effect}
    return booked


def _effects(request: Request) -> set[Effect]:
    """The effects of test values in what `request` booked."""
    effects: set[Effect] = getattr(request.state, "effects", set())
    return effects


class Failing(Protocol):
    """Builds a kind's response that is only a status, with the requested wait."""

    def __call__(self, status: int, retry_after: float | None = None) -> Response: ...


@dataclass(frozen=True, slots=True)
class Guard:
    """Guards the PMSs of one kind: `endpoint` wraps a handler as Starlette's endpoint. `credential_of`: where a request of that
    kind carries its credential."""

    world: World
    failing: Failing
    credential_of: Callable[[Request], str] = bearer_of

    def endpoint(self, handler: Handler, *, books: bool = False) -> Endpoint:
        """`handler` for authenticated requests, with the faults in force. `books`: it makes bookings."""
        world, failing = self.world, self.failing
        if books:
            handler = self._with_magic(handler)

        async def answered(request: Request) -> ASGIApp:
            name = name_of(request)
            if name == NOWHERE:
                raise HTTPException(404)
            world.requests[name] += 1
            order = world.faults.at(name)
            if order is not None and order.faults.delay_ms:
                await world.clock.sleep(order.faults.delay_ms / 1000)
            if self.credential_of(request) in _LET_OUT:
                return failing(401)
            if order is not None and order.faults.habits:
                return await with_habits(request, handler, self, order, books=books)
            if order is None or not world.faults.strikes(order, books=books):
                return await handler(request)
            return await self.struck(request, handler, order)

        return answered

    async def struck(self, request: Request, handler: Handler, order: Order) -> ASGIApp:
        """The response with the fault of `order`."""
        failing, clock = self.failing, self.world.clock
        if not order.faults.after_booking:
            return _gone_wrong(order, failing, Response(201, UNBOOKED), clock)
        answer = await handler(request)
        if not isinstance(answer, Response) or answer.status not in (200, 201):
            return answer
        return _gone_wrong(order, _of_a_gateway, answer, clock)

    def _with_magic(self, handler: Handler) -> Handler:
        """`handler` with the effects of the test values in what it books."""

        async def answered(request: Request) -> ASGIApp:
            try:
                answer = await handler(request)
            except Down:
                down = self.failing(503)
                return replace(down, headers=(*down.headers, _COME_AGAIN))
            effects = _effects(request)
            if Effect.SLOW in effects:
                await self.world.clock.sleep(SLOW_SECONDS)
            return reset if Effect.ANSWER_LOST in effects else answer

        return answered


async def with_habits(request: Request, handler: Handler, guard: Guard, order: Order, *, books: bool) -> ASGIApp:
    """The response of a PMS with the habits of `order`, and its fault if that strikes."""
    world, habits, seconds = guard.world, order.faults.habits, order.faults.seconds
    asked = _REFERENCE.search(await request.body())
    known = asked is not None and world.has(asked.group().decode())
    if books and habits & {"commits_late", "accepts"} and not known:
        _later.add(task := asyncio.create_task(_commit(request, handler, world.clock, seconds)))
        task.add_done_callback(_later.discard)
        return Response(202, b"") if "accepts" in habits else guard.failing(504)
    if books and "exists" in habits and known:
        return _EXISTS
    form = next((make for habit, make in _FORMS.items() if habit in habits), None)
    if form is not None and not books:
        # It knows the booking by the form that it kept: a filter by ours finds nothing.
        query = request.scope["query_string"]
        request.scope["query_string"] = _REFERENCE.sub(lambda found: form(found.group()), query)
        request.__dict__.pop("_query_params", None)
    if books and "books_twice" in habits:
        await handler(request)
    strikes = world.faults.strikes(order, books=books)
    answer = await (guard.struck(request, handler, order) if strikes else handler(request))
    if form is None or not isinstance(answer, Response):
        return answer
    return replace(answer, body=_REFERENCE.sub(lambda found: form(found.group()), answer.body))


async def _commit(request: Request, handler: Handler, clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
    await handler(request)


_later: set[asyncio.Task[None]] = set()
_FORMS: dict[Habit, Callable[[bytes], bytes]] = {
    "reference_cut": lambda ours: ours[:30],
    "reference_upper": bytes.upper,
    "reference_replaced": lambda ours: b"HA-" + blake2b(ours, digest_size=4).hexdigest().upper().encode(),
    "reference_in_text": lambda ours: b"Booked online, " + ours + b", thank you",
}


def _gone_wrong(order: Order, failing: Failing, answer: Response, clock: Clock) -> ASGIApp:
    """The faulty response in place of `answer`."""
    match order.faults.mode.removesuffix("_after_booking"):
        case "hang":
            return Hang(order.lifted)
        case "drip":
            return Drip(answer, clock, order.lifted)
        case "reset":
            return reset
        case "garbage":
            return Response(201, b"<html>It works!</html>", media_type=b"text/html")
        case "wrong_types":
            return replace(answer, body=mistyped(answer.body, order.struck))
        case "anothers":
            return replace(answer, body=_REFERENCE.sub(_ANOTHERS, answer.body))
        case "huge":
            return Response(201, b'{"id":"' + b"9" * _HUGE + b'"}')
        case mode:
            return _SAID.get(mode) or failing(_STATUS[mode], _asked_wait(order.faults))


def _of_a_gateway(status: int, retry_after: float | None = None) -> Response:
    """The response of a gateway in front of a PMS that has booked."""
    headers = () if retry_after is None else ((b"retry-after", b"%d" % round(retry_after)),)
    return Response(status, b"", headers)


_EXISTS = Response(409, b'{"message":"a reservation with this external reference already exists"}')
_SAID = {
    "redirect": Response(302, b"", ((b"location", b"http://127.0.0.1:9/moved"),)),
    "see_other": Response(303, b"", ((b"location", b"http://127.0.0.1:9/made"),)),
    "exists": _EXISTS,
    "taken": Response(422, b'{"errors":{"external_id":["has already been taken"]}}'),
}


def _asked_wait(faults: Faults) -> float | None:
    return 1.0 if faults.mode == "throttle" and faults.retry_after is None else faults.retry_after


def below_base_ending_in(ending: str, path: str, method: str, endpoint: Endpoint) -> list[BaseRoute]:
    """`path` below every base URL whose path ends in the segments `ending`. Must precede the routes that accept any base."""

    class BasePath(PathConvertor):
        regex = rf"(?:.*/)?{re.escape(ending)}"

    name = re.sub(r"\W", "_", ending)
    register_url_convertor(name, BasePath())
    return [Route(f"/{{base:{name}}}{path}", endpoint, methods=[method])]

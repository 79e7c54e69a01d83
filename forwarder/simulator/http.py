"""Shared by all simulated PMSs, around their own part of a request: counting, authentication, habits, and faults as ordered."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from forwarder.http.messages import Response, retry_after
from forwarder.simulator.faults import UNBOOKED, Drip, Habit, Hang, Order, mistyped, reset
from forwarder.simulator.sites import SLOW_SECONDS, Effect
from forwarder.simulator.world import Down, Made, Wanted, World

Handler = Callable[[Request], Awaitable[ASGIApp]]
Failing = Callable[[int, float | None], Response]
"""Builds a response that is only a status, with the seconds that `Retry-After` asks for."""

NOWHERE = "nowhere"
"""The one name without a PMS: a wrong base URL."""

_REFERENCE = re.compile(rb"rsv_[a-z0-9]{20,32}")
ANOTHERS = b"rsv_" + b"z" * 32
_LET_OUT = {"", "wrong"}
_HUGE = 10 * 1024 * 1024
_STATUS = {"down": 503, "throttle": 429, "error500": 500, "timeout": 408}
EXISTS = b'{"message":"a reservation with this external reference already exists"}'
TAKEN = b'{"errors":{"external_id":["has already been taken"]}}'
_SAID = {
    "garbage": Response(201, b"<html>It works!</html>", media_type=b"text/html"),
    "redirect": Response(302, b"", ((b"location", b"http://127.0.0.1:9/moved"),)),
    "see_other": Response(303, b"", ((b"location", b"http://127.0.0.1:9/made"),)),
    "exists": Response(409, EXISTS),
    "taken": Response(422, TAKEN),
}
REFERENCE_FORMS: dict[Habit, Callable[[bytes], bytes]] = {
    "reference_cut": lambda ours: ours[:30],
    "reference_upper": bytes.upper,
    "reference_replaced": lambda ours: b"HA-" + blake2b(ours, digest_size=4).hexdigest().upper().encode(),
    "reference_in_text": lambda ours: b"Booked online, " + ours + b", thank you",
}
"""The forms in which a PMS may keep our reference."""
_later: set[asyncio.Task[None]] = set()


def below_any_base(path: str, method: str, endpoint: Handler) -> list[BaseRoute]:
    """`path` below every base URL: each is a PMS of its own."""
    return [Route(base + path, endpoint, methods=[method]) for base in ("", "/{base:path}")]


def below_base_ending_in(ending: str, path: str, method: str, endpoint: Handler) -> list[BaseRoute]:
    """`path` below every base URL whose path ends in the segments `ending`. Must precede the routes that accept any base."""

    class BasePath(PathConvertor):
        regex = rf"(?:.*/)?{re.escape(ending)}"

    name = re.sub(r"\W", "_", ending)
    register_url_convertor(name, BasePath())
    return [Route(f"/{{base:{name}}}{path}", endpoint, methods=[method])]


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
    """As `World.book`; and passes the effects on the response to the guard."""
    made, is_new = world.book(wanted)
    if wanted.effect is not None and is_new:
        request.state.effects = {*_effects(request), wanted.effect}
    return made, is_new


def _effects(request: Request) -> set[Effect]:
    effects: set[Effect] = getattr(request.state, "effects", set())
    return effects


@dataclass(frozen=True, slots=True)
class Guard:
    """Guards the PMSs of one kind: `endpoint` wraps a handler as Starlette's endpoint. `credential_of`: where a request of that
    kind carries its credential."""

    world: World
    failing: Failing
    credential_of: Callable[[Request], str] = bearer_of

    def endpoint(self, handler: Handler, *, books: bool = False) -> Handler:
        """`handler` for authenticated requests, with the habits and faults in force. `books`: it makes bookings."""
        world = self.world
        handle = self._with_effects(handler) if books else handler

        async def answered(request: Request) -> ASGIApp:
            name = name_of(request)
            if name == NOWHERE:
                raise HTTPException(404)
            world.requests[name] += 1
            order = world.faults.at(name)
            if order is not None and order.faults.delay_ms:
                await world.clock.sleep(order.faults.delay_ms / 1000)
            if self.credential_of(request) in _LET_OUT:
                return self.failing(401, None)
            if order is None:
                return await handle(request)
            if order.faults.habits:
                return await self._with_habits(request, handle, order, books=books)
            return await self._answer(request, handle, order, books=books)

        return answered

    async def _answer(self, request: Request, handler: Handler, order: Order, *, books: bool) -> ASGIApp:
        if not self.world.faults.strikes(order, books=books):
            return await handler(request)
        failing, answer = self.failing, Response(201, UNBOOKED)
        if order.faults.after_booking:
            booked = await handler(request)
            if not isinstance(booked, Response) or booked.status not in (200, 201):
                return booked
            failing, answer = _of_a_gateway, booked
        match order.faults.mode.removesuffix("_after_booking"):
            case "hang":
                return Hang(order.lifted)
            case "drip":
                return Drip(answer, self.world.clock, order.lifted)
            case "reset":
                return reset
            case "wrong_types":
                return replace(answer, body=mistyped(answer.body, order.struck))
            case "anothers":
                return replace(answer, body=_REFERENCE.sub(ANOTHERS, answer.body))
            case "huge":
                return Response(201, b'{"id":"' + b"9" * _HUGE + b'"}')
            case mode:
                asked = order.faults.retry_after
                wait = 1.0 if order.faults.mode == "throttle" and asked is None else asked
                return _SAID.get(mode) or failing(_STATUS[mode], wait)

    async def _with_habits(self, request: Request, handler: Handler, order: Order, *, books: bool) -> ASGIApp:
        """The response of a PMS with the habits of `order`, and its fault if that strikes."""
        habits, seconds = order.faults.habits, order.faults.seconds
        asked = _REFERENCE.search(await request.body())
        known = asked is not None and self.world.has(asked.group().decode())
        if books and habits & {"commits_late", "accepts"} and not known:

            async def commit() -> None:
                await self.world.clock.sleep(seconds)
                await handler(request)

            _later.add(task := asyncio.create_task(commit()))
            task.add_done_callback(_later.discard)
            return Response(202, b"") if "accepts" in habits else self.failing(504, None)
        if books and "exists" in habits and known:
            return _SAID["exists"]
        form = next((make for habit, make in REFERENCE_FORMS.items() if habit in habits), None)
        if form is not None and not books:
            # It knows the booking by the form that it kept: a filter by ours finds nothing.
            query = request.scope["query_string"]
            request.scope["query_string"] = _REFERENCE.sub(lambda found: form(found.group()), query)
            request.__dict__.pop("_query_params", None)
        if books and "books_twice" in habits:
            await handler(request)
        answer = await self._answer(request, handler, order, books=books)
        if form is None or not isinstance(answer, Response):
            return answer
        return replace(answer, body=_REFERENCE.sub(lambda found: form(found.group()), answer.body))

    def _with_effects(self, handler: Handler) -> Handler:
        """`handler` with the effects of the test values in what it books."""

        async def answered(request: Request) -> ASGIApp:
            try:
                answer = await handler(request)
            except Down:
                down = self.failing(503, None)
                return replace(down, headers=(*down.headers, retry_after(1)))
            effects = _effects(request)
            if Effect.SLOW in effects:
                await self.world.clock.sleep(SLOW_SECONDS)
            return reset if Effect.ANSWER_LOST in effects else answer

        return answered


def with_retry_after(status: int, body: bytes, seconds: float | None) -> Response:
    """A response with a `Retry-After` of so many seconds, if any."""
    headers = () if seconds is None else ((b"retry-after", b"%d" % round(seconds)),)
    return Response(status, body, headers)


def _of_a_gateway(status: int, seconds: float | None) -> Response:
    return with_retry_after(status, b"", seconds)

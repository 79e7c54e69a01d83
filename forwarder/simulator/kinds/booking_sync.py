"""Simulated BookingSync (Smily) API v3, as its documentation and recorded traffic show it. No idempotency: every POST books.

A rental `unknown` is not found; a client at `refused.example` is refused. A rental is a room. Its live quote is 100 a night, 50 for
the cleaning and 10 % tax on the nights. `booking_sync_oauth` has the tokens, `booking_sync_payments` payments and cards.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, assert_never

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from forwarder.http.messages import Response
from forwarder.simulator.bookings import CardDeclined, KeyReused, Made, OtherPrice, Replayed, Taken
from forwarder.simulator.http import Endpoint, Guard, Handler, below_any_base, book, name_of, place_of
from forwarder.simulator.kinds.booking_sync_forms import (
    MEDIA_TYPE,
    UNKNOWN,
    Invalid,
    answer_of,
    check_client,
    check_strict,
    day,
    names_of,
    number,
    quoted,
    the_one,
    wanted_of,
)
from forwarder.simulator.kinds.booking_sync_oauth import TokenServer
from forwarder.simulator.kinds.booking_sync_payments import Payment, Till
from forwarder.simulator.magic import Effect, effect_of
from forwarder.simulator.world import World

_MOST_PER_PAGE = 100
_SAID = {401: "Not authorized", 404: "Not found", 429: "API v3 rate limit exceeded."}


def booking_sync_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    tokens = TokenServer(world.clock)
    pms = _BookingSync(world)
    guard, open_guard = Guard(world, pms.failing), Guard(world, pms.failing, lambda _: "none is needed")

    def let_in(handler: Handler, *, books: bool = False) -> Endpoint:
        async def checked(request: Request) -> ASGIApp:
            return await handler(request) if tokens.lets_in(request) else pms.failing(401)

        return guard.endpoint(checked, books=books)

    endpoints = {
        ("POST", "/oauth/token"): open_guard.endpoint(tokens.token),
        ("POST", "/oauth/revoke"): open_guard.endpoint(tokens.revoke),
        ("POST", "/api/bookingsync/instant_bookings"): open_guard.endpoint(pms.charge),
        ("GET", "/rentals/search"): let_in(pms.search),
        ("GET", "/rentals/{rental}"): let_in(pms.show_rental),
        ("POST", "/clients"): let_in(pms.create_client),
        ("POST", "/rentals/{rental}/bookings"): let_in(pms.create_booking, books=True),
        ("POST", "/strict_bookings"): let_in(pms.create_strict_booking, books=True),
        ("GET", "/bookings"): let_in(pms.list_bookings),
        ("GET", "/bookings/{id:int}"): let_in(pms.show_booking),
        ("DELETE", "/bookings/{id:int}"): let_in(pms.cancel_booking),
        ("POST", "/bookings/{id:int}/payments"): let_in(pms.create_payment),
    }
    return [route for (method, path), endpoint in endpoints.items() for route in below_any_base(path, method, endpoint)]


class _BookingSync:
    def __init__(self, world: World) -> None:
        self._world = world
        self._till = Till()
        self._held: defaultdict[str, list[Made]] = defaultdict(list)
        self._clients = 0
        self._effects: dict[str, Effect] = {}

    def failing(self, status: int, retry_after: float | None = None) -> Response:
        """An error, with the Unix time from which requests are accepted again."""
        body = {"error": _SAID.get(status, f"HTTP {status}, as ordered")}
        if retry_after is None:
            return answer_of(status, body)
        reset = math.ceil(self._world.clock.now().timestamp() + retry_after)
        limits = (
            (b"x-ratelimit-limit", b"1000"),
            (b"x-ratelimit-remaining", b"0"),
            (b"x-ratelimit-reset", b"%d" % reset),
        )
        return answer_of(status, body, limits)

    async def create_client(self, request: Request) -> Response:
        try:
            client = the_one("clients", await request.body())
            check_client(client)
        except Invalid as invalid:
            return invalid.answer
        self._clients += 1
        if effect := effect_of(client.get("lastname"), client["fullname"]):
            self._effects[str(self._clients)] = effect
        return answer_of(201, {"clients": [{**client, "id": self._clients, "links": {"account": 1}}], "meta": {}})

    async def search(self, request: Request) -> Response:
        query = request.query_params
        rental = query.get("rental_id", UNKNOWN)
        arrival, departure = (day(query.get(name), date.max) for name in ("start_at", "end_at"))
        free = rental != UNKNOWN and not any(
            made.room == rental and made.arrival < departure and made.departure > arrival
            for made in self._standing(place_of(request))
        )
        rentals = [quoted(rental, (departure - arrival).days)] if free else []
        return answer_of(200, {"rentals": rentals, "meta": {}})

    async def show_rental(self, request: Request) -> Response:
        rental = request.path_params["rental"]
        if rental == UNKNOWN:
            return self.failing(404)
        return answer_of(200, {"rentals": [{"id": number(rental)}], "meta": {}})

    async def create_booking(self, request: Request) -> Response:
        rental = request.path_params["rental"]
        if rental == UNKNOWN:
            return self.failing(404)
        try:
            return self._book(request, rental, the_one("bookings", await request.body()))
        except Invalid as invalid:
            return invalid.answer

    async def create_strict_booking(self, request: Request) -> Response:
        try:
            booking = the_one("bookings", await request.body())
            check_strict(booking)
            return self._book(request, str(booking.get("rental_id")), {**booking, "booked": True})
        except Invalid as invalid:
            return invalid.answer

    def _book(self, request: Request, rental: str, booking: Mapping[str, Any]) -> Response:
        self._end_tentative(place_of(request))
        effect = effect_of(rental, *names_of(booking)) or self._effects.pop(str(booking.get("client_id")), None)
        wanted = wanted_of(name_of(request), place_of(request), rental, booking, effect)
        booked = book(self._world, request, wanted)
        match booked:
            case Made():
                location = (b"location", f"{request.base_url}bookings/{booked.id}".encode())
                if booking.get("tentative_expires_at"):
                    self._held[booked.place].append(booked)
                return Response(201, b'{"links":{},"bookings":[' + booked.answer + b"]}", (location,), MEDIA_TYPE)
            case Taken():
                return Invalid(start_at="is not available", end_at="is not available").answer
            case OtherPrice():
                return Invalid(final_price="has changed").answer
            case CardDeclined():
                return Invalid(base="the card was declined").answer
            case Replayed() | KeyReused():
                raise AssertionError("a booking without a key has no other by its key")
            case _:
                assert_never(booked)

    async def list_bookings(self, request: Request) -> Response:
        query, place = request.query_params, place_of(request)
        self._end_tentative(place)
        per_page = min(int(query.get("per_page", _MOST_PER_PAGE)), _MOST_PER_PAGE)
        page = max(int(query.get("page", 1)), 1)
        found = [made for made in self._world.at(place) if self._matches(made, query)]
        shown = [self._shown(made) for made in found[(page - 1) * per_page : page * per_page]]
        pages = max(math.ceil(len(found) / per_page), 1)
        counts = (
            (b"x-total-pages", b"%d" % pages),
            (b"x-total-count", b"%d" % len(found)),
            (b"x-per-page", b"%d" % per_page),
        )
        return answer_of(200, {"links": {}, "bookings": shown, "meta": {}}, counts)

    async def show_booking(self, request: Request) -> Response:
        made = self._made(request)
        hidden = request.query_params.get("include_canceled") != "true"
        if made is None or (hidden and self._world.cancelled_at(made) is not None):
            return self.failing(404)
        return answer_of(200, {"links": {}, "bookings": [self._shown(made)], "meta": {}})

    async def cancel_booking(self, request: Request) -> ASGIApp:
        cancelled = self._world.cancel(place_of(request), request.path_params["id"])
        return StarletteResponse(status_code=204) if cancelled else self.failing(404)

    async def create_payment(self, request: Request) -> Response:
        made = self._made(request)
        if made is None:
            return self.failing(404)
        try:
            noted = self._till.note(made, the_one("payments", await request.body()))
        except Invalid as invalid:
            return invalid.answer
        match noted:
            case Payment():
                return answer_of(201, {"payments": [noted.shown]})
            case errors:
                return Invalid(**errors).answer

    async def charge(self, request: Request) -> Response:
        try:
            order = from_json(await request.body())
        except ValueError:
            return self.failing(400)
        status, body = self._till.charge(order)
        return Response(status, b"" if body is None else to_json(body))

    def _made(self, request: Request) -> Made | None:
        """The booking that a path names."""
        place = place_of(request)
        self._end_tentative(place)
        return next((made for made in self._world.at(place) if made.id == request.path_params["id"]), None)

    def _standing(self, place: str) -> list[Made]:
        self._end_tentative(place)
        return [made for made in self._world.at(place) if self._world.cancelled_at(made) is None]

    def _end_tentative(self, place: str) -> None:
        """Cancels tentative bookings that have expired."""
        now = self._world.clock.now()
        for made in list(self._held[place]):
            shown = self._shown(made)
            if shown["status"] == "Tentative" and datetime.fromisoformat(shown["tentative_expires_at"]) > now:
                continue
            self._held[place].remove(made)
            if shown["status"] == "Tentative" and made in self._world.at(place):
                self._world.cancel(place, made.id)

    def _matches(self, made: Made, query: Mapping[str, str]) -> bool:
        rentals = query.get("rental_id")
        return (
            (rentals is None or made.room in rentals.split(","))
            and made.departure > day(query.get("from"), self._world.clock.now().date())
            and made.arrival < day(query.get("until"), date.max)
            and (query.get("include_canceled") == "true" or self._world.cancelled_at(made) is None)
        )

    def _shown(self, made: Made) -> dict[str, Any]:
        booking: dict[str, Any] = from_json(made.answer)
        booking |= self._till.changes(made, booking)
        cancelled_at = self._world.cancelled_at(made)
        return booking if cancelled_at is None else {**booking, "status": "Canceled", "canceled_at": cancelled_at}

"""Simulated BookingSync (Smily) API v3, as its documentation and recorded traffic show it. No idempotency: every POST books.

A rental `unknown` is not found; a client at `refused.example` is refused. A rental is a room. Its live quote is 100 a night, 50 for
the cleaning and 10 % tax on the nights. `booking_sync_oauth` has the tokens.

Stores nothing of a card, and forgets payments with the process. A card that ends in 1112 is declined, one that ends in 1113 makes
the gateway fail, as the vendor's test cards do; one that ends in 3220 needs its holder to authenticate. Any other is charged, and
its booking confirmed."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from forwarder.http.messages import Response
from forwarder.simulator.http import Guard, Handler, below_any_base, book, name_of, place_of
from forwarder.simulator.kinds.booking_sync_forms import (
    MEDIA_TYPE,
    UNKNOWN,
    Invalid,
    answer_of,
    booking_shown,
    day,
    number,
    quoted,
    the_one,
)
from forwarder.simulator.kinds.booking_sync_oauth import TokenServer
from forwarder.simulator.sites import Effect, effect_of
from forwarder.simulator.world import Made, NotBooked, Wanted, World

_MOST_PER_PAGE = 100
_SAID = {401: "Not authorized", 404: "Not found", 429: "API v3 rate limit exceeded."}
_NOT_BOOKED: Final = {
    "taken": {"start_at": "is not available", "end_at": "is not available"},
    "price": {"final_price": "has changed"},
    "card": {"base": "the card was declined"},
}
_INTERNAL: Final = {"bookingsync", "instant-booking"}
_KINDS: Final = _INTERNAL.union("cash cheque credits credit-card online paypal travel-cheque wiretransfer".split())
_GATEWAY: Final = ("gateway_id", "gateway_name", "gateway_type")
_OF_A_CARD: Final = (
    *"tentative_payment_id card_number cardholder_name expires_at_month expires_at_year security_code".split(),
    *("address1", "zip", "city", "country_code", *_GATEWAY),
)
_BLANK: Final = "can't be blank"
_REFUSED: Final = "@refused.example"
_NEVER: Final = date.min


def booking_sync_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    tokens = TokenServer(world.clock)
    pms = _BookingSync(world)
    guard, open_guard = Guard(world, pms.failing), Guard(world, pms.failing, lambda _: "none is needed")

    def let_in(handler: Handler, *, books: bool = False) -> Handler:
        async def checked(request: Request) -> ASGIApp:
            if not tokens.lets_in(request):
                return pms.failing(401)
            try:
                return await handler(request)
            except Invalid as invalid:
                return invalid.answer

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


@dataclass(slots=True)
class _Payment:
    made: Made
    cents: int
    paid: bool


class _BookingSync:
    def __init__(self, world: World) -> None:
        self._world = world
        self._payments: dict[int, _Payment] = {}
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
        client = the_one("clients", await request.body())
        if not client.get("fullname"):
            raise Invalid(fullname=_BLANK)
        if any(str(email.get("email")).endswith(_REFUSED) for email in client.get("emails", ())):
            raise Invalid(emails="is invalid")
        self._clients += 1
        if effect := effect_of(client.get("lastname"), client["fullname"]):
            self._effects[str(self._clients)] = effect
        return answer_of(201, {"clients": [{**client, "id": self._clients, "links": {"account": 1}}], "meta": {}})

    async def search(self, request: Request) -> Response:
        query = request.query_params
        rental = query.get("rental_id", UNKNOWN)
        arrival, departure = (day(query.get(name), date.max) for name in ("start_at", "end_at"))
        self._end_tentative(place_of(request))
        free = rental != UNKNOWN and not any(
            made.room == rental and made.arrival < departure and made.departure > arrival
            for made in self._world.at(place_of(request))
            if self._world.cancelled_at(made) is None
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
        return self._book(request, rental, the_one("bookings", await request.body()))

    async def create_strict_booking(self, request: Request) -> Response:
        booking = the_one("bookings", await request.body())
        rental, client = str(booking.get("rental_id", UNKNOWN)), booking.get("client") or {}
        if rental == UNKNOWN:
            raise Invalid(rental_id="is invalid")
        if not client.get("lastname"):
            raise Invalid(client=_BLANK)
        if str(client.get("email")).endswith(_REFUSED):
            raise Invalid(**{"client.email": "is invalid"})
        return self._book(request, rental, {**booking, "booked": True})

    def _book(self, request: Request, rental: str, booking: Mapping[str, Any]) -> Response:
        self._end_tentative(place_of(request))
        client = booking.get("client")  # of a strict booking
        name = client.get("lastname") if isinstance(client, dict) else None
        arrival, departure = (day(str(booking.get(field)), _NEVER) for field in ("start_at", "end_at"))
        for field, one in (("start_at", arrival), ("end_at", departure)):
            if one == _NEVER:
                raise Invalid(**{field: _BLANK})
        if departure <= arrival:
            raise Invalid(start_at="must be before end_at")
        wanted = Wanted(
            name=name_of(request),
            place=place_of(request),
            room=rental,
            arrival=arrival,
            departure=departure,
            reference=str(booking.get("external_reference") or ""),
            answer=lambda made_id: to_json(booking_shown(made_id, rental, booking)),
            effect=effect_of(rental, name) or self._effects.pop(str(booking.get("client_id")), None),
        )
        try:
            made, _ = book(self._world, request, wanted)
        except NotBooked as no:
            raise Invalid(**_NOT_BOOKED[no.why]) from no
        if booking.get("tentative_expires_at"):
            self._held[made.place].append(made)
        location = (b"location", f"{request.base_url}bookings/{made.id}".encode())
        return Response(201, b'{"links":{},"bookings":[' + made.answer + b"]}", (location,), MEDIA_TYPE)

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
        asked = the_one("payments", await request.body())
        internal = asked.get("kind") in _INTERNAL
        needed = ["amount_in_cents", "currency", "kind", *(_GATEWAY if internal else ["paid_at"])]
        if errors := {name: _BLANK for name in needed if not asked.get(name)}:
            raise Invalid(**errors)
        if asked["kind"] not in _KINDS:
            raise Invalid(kind="is not included in the list")
        payment_id = len(self._payments) + 1
        self._payments[payment_id] = _Payment(made, int(asked["amount_in_cents"]), paid=not internal)
        return answer_of(201, {"payments": [{**asked, "id": payment_id, "links": {"bookings": [made.id]}}]})

    async def charge(self, request: Request) -> Response:
        try:
            order = from_json(await request.body())
        except ValueError:
            return self.failing(400)
        errors = {name: [_BLANK] for name in _OF_A_CARD if not order.get(name)}
        payment_id = order.get("tentative_payment_id") or 0
        if not errors and payment_id not in self._payments:
            errors = {"tentative_payment_id": ["is invalid"]}
        if errors:
            return Response(422, to_json(errors))
        match str(order["card_number"])[-4:]:
            case "1112":
                return Response(422, to_json({"payment": ["authorization declined"]}))
            case "1113":
                return Response(422, to_json({"server": ["the gateway failed"]}))
            case "3220":
                body = {"gateway_name": order["gateway_name"], "uuid": f"uuid-{payment_id}"}
                return Response(202, to_json(body))
        self._payments[payment_id].paid = True
        return Response(200, b"")

    def _made(self, request: Request) -> Made | None:
        place = place_of(request)
        self._end_tentative(place)
        return next((made for made in self._world.at(place) if made.id == request.path_params["id"]), None)

    def _end_tentative(self, place: str) -> None:
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
        payments = {number_: payment for number_, payment in self._payments.items() if payment.made is made}
        booking["links"]["payments"] = list(payments)
        if paid := Decimal(sum(payment.cents for payment in payments.values() if payment.paid)) / 100:
            left = Decimal(booking["final_price"] or 0) - paid
            booking |= {"paid_amount": format(paid, "f"), "payment_left_to_collect": format(left, "f")}
            booking |= {"status": "Booked", "booked": True}
        cancelled_at = self._world.cancelled_at(made)
        return booking if cancelled_at is None else {**booking, "status": "Canceled", "canceled_at": cancelled_at}

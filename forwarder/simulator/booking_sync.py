"""Simulated BookingSync (Smily) API v3, as its documentation and recorded traffic show it. No idempotency: every POST books.

A rental `unknown` is not found; a client at `refused.example` is refused. A rental is a room. Its live quote is 100 a night, 50 for
the cleaning and 10 % tax on the nights.

Stores nothing of a card, and forgets payments with the process. A card that ends in 1112 is declined, one that ends in 1113 makes
the gateway fail, as the vendor's test cards do; one that ends in 3220 needs its holder to authenticate. Any other is charged, and
its booking confirmed.

Its authorization server is as Doorkeeper is where old tokens end with the first use of their successors.

    POST BASE/oauth/token    a refresh token against the next pair; access tokens live for two hours
    POST BASE/oauth/revoke   an access token ends (RFC 7009)

It accepts every client but the one whose secret is `wrong`, and any foreign refresh token but `wrong` as an account's first one.
The PMS accepts foreign access tokens, like all simulated PMSs. Tokens end with the process."""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import parse_qs

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from forwarder.http.messages import Response
from forwarder.process.clock import Clock
from forwarder.simulator.http import Handler, SimulatorGuard, bearer_of, below_any_base, book, name_of, place_of
from forwarder.simulator.world import Effect, Made, NotBooked, Wanted, World, effect_of

_MOST_PER_PAGE = 100
_NOT_BOOKED: Final = {
    "taken": {"start_at": "is not available", "end_at": "is not available"},
    "price": {"final_price": "has changed"},
    "card": {"base": "the card was declined"},
}
_INTERNAL: Final = {"bookingsync", "instant-booking"}
_KINDS: Final = _INTERNAL.union("cash cheque credits credit-card online paypal travel-cheque wiretransfer".split())
_GATEWAY: Final = ("gateway_id", "gateway_name", "gateway_type")
_BLANK: Final = "can't be blank"
_REFUSED: Final = "@refused.example"
_UNKNOWN: Final = "unknown"  # the rental that there is not
_MEDIA_TYPE: Final = b"application/vnd.api+json; charset=utf-8"


def booking_sync_routes(world: World) -> list[BaseRoute]:
    tokens = _TokenServer(world.clock)
    pms = _BookingSync(world)
    guard = SimulatorGuard(world, pms.failing)
    open_guard = SimulatorGuard(world, pms.failing, lambda _: "none is needed")

    def let_in(handler: Handler, *, books: bool = False) -> Handler:
        async def checked(request: Request) -> ASGIApp:
            try:
                return await handler(request) if tokens.lets_in(request) else pms.failing(401)
            except _Invalid as invalid:
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


class _BookingSync:
    def __init__(self, world: World) -> None:
        self._world = world
        self._payments: dict[int, tuple[Made, int]] = {}  # of how many cents
        self._paid: set[int] = set()
        self._held: defaultdict[str, list[Made]] = defaultdict(list)
        self._clients = 0
        self._effects: dict[str, Effect] = {}

    def failing(self, status: int, retry_after: float | None = None) -> Response:
        known = {401: "Not authorized", 404: "Not found", 429: "API v3 rate limit exceeded."}
        body = {"error": known.get(status, f"HTTP {status}, as ordered")}
        if retry_after is None:
            return _answer_of(status, body)
        reset = math.ceil(self._world.clock.now().timestamp() + retry_after)
        numbers = {b"limit": b"1000", b"remaining": b"0", b"reset": b"%d" % reset}
        return _answer_of(status, body, tuple((b"x-ratelimit-" + name, number) for name, number in numbers.items()))

    async def create_client(self, request: Request) -> Response:
        client = _the_one("clients", await request.body())
        if not client.get("fullname"):
            raise _Invalid(fullname=_BLANK)
        if any(str(email.get("email")).endswith(_REFUSED) for email in client.get("emails", ())):
            raise _Invalid(emails="is invalid")
        self._clients += 1
        if effect := effect_of(client.get("lastname"), client["fullname"]):
            self._effects[str(self._clients)] = effect
        return _answer_of(201, {"clients": [{**client, "id": self._clients, "links": {"account": 1}}], "meta": {}})

    async def search(self, request: Request) -> Response:
        query = request.query_params
        rental = query.get("rental_id", _UNKNOWN)
        arrival, departure = (_day(query.get(name), date.max) for name in ("start_at", "end_at"))
        self._end_tentative(place_of(request))
        free = rental != _UNKNOWN and not any(
            made.room == rental and made.arrival < departure and made.departure > arrival
            for made in self._world.at(place_of(request))
            if self._world.cancelled_at(made) is None
        )
        rentals = [_quoted(rental, (departure - arrival).days)] if free else []
        return _answer_of(200, {"rentals": rentals, "meta": {}})

    async def show_rental(self, request: Request) -> Response:
        rental = request.path_params["rental"]
        if rental == _UNKNOWN:
            return self.failing(404)
        return _answer_of(200, {"rentals": [{"id": _number(rental)}], "meta": {}})

    async def create_booking(self, request: Request) -> Response:
        rental = request.path_params["rental"]
        if rental == _UNKNOWN:
            return self.failing(404)
        return self._book(request, rental, _the_one("bookings", await request.body()))

    async def create_strict_booking(self, request: Request) -> Response:
        booking = _the_one("bookings", await request.body())
        rental, client = str(booking.get("rental_id", _UNKNOWN)), booking.get("client") or {}
        if rental == _UNKNOWN:
            raise _Invalid(rental_id="is invalid")
        if not client.get("lastname"):
            raise _Invalid(client=_BLANK)
        if str(client.get("email")).endswith(_REFUSED):
            raise _Invalid(**{"client.email": "is invalid"})
        return self._book(request, rental, {**booking, "booked": True})

    def _book(self, request: Request, rental: str, booking: Mapping[str, Any]) -> Response:
        self._end_tentative(place_of(request))
        client = booking.get("client")  # of a strict booking
        name = client.get("lastname") if isinstance(client, dict) else None
        days = {field: _day(str(booking.get(field)), date.min) for field in ("start_at", "end_at")}
        if blank := [field for field, day in days.items() if day == date.min]:
            raise _Invalid(**{blank[0]: _BLANK})
        if days["end_at"] <= days["start_at"]:
            raise _Invalid(start_at="must be before end_at")
        wanted = Wanted(
            name=name_of(request),
            place=place_of(request),
            room=rental,
            arrival=days["start_at"],
            departure=days["end_at"],
            reference=str(booking.get("external_reference") or ""),
            answer=lambda made_id: to_json(_booking_shown(made_id, rental, booking)),
            effect=effect_of(rental, name) or self._effects.pop(str(booking.get("client_id")), None),
        )
        try:
            made, _ = book(self._world, request, wanted)
        except NotBooked as no:
            raise _Invalid(**_NOT_BOOKED[no.why]) from no
        if booking.get("tentative_expires_at"):
            self._held[made.place].append(made)
        location = (b"location", f"{request.base_url}bookings/{made.id}".encode())
        return Response(201, b'{"links":{},"bookings":[' + made.answer + b"]}", (location,), _MEDIA_TYPE)

    async def list_bookings(self, request: Request) -> Response:
        query, place = request.query_params, place_of(request)
        self._end_tentative(place)
        per_page = min(int(query.get("per_page", _MOST_PER_PAGE)), _MOST_PER_PAGE)
        page = max(int(query.get("page", 1)), 1)
        rentals, first_day = query.get("rental_id"), _day(query.get("from"), self._world.clock.now().date())
        found = [
            made
            for made in self._world.at(place)
            if (rentals is None or made.room in rentals.split(","))
            and made.departure > first_day
            and made.arrival < _day(query.get("until"), date.max)
            and (query.get("include_canceled") == "true" or self._world.cancelled_at(made) is None)
        ]
        shown = [self._shown(made) for made in found[(page - 1) * per_page : page * per_page]]
        pages = max(math.ceil(len(found) / per_page), 1)
        numbers = {b"x-total-pages": pages, b"x-total-count": len(found), b"x-per-page": per_page}
        counts = tuple((name, b"%d" % number) for name, number in numbers.items())
        return _answer_of(200, {"links": {}, "bookings": shown, "meta": {}}, counts)

    async def show_booking(self, request: Request) -> Response:
        made = self._made(request)
        hidden = request.query_params.get("include_canceled") != "true"
        if made is None or (hidden and self._world.cancelled_at(made) is not None):
            return self.failing(404)
        return _answer_of(200, {"links": {}, "bookings": [self._shown(made)], "meta": {}})

    async def cancel_booking(self, request: Request) -> ASGIApp:
        cancelled = self._world.cancel(place_of(request), request.path_params["id"])
        return StarletteResponse(status_code=204) if cancelled else self.failing(404)

    async def create_payment(self, request: Request) -> Response:
        made = self._made(request)
        if made is None:
            return self.failing(404)
        asked = _the_one("payments", await request.body())
        internal = asked.get("kind") in _INTERNAL
        needed = ["amount_in_cents", "currency", "kind", *(_GATEWAY if internal else ["paid_at"])]
        if errors := {name: _BLANK for name in needed if not asked.get(name)}:
            raise _Invalid(**errors)
        if asked["kind"] not in _KINDS:
            raise _Invalid(kind="is not included in the list")
        payment_id = len(self._payments) + 1
        self._payments[payment_id] = (made, int(asked["amount_in_cents"]))
        if not internal:
            self._paid.add(payment_id)
        return _answer_of(201, {"payments": [{**asked, "id": payment_id, "links": {"bookings": [made.id]}}]})

    async def charge(self, request: Request) -> Response:
        try:
            order = from_json(await request.body())
        except ValueError:
            return self.failing(400)
        payment_id = order.get("tentative_payment_id") or 0
        card = "card_number cardholder_name expires_at_month expires_at_year security_code".split()
        needed = ("tentative_payment_id", *card, *"address1 zip city country_code".split(), *_GATEWAY)
        errors = {name: [_BLANK] for name in needed if not order.get(name)}
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
                return Response(202, to_json({"gateway_name": order["gateway_name"], "uuid": f"uuid-{payment_id}"}))
        self._paid.add(payment_id)
        return Response(200, b"")

    def _made(self, request: Request) -> Made | None:
        place = place_of(request)
        self._end_tentative(place)
        return next((made for made in self._world.at(place) if made.id == request.path_params["id"]), None)

    def _end_tentative(self, place: str) -> None:
        for made in list(self._held[place]):
            shown = self._shown(made)
            tentative = shown["status"] == "Tentative"
            if tentative and datetime.fromisoformat(shown["tentative_expires_at"]) > self._world.clock.now():
                continue
            self._held[place].remove(made)
            if tentative and made in self._world.at(place):
                self._world.cancel(place, made.id)

    def _shown(self, made: Made) -> dict[str, Any]:
        booking: dict[str, Any] = from_json(made.answer)
        cents = {payment_id: cents for payment_id, (paid_for, cents) in self._payments.items() if paid_for is made}
        booking["links"]["payments"] = list(cents)
        if paid := Decimal(sum(cents[payment_id] for payment_id in self._paid & cents.keys())) / 100:
            left = Decimal(booking["final_price"] or 0) - paid
            booking |= {"paid_amount": format(paid, "f"), "payment_left_to_collect": format(left, "f")}
            booking |= {"status": "Booked", "booked": True}
        cancelled_at = self._world.cancelled_at(made)
        return booking if cancelled_at is None else {**booking, "status": "Canceled", "canceled_at": cancelled_at}


# --- the bodies of requests and responses ---


class _Invalid(Exception):
    def __init__(self, **errors: str) -> None:
        super().__init__(*errors)
        self.answer = _answer_of(422, {"errors": {field: [message] for field, message in errors.items()}})


def _answer_of(status: int, body: Mapping[str, Any], headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    return Response(status, to_json(body), headers, _MEDIA_TYPE)


def _the_one(resources: str, content: bytes) -> dict[str, Any]:
    """The one resource in a body; BookingSync wraps it in a list under its plural. Raises `_Invalid`."""
    try:
        [one] = from_json(content)[resources]
        resource = {**one}
    except (KeyError, TypeError, ValueError) as error:
        raise _Invalid(base=f"one of {resources} is expected") from error
    return resource


def _day(text: str | None, default: date) -> date:
    try:
        return default if text is None else date.fromisoformat(text[:10])
    except ValueError:
        return default


def _quoted(rental: str, nights: int) -> dict[str, Any]:
    """A rental with its price: so much a night, the cleaning, and a tax on the nights."""
    initial = Decimal(100) * nights
    tax = initial * 10 / 100
    final = float(initial + 50 + tax)
    taxes: dict[str, Any] = {"name": {"en": "Tourist tax"}, "percentage": "10", "amount": f"{tax}", "included": False}
    taxes |= {"taxable_type": "Rental", "taxable_id": 1, "tax_id": 5}
    fee: dict[str, Any] = {"name": {"en": "Cleaning"}, "required": True, "price": "50", "quantity": 1}
    fee |= {"id": 9, "rentals_fee_id": 10}
    prices = {"initial_price": float(initial), "final_price": final, "price_to_pay_now": final}
    return {"id": _number(rental), "currency": "EUR", **prices, "price_details": {"taxes": [taxes], "fees": [fee]}}


def _number(rental: str) -> int | str:
    return int(rental) if rental.isdecimal() else rental


def _booking_shown(made_id: int, rental: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    comments = [
        {"id": made_id * 100 + place, "content": comment.get("content"), "links": {"booking": made_id}}
        for place, comment in enumerate(asked.get("comments") or (), 1)
    ]
    again = "tentative_expires_at currency notes adults children external_reference"
    price, booked = asked.get("final_price"), bool(asked.get("booked"))
    initial = asked.get("initial_price") or price
    links: dict[str, Any] = {"account": 1, "rental": _number(rental), "client": asked.get("client_id"), "payments": []}
    shown: dict[str, Any] = {
        "links": {**links, "booking_comments": [comment["id"] for comment in comments]},
        "id": made_id,
        "start_at": f"{str(asked['start_at'])[:10]}T16:00:00Z",
        "end_at": f"{str(asked['end_at'])[:10]}T10:00:00Z",
        "status": "Booked" if booked else "Tentative",
        "reference": f"{made_id:06X}",
        "booked": booked,
        "unavailable": False,
        **dict.fromkeys(("initial_price", "initial_rental_price", "final_rental_price"), initial),
        "final_price": price,
        "paid_amount": "0.0",
        "payment_left_to_collect": price,
        "canceled_at": None,
        "payment_url": f"https://pay.example/{made_id}",
        "door_key_code": None,
        "owned_by_app": True,
        **{name: asked.get(name) for name in (*again.split(), "expected_checkin_time", "expected_checkout_time")},
    }
    if comments:
        shown["booking_comments"] = comments
    if asked.get("bookings_fees") or asked.get("bookings_taxes"):
        fees, taxes = (enumerate(asked.get(f"bookings_{kind}", ()), 1) for kind in ("fees", "taxes"))
        try:
            shown["bookings_fees"] = [
                {"id": position, "name": {"en": fee["name"]}, "price": format(Decimal(fee["price"]), "f")}
                | {"included_in_price": True, "times_booked": int(fee["times_booked"])}
                for position, fee in fees
            ]
            shown["bookings_taxes"] = [
                {"id": position, "name": {"en": tax["name"]}, "tax_included_in_price": tax["included"]}
                | {"percentage": tax.get("percentage"), "amount": format(Decimal(tax["amount"]), "f")}
                for position, tax in taxes
            ]
        except InvalidOperation as error:
            raise _Invalid(base="is not a number") from error
    return shown


# --- the authorization server ---

LIFE: Final = timedelta(hours=2)
_ACCESS, _REFRESH = "sim-access-", "sim-refresh-"
_WRONG: Final = "wrong"
_NOT_STORED: Final = ((b"cache-control", b"no-store"),)


@dataclass(slots=True)
class _Token:
    """An access token. `replaces`: the refresh token that ends, together with its access token, when this one is first used."""

    ends: datetime
    refresh: str
    replaces: str


class _TokenServer:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._issued: defaultdict[str, dict[str, _Token]] = defaultdict(dict)
        self._ended: set[tuple[str, str]] = set()
        self._numbers = itertools.count(1)

    def lets_in(self, request: Request) -> bool:
        """Whether the request's access token is valid; marks it as used."""
        token, place = bearer_of(request), _account_of(request)
        if not token.startswith(_ACCESS):
            return True
        known = self._issued[place].get(token)
        if known is None or known.ends <= self._clock.now():
            return False
        self._ended.add((place, known.replaces))
        for other in self._issued[place].values():
            if other.refresh == known.replaces:
                other.ends = self._clock.now()
        return True

    async def token(self, request: Request) -> Response:
        form, place = await _form(request), _account_of(request)
        if form.get("client_secret") in (None, "", _WRONG) or not form.get("client_id"):
            return _error("invalid_client")
        if form.get("grant_type") != "refresh_token":
            return _error("unsupported_grant_type")
        refresh = form.get("refresh_token", "")
        unknown = refresh not in {token.refresh for token in self._issued[place].values()}
        if refresh in ("", _WRONG) or (refresh.startswith(_REFRESH) and unknown) or (place, refresh) in self._ended:
            return _error("invalid_grant")
        number = next(self._numbers)
        access, following = f"{_ACCESS}{number}", f"{_REFRESH}{number}"
        self._issued[place][access] = _Token(self._clock.now() + LIFE, following, refresh)
        pair = {"access_token": access, "refresh_token": following, "expires_in": int(LIFE.total_seconds())}
        return Response(200, to_json({**pair, "token_type": "bearer", "scope": "public bookings_write"}), _NOT_STORED)

    async def revoke(self, request: Request) -> Response:
        known = self._issued[_account_of(request)].get((await _form(request)).get("token", ""))
        if known is not None:
            known.ends = self._clock.now()
        return Response(200, b"{}", _NOT_STORED)


def _account_of(request: Request) -> str:
    return place_of(request).removesuffix("/api/v3")


async def _form(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs((await request.body()).decode("latin-1")).items()}


def _error(code: str) -> Response:
    return Response(401, to_json({"error": code, "error_description": f"The simulator says {code}."}), _NOT_STORED)

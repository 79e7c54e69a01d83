"""Simulated BookingSync (Smily) API v3, as its documentation and recorded traffic show it. No idempotency: every POST books.

A rental `unknown` is not found; a client at `refused.example` is refused. A rental is a room.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, assert_never

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from forwarder.runtime.http import Answer
from forwarder.simulator.http import Gate, below_any_base, name_of, place_of
from forwarder.simulator.world import KeyReused, Made, Replayed, Taken, Wanted, World

_MEDIA_TYPE = b"application/vnd.api+json; charset=utf-8"
_MOST_PER_PAGE = 100
_SAID = {401: "Not authorized", 404: "Not found", 429: "API v3 rate limit exceeded."}


class _Invalid(Exception):
    """The 422 of BookingSync."""

    def __init__(self, **errors: str) -> None:
        super().__init__(*errors)
        self.answer = _answer(422, {"errors": {field: [message] for field, message in errors.items()}})


def booking_sync_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _BookingSync(world)
    gate = Gate(world, pms.failing)
    endpoints = {
        ("POST", "/clients"): gate.endpoint(pms.create_client),
        ("POST", "/rentals/{rental}/bookings"): gate.endpoint(pms.create_booking, books=True),
        ("GET", "/bookings"): gate.endpoint(pms.list_bookings),
        ("DELETE", "/bookings/{id:int}"): gate.endpoint(pms.cancel_booking),
    }
    return [route for (method, path), endpoint in endpoints.items() for route in below_any_base(path, method, endpoint)]


class _BookingSync:
    def __init__(self, world: World) -> None:
        self._world = world
        self._clients = 0

    def failing(self, status: int, retry_after: float | None = None) -> Answer:
        """An error, with the moment, in unix time, from which requests are taken again."""
        answer = _answer(status, {"error": _SAID.get(status, f"HTTP {status}, as ordered")})
        if retry_after is None:
            return answer
        reset = math.ceil(self._world.clock.now().timestamp() + retry_after)
        limits = (
            (b"x-ratelimit-limit", b"1000"),
            (b"x-ratelimit-remaining", b"0"),
            (b"x-ratelimit-reset", b"%d" % reset),
        )
        return Answer(status, answer.body, limits, _MEDIA_TYPE)

    async def create_client(self, request: Request) -> Answer:
        try:
            client = _the_one("clients", await request.body())
            _check_client(client)
        except _Invalid as invalid:
            return invalid.answer
        self._clients += 1
        return _answer(201, {"clients": [{**client, "id": self._clients, "links": {"account": 1}}], "meta": {}})

    async def create_booking(self, request: Request) -> Answer:
        if request.path_params["rental"] == "unknown":
            return self.failing(404)
        try:
            wanted = self._wanted(request, _the_one("bookings", await request.body()))
        except _Invalid as invalid:
            return invalid.answer
        booked = self._world.book(wanted)
        match booked:
            case Made():
                location = (b"location", f"{request.base_url}bookings/{booked.id}".encode())
                return Answer(201, b'{"links":{},"bookings":[' + booked.answer + b"]}", (location,), _MEDIA_TYPE)
            case Taken():
                return _Invalid(start_at="is not available", end_at="is not available").answer
            case Replayed() | KeyReused():
                raise AssertionError("a booking without a key has no other by its key")
            case _:
                assert_never(booked)

    async def list_bookings(self, request: Request) -> Answer:
        query = request.query_params
        per_page = min(int(query.get("per_page", _MOST_PER_PAGE)), _MOST_PER_PAGE)
        page = max(int(query.get("page", 1)), 1)
        found = [made for made in self._world.at(place_of(request)) if self._matches(made, query)]
        shown = [self._shown(made) for made in found[(page - 1) * per_page : page * per_page]]
        pages = max(math.ceil(len(found) / per_page), 1)
        counts = (
            (b"x-total-pages", b"%d" % pages),
            (b"x-total-count", b"%d" % len(found)),
            (b"x-per-page", b"%d" % per_page),
        )
        return Answer(200, to_json({"links": {}, "bookings": shown, "meta": {}}), counts, _MEDIA_TYPE)

    async def cancel_booking(self, request: Request) -> ASGIApp:
        cancelled = self._world.cancel(place_of(request), request.path_params["id"])
        return Response(status_code=204) if cancelled else self.failing(404)

    def _matches(self, made: Made, query: Mapping[str, str]) -> bool:
        rentals = query.get("rental_id")
        return (
            (rentals is None or made.room in rentals.split(","))
            and made.departure > _day(query.get("from"), self._world.clock.now().date())
            and made.arrival < _day(query.get("until"), date.max)
            and (query.get("include_canceled") == "true" or self._world.cancelled_at(made) is None)
        )

    def _shown(self, made: Made) -> dict[str, Any]:
        booking: dict[str, Any] = from_json(made.answer)
        cancelled_at = self._world.cancelled_at(made)
        return booking if cancelled_at is None else {**booking, "status": "Canceled", "canceled_at": cancelled_at}

    def _wanted(self, request: Request, booking: Mapping[str, Any]) -> Wanted:
        rental = request.path_params["rental"]
        arrival, departure = (_night(booking, field) for field in ("start_at", "end_at"))
        if departure <= arrival:
            raise _Invalid(start_at="must be before end_at")
        return Wanted(
            name=name_of(request),
            place=place_of(request),
            room=rental,
            arrival=arrival,
            departure=departure,
            reference=str(booking.get("external_reference") or ""),
            answer=lambda made_id: to_json(_booking(made_id, rental, booking)),
        )


def _answer(status: int, body: Mapping[str, Any]) -> Answer:
    return Answer(status, to_json(body), media_type=_MEDIA_TYPE)


def _the_one(resources: str, content: bytes) -> dict[str, Any]:
    """The one resource in a body; BookingSync wraps it in a list under its plural."""
    try:
        [resource] = from_json(content)[resources]
    except (KeyError, TypeError, ValueError) as error:
        raise _Invalid(base=f"one of {resources} is expected") from error
    if not isinstance(resource, dict):
        raise _Invalid(base=f"one of {resources} is expected")
    return resource


def _check_client(client: Mapping[str, Any]) -> None:
    if not client.get("fullname"):
        raise _Invalid(fullname="can't be blank")
    emails: Sequence[Mapping[str, Any]] = client.get("emails", [])
    if any(str(email.get("email", "")).endswith("@refused.example") for email in emails):
        raise _Invalid(emails="is invalid")


def _night(booking: Mapping[str, Any], field: str) -> date:
    try:
        return date.fromisoformat(str(booking[field])[:10])
    except (KeyError, ValueError) as error:
        raise _Invalid(**{field: "can't be blank"}) from error


def _day(text: str | None, default: date) -> date:
    try:
        return default if text is None else date.fromisoformat(text[:10])
    except ValueError:
        return default


def _booking(made_id: int, rental: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    price = asked.get("final_price")
    return {
        "links": {
            "account": 1,
            "rental": int(rental) if rental.isdecimal() else rental,
            "client": asked.get("client_id"),
        },
        "id": made_id,
        "start_at": f"{str(asked['start_at'])[:10]}T16:00:00Z",
        "end_at": f"{str(asked['end_at'])[:10]}T10:00:00Z",
        "status": "Booked" if asked.get("booked") else "Tentative",
        "reference": f"{made_id:06X}",
        "booked": bool(asked.get("booked")),
        "unavailable": False,
        "initial_price": price,
        "final_price": price,
        "paid_amount": "0.0",
        "payment_left_to_collect": price,
        "currency": asked.get("currency"),
        "notes": asked.get("notes"),
        "adults": asked.get("adults"),
        "children": asked.get("children"),
        "canceled_at": None,
        "expected_checkin_time": asked.get("expected_checkin_time"),
        "expected_checkout_time": asked.get("expected_checkout_time"),
        "payment_url": f"https://pay.example/{made_id}",
        "door_key_code": None,
        "external_reference": asked.get("external_reference"),
        "owned_by_app": True,
    }

"""Simulated Beds24 API v2, as its OpenAPI file and wiki describe it, at base URLs that end in `/beds24/v2`.

No idempotency: every item without an id books. Room 404 is not known; a guest at `refused.example` is refused. A token is had
for any refresh token but `wrong`. Errors of an item stand in its response, which is 201 whatever becomes of the items.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, Final, assert_never

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from forwarder.http.messages import Response
from forwarder.simulator.bookings import CardDeclined, KeyReused, Made, OtherPrice, Replayed, Taken, Wanted
from forwarder.simulator.http import Guard, below_base_ending_in, book, name_of, place_of
from forwarder.simulator.magic import Effect, effect_of
from forwarder.simulator.world import World

_BASE: Final = "beds24/v2"
_PER_PAGE: Final = 100
_UNKNOWN_ROOM: Final = 404
_DAY_SECONDS: Final = 24 * 60 * 60
_SHOWN_BY_DEFAULT: Final = ("confirmed", "request", "new", "black", "inquiry")
_SAID = {401: "Token is missing or not valid", 429: "Credit limit exceeded"}


class _Fault(Exception):
    """The error of one item."""

    def __init__(self, action: str, field: str, message: str) -> None:
        super().__init__(field, message)
        self.answer = {"success": False, "errors": [{"action": action, "field": field, "message": message}]}


def beds24_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _Beds24(world)
    guard = Guard(world, failing, _credential_of)
    create, change = guard.endpoint(pms.post, books=True), guard.endpoint(pms.post)

    async def post(request: Request) -> ASGIApp:
        changes = all("id" in item for item in _items(await request.body()))
        return await (change if changes else create)(request)

    endpoints = {
        ("GET", "/authentication/token"): guard.endpoint(pms.token),
        ("POST", "/bookings"): post,
        ("GET", "/bookings"): guard.endpoint(pms.list_bookings),
    }
    return [
        route
        for (method, path), endpoint in endpoints.items()
        for route in below_base_ending_in(_BASE, path, method, endpoint)
    ]


def failing(status: int, retry_after: float | None = None) -> Response:
    """An error, with the credits of these five minutes used up where there is a wait."""
    body = {"success": False, "type": "error", "code": status, "error": _SAID.get(status, f"HTTP {status}, as ordered")}
    if retry_after is None:
        return Response(status, to_json(body))
    seconds = b"%d" % round(retry_after)
    if status != 429:  # noqa: PLR2004 - the gateway in front of it has no credits to speak of
        return Response(status, to_json(body), ((b"retry-after", seconds),))
    credits_ = (
        (b"x-fivemincreditlimit", b"100"),
        (b"x-fivemincreditlimit-remaining", b"0"),
        (b"x-fivemincreditlimit-resetsin", seconds),
    )
    return Response(status, to_json(body), credits_)


def _credential_of(request: Request) -> str:
    return request.headers.get("token") or request.headers.get("refreshtoken", "")


class _Beds24:
    def __init__(self, world: World) -> None:
        self._world = world

    async def token(self, request: Request) -> Response:
        digest = hashlib.sha256(request.headers.get("refreshtoken", "").encode()).hexdigest()
        return Response(200, to_json({"token": f"access-{digest}", "expiresIn": _DAY_SECONDS}))

    async def post(self, request: Request) -> Response:
        items = _items(await request.body())
        if not items:
            return failing(400)
        self._require_up(request, items)
        return Response(201, to_json([self._posted(request, item) for item in items]))

    def _require_up(self, request: Request, items: Sequence[Mapping[str, Any]]) -> None:
        """Before anything is booked: a 503 says of all of them that nothing was done."""
        for item in items:
            if _effect(item) is Effect.DOWN:
                with suppress(_Fault):
                    self._world.require_up(_wanted(request, item))

    def _posted(self, request: Request, item: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._changed(request, item) if "id" in item else self._created(request, item)
        except _Fault as fault:
            return fault.answer

    def _created(self, request: Request, item: Mapping[str, Any]) -> dict[str, Any]:
        booked = book(self._world, request, _wanted(request, item))
        match booked:
            case Made():
                info = {"action": "new booking", "field": "id", "message": f"booking {booked.id} was added"}
                return {"success": True, "new": from_json(booked.answer), "info": [info]}
            case Taken():
                raise _Fault("new booking", "roomId", "no availability for these dates")
            case OtherPrice():
                raise _Fault("new booking", "price", "the price has changed")
            case CardDeclined():
                raise _Fault("new booking", "", "the card was declined")
            case Replayed() | KeyReused():
                raise AssertionError("a booking without a key has no other by its key")
            case _:
                assert_never(booked)

    def _changed(self, request: Request, item: Mapping[str, Any]) -> dict[str, Any]:
        if item.get("status") != "cancelled":
            raise _Fault("modify booking", "status", "this simulation knows no other change")
        if not isinstance(item["id"], int) or not self._world.cancel(place_of(request), item["id"]):
            raise _Fault("modify booking", "id", "booking does not exist")
        return {"success": True, "modified": {"id": item["id"], "status": "cancelled"}}

    async def list_bookings(self, request: Request) -> Response:
        query = request.query_params
        arrival, ids = query.get("arrival"), query.getlist("id")
        statuses = query.getlist("status") or _SHOWN_BY_DEFAULT
        near = [
            self._shown(made)
            for made in self._world.at(place_of(request))
            if (arrival is None or made.arrival.isoformat() == arrival) and (not ids or str(made.id) in ids)
        ]
        found = [booking for booking in near if booking["status"] in statuses]
        page = max(int(query.get("page", "1")), 1)
        shown = found[(page - 1) * _PER_PAGE : page * _PER_PAGE]
        more = len(found) > page * _PER_PAGE
        pages = {"nextPageExists": more} | ({"nextPageLink": f"{request.url.path}?page={page + 1}"} if more else {})
        body = {"success": True, "type": "booking", "count": len(shown), "pages": pages, "data": shown}
        return Response(200, to_json(body))

    def _shown(self, made: Made) -> dict[str, Any]:
        booking: dict[str, Any] = from_json(made.answer)
        cancelled_at = self._world.cancelled_at(made)
        return booking if cancelled_at is None else {**booking, "status": "cancelled", "cancelTime": cancelled_at}


def _items(content: bytes) -> list[dict[str, Any]]:
    """The items of a POST; none where it is not a list of objects."""
    try:
        items = from_json(content)
    except ValueError:
        return []
    return items if isinstance(items, list) and all(isinstance(item, dict) for item in items) else []


def _wanted(request: Request, item: Mapping[str, Any]) -> Wanted:
    room = item.get("roomId")
    if not isinstance(room, int) or room == _UNKNOWN_ROOM:
        raise _Fault("new booking", "roomId", "room does not exist")
    if not item.get("actions", {}).get("checkAvailability"):
        raise _Fault("new booking", "actions", "this simulation makes no booking without checking availability")
    if str(item.get("email", "")).endswith("@refused.example"):
        raise _Fault("new booking", "email", "this guest is not welcome")
    arrival, departure = (_night(item, field) for field in ("arrival", "departure"))
    if departure <= arrival:
        raise _Fault("new booking", "departure", "must be after arrival")
    return Wanted(
        name=name_of(request),
        place=place_of(request),
        room=str(room),
        arrival=arrival,
        departure=departure,
        reference=_reference(item),
        answer=lambda made_id: to_json(_booking(made_id, item)),
        effect=_effect(item),
    )


def _effect(item: Mapping[str, Any]) -> Effect | None:
    return effect_of(item.get("lastName"), item.get("roomId"))


def _night(item: Mapping[str, Any], field: str) -> date:
    try:
        return date.fromisoformat(str(item[field]))
    except (KeyError, ValueError) as error:
        raise _Fault("new booking", field, "a date is needed") from error


def _reference(item: Mapping[str, Any]) -> str:
    """What the world counts a booking's repetitions by: the first of the custom fields that is used."""
    return next((str(item[name]) for name in (f"custom{number}" for number in range(1, 11)) if item.get(name)), "")


def _booking(made_id: int, item: Mapping[str, Any]) -> dict[str, Any]:
    customs = {f"custom{number}": "" for number in range(1, 11)}
    asked = {name: value for name, value in item.items() if name != "actions"}
    return {
        **customs,
        "propertyId": 1,
        "unitId": 1,
        "tax": 0,
        "deposit": 0,
        "apiReference": "",
        "apiSource": "Direct",
        **asked,
        "id": made_id,
        "cancelTime": None,
    }

"""Simulated Hostaway Public API v1, as its documentation describes it, at base URLs that end in `/hostaway/v1`.

No idempotency: every POST books. Listing 404 is not known; a guest at `refused.example` is refused. Any client is given a token
but one whose secret is `wrong`; a token `expired` is refused as one that has ended. A refusal is a 200 with `status: "fail"`.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any, Final, assert_never
from urllib.parse import parse_qs

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.routing import BaseRoute

from forwarder.http.messages import Response
from forwarder.simulator.bookings import CardDeclined, KeyReused, Made, OtherPrice, Replayed, Taken, Wanted
from forwarder.simulator.http import Guard, bearer_of, below_base_ending_in, book, name_of, place_of
from forwarder.simulator.magic import effect_of
from forwarder.simulator.world import World

_BASE: Final = "hostaway/v1"
_MOST_PER_PAGE: Final = 100
_UNKNOWN_LISTING: Final = 404
_NO_SUCH_LISTING: Final = "Listing not found"
_TOKEN_SECONDS: Final = 15_897_600
_SAID = {401: "Access denied", 403: "Access denied", 404: "Resource not found", 429: "The rate limits are exceeded"}


class _Fail(Exception):
    """Hostaway's no."""

    def __init__(self, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.answer = Response(status, to_json({"status": "fail", "result": message}))


def hostaway_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _Hostaway(world)
    guard, open_guard = Guard(world, failing, _credential_of), Guard(world, failing, lambda _: "in the form")
    endpoints = {
        ("POST", "/accessTokens"): open_guard.endpoint(pms.token),
        ("POST", "/reservations"): guard.endpoint(pms.create, books=True),
        ("GET", "/reservations"): guard.endpoint(pms.list_reservations),
        ("GET", "/reservations/{id:int}"): guard.endpoint(pms.show),
        ("PUT", "/reservations/{id:int}/statuses/cancelled"): guard.endpoint(pms.cancel),
    }
    return [
        route
        for (method, path), endpoint in endpoints.items()
        for route in below_base_ending_in(_BASE, path, method, endpoint)
    ]


def failing(status: int, retry_after: float | None = None) -> Response:
    """An error that says no more than its status; who is not let in is told so by a 403."""
    body = {"status": "fail", "message": _SAID.get(status, f"HTTP {status}, as ordered")}
    headers = () if retry_after is None else ((b"retry-after", b"%d" % round(retry_after)),)
    return Response(403 if status == 401 else status, to_json(body), headers)  # noqa: PLR2004 - HTTP's own numbers


def _credential_of(request: Request) -> str:
    token = bearer_of(request)
    return "" if token == "expired" else token  # noqa: S105 - the name of a token that is none any more


class _Hostaway:
    def __init__(self, world: World) -> None:
        self._world = world

    async def token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        known = form.get("grant_type") == "client_credentials" and form.get("client_secret") not in (None, "wrong")
        if not known:
            return Response(401, to_json({"error": "invalid_client", "message": "Client authentication failed"}))
        token = {
            "token_type": "Bearer",
            "expires_in": _TOKEN_SECONDS,
            "access_token": f"token-of-{form.get('client_id')}",
        }
        return Response(200, to_json(token))

    async def create(self, request: Request) -> Response:
        try:
            booked = book(self._world, request, _wanted(request, await request.body()))
        except _Fail as fail:
            return fail.answer
        match booked:
            case Made():
                return Response(200, b'{"status":"success","result":' + booked.answer + b"}")
            case Taken():
                return _Fail("Listing is not available for these dates").answer
            case OtherPrice():
                return _Fail("The price has changed").answer
            case CardDeclined():
                return _Fail("The credit card was declined").answer
            case Replayed() | KeyReused():
                raise AssertionError("a booking without a key has no other by its key")
            case _:
                assert_never(booked)

    async def list_reservations(self, request: Request) -> Response:
        query = request.query_params
        found = sorted(
            (made for made in self._world.at(place_of(request)) if _matches(made, query)),
            key=lambda made: (made.arrival, made.id),
        )
        after = next((index for index, made in enumerate(found, 1) if str(made.id) == query.get("afterId")), 0)
        limit = min(int(query.get("limit", _MOST_PER_PAGE)), _MOST_PER_PAGE)
        shown = [self._shown(made) for made in found[after : after + limit]]
        body = {"status": "success", "result": shown, "limit": limit, "offset": None, "count": len(found)}
        return Response(200, to_json(body))

    async def show(self, request: Request) -> Response:
        made = self._made(request)
        return failing(404) if made is None else _success(self._shown(made))

    async def cancel(self, request: Request) -> Response:
        body = from_json(await request.body() or b"null")
        if not isinstance(body, dict) or body.get("cancelledBy") not in ("host", "guest"):
            return _Fail("cancelledBy must be host or guest", 422).answer
        made = self._made(request)
        if made is None:
            return failing(404)
        if self._world.cancelled_at(made) is not None:
            return _Fail("Reservation is already cancelled").answer
        self._world.cancel(made.place, made.id)
        return _success(self._shown(made))

    def _made(self, request: Request) -> Made | None:
        made_id = request.path_params["id"]
        return next((made for made in self._world.at(place_of(request)) if made.id == made_id), None)

    def _shown(self, made: Made) -> dict[str, Any]:
        reservation: dict[str, Any] = from_json(made.answer)
        cancelled_at = self._world.cancelled_at(made)
        if cancelled_at is None:
            return reservation
        return {**reservation, "status": "cancelled", "cancelledBy": "guest", "cancellationDate": cancelled_at[:10]}


def _success(result: Mapping[str, Any]) -> Response:
    return Response(200, to_json({"status": "success", "result": result}))


def _matches(made: Made, query: Mapping[str, str]) -> bool:
    arrival = made.arrival.isoformat()
    first, last = query.get("arrivalStartDate", arrival), query.get("arrivalEndDate", arrival)
    return query.get("listingId", made.room) == made.room and first <= arrival <= last


def _wanted(request: Request, content: bytes) -> Wanted:
    body = _object(content)
    listing = body.get("listingMapId")
    if not isinstance(listing, int) or listing == _UNKNOWN_LISTING:
        raise _Fail(_NO_SUCH_LISTING, 404)
    if not isinstance(body.get("channelId"), int):
        raise _Fail("channelId is required")
    if str(body.get("guestEmail", "")).endswith("@refused.example"):
        raise _Fail("guestEmail is not valid")
    arrival, departure = (_night(body, field) for field in ("arrivalDate", "departureDate"))
    if departure <= arrival:
        raise _Fail("departureDate must be after arrivalDate")
    return Wanted(
        name=name_of(request),
        place=place_of(request),
        room=str(listing),
        arrival=arrival,
        departure=departure,
        reference=str(body.get("customerUserId") or ""),
        answer=lambda made_id: to_json(_reservation(made_id, body)),
        effect=effect_of(body.get("guestLastName"), body.get("guestName"), listing),
    )


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = from_json(content)
    except ValueError as error:
        raise _Fail("The body is not JSON", 400) from error
    if not isinstance(body, dict):
        raise _Fail("The body is not an object", 400)
    return body


def _night(body: Mapping[str, Any], field: str) -> date:
    try:
        return date.fromisoformat(str(body[field]))
    except (KeyError, ValueError) as error:
        raise _Fail(f"{field} must be a date") from error


def _reservation(made_id: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    listing, price = asked["listingMapId"], asked.get("totalPrice")
    channel_id = f"{listing}-{made_id}"
    reservation = {
        "source": "hostawaydirect",
        "channelName": "direct",
        "customerUserId": None,
        "cancellationDate": None,
        "cancelledBy": None,
        "doorCode": f"{made_id * 7919 % 10_000:04d}",
        **asked,
        "id": made_id,
        "hostawayReservationId": made_id,
        "reservationId": channel_id,
        "channelReservationId": channel_id,
        "status": "new",
        "isPaid": 0,
    }
    if price is not None:
        reservation["remainingBalance"] = price
        reservation["financeField"] = [
            {"id": made_id, "type": "price", "name": "baseRate", "title": "Base rate", "total": price, "isDeleted": 0}
        ]
    return reservation

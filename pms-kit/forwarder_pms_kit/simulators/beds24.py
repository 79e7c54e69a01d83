"""Simulated Beds24 API v2, as its OpenAPI file and wiki describe it, at base URLs that end in `/beds24/v2`.

Every item without an id books. Room 404 is not known. A token is had for any refresh token but `wrong`. Errors of an item stand in
its response, which is 201 whatever becomes of the items.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from forwarder.http.messages import Response
from forwarder.simulator.world import Effect, Made
from forwarder_pms_kit.simulators.common import Body, Endpoints, HostedPms, No, Stay, answer, asked_for

_PER_PAGE = 100
_UNKNOWN_ROOM = 404
_DAY_SECONDS = 24 * 60 * 60
_THROTTLED = 429
_SHOWN_BY_DEFAULT = ("confirmed", "request", "new", "black", "inquiry")
_SAID = {401: "Token is missing or not valid", 429: "Credit limit exceeded"}
_CUSTOMS = tuple(f"custom{number}" for number in range(1, 11))
_FIELDS = {"taken": "roomId", "property": "roomId", "guest": "email", "invalid": "arrival", "missing": "id"}
"""The field of the error by the reason of a refusal."""


class Beds24(HostedPms):
    """Beds24."""

    base, creates = "beds24/v2", "/bookings"

    def endpoints(self) -> Endpoints:
        return {("GET", "/authentication/token"): self.token, ("GET", "/bookings"): self.list_bookings}

    def routes(self) -> list[BaseRoute]:
        create, change = self.guarded(self.post, books=True), self.guarded(self.post)

        async def post(request: Request) -> ASGIApp:
            changes = all("id" in item for item in _items(await request.body()))
            return await (change if changes else create)(request)

        return [*super().routes(), *self.route("POST", self.creates, post)]

    def error(self, status: int, said: str) -> object:
        return {"success": False, "type": "error", "code": status, "error": _SAID.get(status, said)}

    def failing(self, status: int, retry_after: float | None = None) -> Response:
        """An error, with the credits of these five minutes used up where there is a wait. The gateway in front of it has no credits
        to speak of."""
        if status != _THROTTLED or retry_after is None:
            return super().failing(status, retry_after)
        credits_ = (
            (b"x-fivemincreditlimit", b"100"),
            (b"x-fivemincreditlimit-remaining", b"0"),
            (b"x-fivemincreditlimit-resetsin", b"%d" % round(retry_after)),
        )
        return Response(status, to_json(self.error(status, "")), credits_)

    def credential_of(self, request: Request) -> str:
        return request.headers.get("token") or request.headers.get("refreshtoken", "")

    async def token(self, request: Request) -> Response:
        digest = hashlib.sha256(request.headers.get("refreshtoken", "").encode()).hexdigest()
        return answer(200, {"token": f"access-{digest}", "expiresIn": _DAY_SECONDS})

    async def post(self, request: Request) -> Response:
        items = _items(await request.body())
        if not items:
            return self.failing(400)
        for item in items:  # before anything is booked: a 503 says of all of them that nothing was done
            with suppress(No):
                wanted = None if "id" in item else self.wanted(request, _stay(item), item)
                if wanted is not None and wanted.effect is Effect.DOWN:
                    self.world.require_up(wanted)
        return answer(201, [self._posted(request, item) for item in items])

    def _posted(self, request: Request, item: Mapping[str, Any]) -> dict[str, Any]:
        if "id" in item and item.get("status") != "cancelled":
            return _error("modify booking", "status", "this simulation knows no other change")
        action = "modify booking" if "id" in item else "new booking"
        try:
            if "id" in item:
                self.cancel(self.one(request, item["id"]))
                return {"success": True, "modified": {"id": item["id"], "status": "cancelled"}}
            made = self.book(request, _stay(item), item)
        except No as no:
            return _error(action, _FIELDS.get(no.why, no.why), str(no))
        info = {"action": action, "field": "id", "message": f"booking {made.id} was added"}
        return {"success": True, "new": self.shown(made), "info": [info]}

    async def list_bookings(self, request: Request) -> Response:
        query = request.query_params
        arrival, ids = query.get("arrival"), query.getlist("id")
        statuses = query.getlist("status") or _SHOWN_BY_DEFAULT
        near = [
            self.shown(made)
            for made in self.bookings(request)
            if (arrival is None or made.arrival.isoformat() == arrival) and (not ids or str(made.id) in ids)
        ]
        found = [booking for booking in near if booking["status"] in statuses]
        page = max(int(query.get("page", "1")), 1)
        shown = found[(page - 1) * _PER_PAGE : page * _PER_PAGE]
        more = len(found) > page * _PER_PAGE
        pages = {"nextPageExists": more} | ({"nextPageLink": f"{request.url.path}?page={page + 1}"} if more else {})
        return answer(200, {"success": True, "type": "booking", "count": len(shown), "pages": pages, "data": shown})

    def shown(self, made: Made) -> Body:
        cancelled_at = self.world.cancelled_at(made)
        return {
            **dict.fromkeys(_CUSTOMS, ""),
            "propertyId": 1,
            "unitId": 1,
            "tax": 0,
            "deposit": 0,
            "apiReference": "",
            "apiSource": "Direct",
            **{name: value for name, value in asked_for(made).items() if name != "actions"},
            "id": made.id,
            "cancelTime": cancelled_at,
            **({} if cancelled_at is None else {"status": "cancelled"}),
        }


def _items(content: bytes) -> list[dict[str, Any]]:
    try:
        items = from_json(content)
    except ValueError:
        return []
    return items if isinstance(items, list) and all(isinstance(item, dict) for item in items) else []


def _error(action: str, field: str, message: str) -> dict[str, Any]:
    return {"success": False, "errors": [{"action": action, "field": field, "message": message}]}


def _stay(item: Mapping[str, Any]) -> Stay:
    """The world counts a booking's repetitions by the first of the custom fields that is used."""
    room = item.get("roomId")
    if not isinstance(room, int) or room == _UNKNOWN_ROOM:
        raise No("property", "room does not exist")
    if not item.get("actions", {}).get("checkAvailability"):
        raise No("actions", "this simulation makes no booking without checking availability")
    reference = next((str(item[name]) for name in _CUSTOMS if item.get(name)), "")
    dates = (str(item.get("arrival")), str(item.get("departure")))
    return Stay(str(room), *dates, reference, str(item.get("email", "")), str(item.get("lastName", "")))

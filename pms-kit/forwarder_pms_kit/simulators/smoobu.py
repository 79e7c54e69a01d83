"""Simulated Smoobu, at base URLs that end in `/smoobu/api`: signed requests, our reference in the notice alone, numbered pages.

The secret of every key is `a-simulated-secret`. A nonce is taken once.
"""

import base64
import hashlib
import hmac
import re
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from forwarder.http.messages import Response
from forwarder.simulator.bookings import Made
from forwarder.simulator.http import Guard, Handler
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.common import HostedPms, No, Stay, answer, asked_for, failing_as, routes_of

_SECRET = b"a-simulated-secret"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MOST_PER_PAGE = 100
_REFERENCE = re.compile(r"rsv_\w+")


def smoobu_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _Smoobu(world)
    guard = Guard(
        world,
        failing_as(lambda status: {"status": status, "title": f"HTTP {status}"}),
        lambda request: request.headers.get("x-api-key", ""),
    )
    endpoints: dict[tuple[str, str], Handler] = {
        ("POST", "/reservations"): pms.signed(pms.create),
        ("GET", "/reservations"): pms.signed(pms.search),
        ("GET", "/reservations/{id:int}"): pms.signed(pms.show),
        ("DELETE", "/reservations/{id:int}"): pms.signed(pms.delete),
    }
    return routes_of(pms, "smoobu/api", guard, endpoints, creates="/reservations")


def _refused(no: No) -> Response:
    return answer(400, {"status": 400, "title": "Error occurred", "detail": str(no)})


class _Smoobu(HostedPms):
    def __init__(self, world: World) -> None:
        super().__init__(world, _refused)
        self._nonces: set[str] = set()

    def signed(self, handler: Handler) -> Handler:
        """`handler` for requests whose signature is right."""

        async def answered(request: Request) -> ASGIApp:
            if not self._is_signed(request, await request.body()):
                return answer(401, {"status": 401, "title": "Unauthorized"})
            return await handler(request)

        return answered

    def _is_signed(self, request: Request, content: bytes) -> bool:
        headers = request.headers
        nonce, moment = headers.get("x-nonce", ""), headers.get("x-timestamp", "")
        pairs = sorted(parse_qsl(request.url.query, keep_blank_values=True))
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
        path = request.scope["raw_path"].decode("ascii").partition("?")[0]
        parts = [request.method, path, query, moment, nonce, hashlib.sha256(content).hexdigest()]
        text = "\n".join([*parts, headers["x-api-key"]])
        expected = base64.b64encode(hmac.new(_SECRET, text.encode(), hashlib.sha256).digest()).decode()
        fresh = nonce != "" and nonce not in self._nonces and _MOMENT.fullmatch(moment) is not None
        self._nonces.add(nonce)
        return fresh and hmac.compare_digest(expected, headers.get("x-signature", ""))

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        if not isinstance(body.get("apartmentId"), int) or not isinstance(body.get("channelId"), int):
            raise No("invalid", "apartmentId and channelId are numbers")
        named = _REFERENCE.search(str(body.get("notice", "")))
        dates = (str(body.get("arrivalDate")), str(body.get("departureDate")))
        email, last = str(body.get("email", "")), str(body.get("lastName", ""))
        stay = Stay(str(body["apartmentId"]), *dates, named[0] if named else "", email, last)
        return answer(200, {"id": self.book(request, stay, body).id})

    async def search(self, request: Request) -> Response:
        query = request.query_params
        first, last = query.get("arrivalFrom", ""), query.get("arrivalTo", "9")
        size, page = min(int(query.get("pageSize", 25)), _MOST_PER_PAGE), int(query.get("page", 1))
        found = [
            made
            for made in self.bookings(request, query.get("apartmentId"))
            if first <= made.arrival.isoformat() <= last
            and (query.get("showCancellation") == "true" or not self.is_cancelled(made))
        ]
        shown = [self._shown(made) for made in found[(page - 1) * size : page * size]]
        count = -(-len(found) // size)
        return answer(
            200, {"page_count": count, "page_size": size, "total_items": len(found), "page": page, "bookings": shown}
        )

    async def show(self, request: Request) -> Response:
        made = self.one(request)
        return _not_there() if made is None else answer(200, self._shown(made))

    async def delete(self, request: Request) -> Response:
        made = self.one(request)
        if made is None:
            return _not_there()
        self.cancel(made)
        return answer(200, {"success": True})

    def _shown(self, made: Made) -> dict[str, Any]:
        asked = asked_for(made)
        return {
            "id": made.id,
            "type": "cancellation" if self.is_cancelled(made) else "reservation",
            "arrival": asked["arrivalDate"],
            "departure": asked["departureDate"],
            "apartment": {"id": asked["apartmentId"], "name": "Apartment"},
            "email": asked.get("email"),
            "notice": asked.get("notice"),
            "price": asked.get("price"),
        }


def _not_there() -> Response:
    return answer(404, {"status": 404, "title": "Not Found", "detail": "Entity not found"})

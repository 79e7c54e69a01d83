"""Simulated Hostify, at base URLs that end in `/hostify`: `success` in every answer, days in the filter of its list empty it."""

import re
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from forwarder.http.messages import Response
from forwarder.simulator.bookings import Made
from forwarder.simulator.http import Guard
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.common import HostedPms, No, Stay, answer, asked_for, failing_as, routes_of

_MOST_PER_PAGE = 100
_REFERENCE = re.compile(r"rsv_\w+")


def hostify_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _Hostify(world)
    failing = failing_as(lambda status: {"success": False, "error": f"HTTP {status}"})
    guard = Guard(world, failing, lambda request: request.headers.get("x-api-key", ""))
    endpoints = {
        ("POST", "/reservations"): pms.create,
        ("GET", "/reservations"): pms.search,
        ("GET", "/reservations/{id:int}"): pms.show,
        ("PUT", "/reservations/{id:int}"): pms.change,
    }
    return routes_of(pms, "hostify", guard, endpoints, creates="/reservations")


def _refused(no: No) -> Response:
    return answer(400, {"success": False, "error": str(no)})


class _Hostify(HostedPms):
    def __init__(self, world: World) -> None:
        super().__init__(world, _refused)

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        if not isinstance(body.get("listing_id"), int) or not body.get("name"):
            raise No("invalid", "listing_id and name are required")
        named = _REFERENCE.search(str(body.get("note", "")))
        dates = (str(body.get("start_date")), str(body.get("end_date")))
        reference, email = named[0] if named else "", str(body.get("email", ""))
        stay = Stay(str(body["listing_id"]), *dates, reference, email, str(body["name"]))
        made = self.book(request, stay, body)
        names = ("id", "status", "source", "confirmation_code", "notes")
        shown = self._shown(made)
        return answer(200, {"success": True, "reservation": {name: shown[name] for name in names}})

    async def search(self, request: Request) -> Response:
        query = request.query_params
        size, page = min(int(query.get("per_page", 20)), _MOST_PER_PAGE), int(query.get("page", 1))
        found = self.bookings(request, query.get("listing_id"))
        if "start_date" in query or "end_date" in query:
            found = []
        shown = [self._shown(made) for made in found[(page - 1) * size : page * size]]
        return answer(200, {"success": True, "reservations": shown, "total": len(found)})

    async def show(self, request: Request) -> Response:
        made = self.one(request)
        return _not_there() if made is None else answer(200, {"success": True, "reservation": self._shown(made)})

    async def change(self, request: Request) -> Response:
        made, body = self.one(request), await self.body(request)
        if made is None:
            return _not_there()
        if body.get("status") == "cancelled_by_host":
            self.cancel(made)
        return answer(200, {"success": True, "reservation": {**self._shown(made), **body}})

    def _shown(self, made: Made) -> dict[str, Any]:
        asked = asked_for(made)
        return {
            "id": made.id,
            "listing_id": asked["listing_id"],
            "status": "cancelled_by_host" if self.is_cancelled(made) else "accepted",
            "source": asked.get("source"),
            "confirmation_code": f"HM{made.id}",
            "notes": asked.get("note"),
            "checkIn": asked["start_date"],
            "checkOut": asked["end_date"],
            "guest_email": asked.get("email"),
        }


def _not_there() -> Response:
    return answer(404, {"success": False, "error": "Reservation not found"})

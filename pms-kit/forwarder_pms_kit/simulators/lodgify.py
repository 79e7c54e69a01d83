"""Simulated Lodgify v1, at base URLs that end in `/lodgify`: a booking is open until it is set as booked; every failure is a 500.

`status` in a create is not honoured, as some clients found. What is deleted goes to the trash.
"""

from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from forwarder.http.messages import Response
from forwarder.simulator.bookings import Made
from forwarder.simulator.http import Guard
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.common import HostedPms, No, Stay, answer, asked_for, failing_as, routes_of

_BOOKING = "/v1/reservation/booking"
_UNAUTHORIZED = 999
_MOST_PER_PAGE = 50


def lodgify_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _Lodgify(world)
    failing = failing_as(lambda status: {"code": _UNAUTHORIZED if status == 401 else 1, "message": f"HTTP {status}"})  # noqa: PLR2004
    guard = Guard(world, failing, lambda request: request.headers.get("x-apikey", ""))
    endpoints = {
        ("POST", _BOOKING): pms.create,
        ("PUT", _BOOKING + "/{id:int}/book"): pms.confirm,
        ("GET", _BOOKING + "/{id:int}"): pms.show,
        ("DELETE", _BOOKING + "/{id:int}"): pms.delete,
        ("GET", "/v1/reservation"): pms.search,
    }
    return routes_of(pms, "lodgify", guard, endpoints, creates=_BOOKING)


def _refused(no: No) -> Response:
    status = 500 if no.why == "taken" else 400
    return answer(status, {"message": str(no), "code": 666, "correlation_id": "c", "event_id": "e"})


class _Lodgify(HostedPms):
    def __init__(self, world: World) -> None:
        super().__init__(world, _refused)
        self._booked: set[tuple[str, int]] = set()

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        rooms, guest = body.get("rooms") or [{}], body.get("guest") or {}
        room = rooms[0].get("room_type_id")
        if not isinstance(body.get("property_id"), int) or not isinstance(room, int):
            raise No("invalid", "property_id and room_type_id are numbers")
        name = guest.get("guest_name") or {}
        dates = (str(body.get("arrival")), str(body.get("departure")))
        reference, email = str(body.get("source_text") or ""), str(guest.get("email", ""))
        stay = Stay(f"{body['property_id']}/{room}", *dates, reference, email, str(name.get("last_name", "")))
        made = self.book(request, stay, body)
        return answer(201, made.id)

    async def confirm(self, request: Request) -> Response:
        made = self.one(request)
        if made is None:
            return _not_there()
        self._booked.add((made.place, made.id))
        return answer(200, {})

    async def show(self, request: Request) -> Response:
        made = self.one(request)
        return _not_there() if made is None else answer(200, self._shown(made))

    async def delete(self, request: Request) -> Response:
        made = self.one(request)
        if made is None:
            return _not_there()
        self.cancel(made)
        return answer(200, made.id)

    async def search(self, request: Request) -> Response:
        query = request.query_params
        begin, size = int(query.get("offset", 0)), min(int(query.get("limit", _MOST_PER_PAGE)), _MOST_PER_PAGE)
        found = [
            made
            for made in self.bookings(request)
            if str(asked_for(made)["property_id"]) == query.get("propertyId")
            and (query.get("trash") == "All" or not self.is_cancelled(made))
        ]
        shown = [self._shown(made) for made in found[begin : begin + size]]
        return answer(200, {"total": len(found), "items": shown})

    def _shown(self, made: Made) -> dict[str, Any]:
        status = "Booked" if (made.place, made.id) in self._booked else "Open"
        return {**asked_for(made), "id": made.id, "status": status, "is_deleted": self.is_cancelled(made)}


def _not_there() -> Response:
    return answer(500, {"message": "Booking not found", "code": 404, "correlation_id": "c", "event_id": "e"})

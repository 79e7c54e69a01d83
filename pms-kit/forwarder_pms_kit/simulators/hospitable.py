"""Simulated Hospitable v2, at base URLs that end in `/hospitable/v2`: amounts in minor units, numbered pages, three at a time."""

from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from forwarder.http.messages import Response
from forwarder.simulator.bookings import Made
from forwarder.simulator.http import Guard
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.common import HostedPms, No, Stay, answer, asked_for, failing_as, routes_of

_PER_PAGE = 3


def hospitable_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _Hospitable(world)
    guard = Guard(world, failing_as(lambda status: {"status_code": status, "reason_phrase": f"HTTP {status}"}))
    endpoints = {
        ("POST", "/reservations"): pms.create,
        ("GET", "/reservations"): pms.search,
        ("GET", "/reservations/{id}"): pms.show,
        ("POST", "/reservations/{id}/cancel"): pms.end,
    }
    return routes_of(pms, "hospitable/v2", guard, endpoints, creates="/reservations")


def _refused(no: No) -> Response:
    return answer(422, {"status_code": 422, "reason_phrase": str(no)})


class _Hospitable(HostedPms):
    def __init__(self, world: World) -> None:
        super().__init__(world, _refused)

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        guest, money = body.get("guest") or {}, body.get("financials") or {}
        if not isinstance(money.get("accommodation"), int) or not body.get("language"):
            raise No("invalid", "financials.accommodation is a whole number, and language is required")
        dates = (str(body.get("check_in")), str(body.get("check_out")))
        reference, email = str(body.get("reservation_code") or ""), str(guest.get("email", ""))
        stay = Stay(str(body.get("property_id")), *dates, reference, email, str(guest.get("last_name", "")))
        return answer(201, {"data": self._shown(self.book(request, stay, body))})

    async def search(self, request: Request) -> Response:
        query = request.query_params
        first, last = query["start_date"], query["end_date"]
        found = [
            made
            for made in self.bookings(request, query.get("properties[]"))
            if first <= made.arrival.isoformat() <= last
        ]
        page = int(query.get("page", 1))
        shown = [self._shown(made) for made in found[(page - 1) * _PER_PAGE : page * _PER_PAGE]]
        count = max(1, -(-len(found) // _PER_PAGE))
        return answer(200, {"data": shown, "meta": {"current_page": page, "last_page": count, "total": len(found)}})

    async def show(self, request: Request) -> Response:
        made = self._one(request)
        return _not_there() if made is None else answer(200, {"data": self._shown(made)})

    async def end(self, request: Request) -> Response:
        made, body = self._one(request), await self.body(request)
        if made is None:
            return _not_there()
        if body.get("initiated_by") not in ("guest", "host"):
            raise No("invalid", "initiated_by is guest or host")
        self.cancel(made)
        return answer(202, {"data": None})

    def _one(self, request: Request) -> Made | None:
        wanted = request.path_params["id"]
        return next((made for made in self.bookings(request) if _uuid(made) == wanted), None)

    def _shown(self, made: Made) -> dict[str, Any]:
        asked = asked_for(made)
        category = "cancelled" if self.is_cancelled(made) else "accepted"
        return {
            "id": _uuid(made),
            "code": asked.get("reservation_code"),
            "platform": "manual",
            "reservation_status": {"current": {"category": category, "sub_category": None}},
            "arrival_date": f"{asked['check_in']}T00:00:00+00:00",
            "departure_date": f"{asked['check_out']}T00:00:00+00:00",
            "guest": {"email": (asked.get("guest") or {}).get("email")},
            "notes": asked.get("notes"),
        }


def _uuid(made: Made) -> str:
    return f"00000000-0000-4000-8000-{made.id:012d}"


def _not_there() -> Response:
    return answer(404, {"status_code": 404, "reason_phrase": "Not Found"})

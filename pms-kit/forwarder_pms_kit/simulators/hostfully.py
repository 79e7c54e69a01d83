"""Simulated Hostfully v3, at base URLs that end in `/hostfully/api/v3.3`: bookings are leads, lists go on by a cursor, two
at a time."""

from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from forwarder.http.messages import Response
from forwarder.simulator.bookings import Made
from forwarder.simulator.http import Guard
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.common import HostedPms, No, Stay, answer, asked_for, failing_as, routes_of

_AT_ONCE = 2


def hostfully_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _Hostfully(world)
    failing = failing_as(lambda status: {"apiErrorMessage": f"HTTP {status}"})
    guard = Guard(world, failing, lambda request: request.headers.get("x-hostfully-apikey", ""))
    endpoints = {
        ("POST", "/leads"): pms.create,
        ("GET", "/leads"): pms.search,
        ("GET", "/leads/{id}"): pms.show,
        ("POST", "/leads/{id}/cancel"): pms.end,
    }
    return routes_of(pms, "hostfully/api/v3.3", guard, endpoints, creates="/leads")


def _refused(no: No) -> Response:
    return answer(400, {"apiErrorMessage": str(no)})


class _Hostfully(HostedPms):
    def __init__(self, world: World) -> None:
        super().__init__(world, _refused)

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        guest = body.get("guestInformation") or {}
        if (body.get("type"), body.get("status")) != ("BOOKING", "BOOKED") or not body.get("agencyUid"):
            raise No("invalid", "type, status and agencyUid are required")
        dates = (str(body.get("checkInLocalDateTime")), str(body.get("checkOutLocalDateTime")))
        reference, email = str(body.get("externalBookingId") or ""), str(guest.get("email", ""))
        stay = Stay(str(body.get("propertyUid")), *dates, reference, email, str(guest.get("lastName", "")))
        return answer(200, {"lead": self._shown(self.book(request, stay, body))})

    async def search(self, request: Request) -> Response:
        query = request.query_params
        first, last = query.get("checkInFrom", ""), query.get("checkInTo", "9")
        found = [
            made
            for made in self.bookings(request, query.get("propertyUid"))
            if first <= made.arrival.isoformat() <= last
        ]
        begin = int(query.get("_cursor", "0"), 16)
        shown = [self._shown(made) for made in found[begin : begin + _AT_ONCE]]
        more = f"{begin + _AT_ONCE:x}" if begin + _AT_ONCE < len(found) else None
        return answer(200, {"leads": shown, "_paging": {"_nextCursor": more}})

    async def show(self, request: Request) -> Response:
        made = self._one(request)
        return answer(404, {"apiErrorMessage": "No such lead"}) if made is None else self._lead(made)

    async def end(self, request: Request) -> Response:
        made = self._one(request)
        if made is None:
            return answer(404, {"apiErrorMessage": "No such lead"})
        self.cancel(made)
        return self._lead(made)

    def _one(self, request: Request) -> Made | None:
        wanted = request.path_params["id"]
        return next((made for made in self.bookings(request) if f"u-{made.id}" == wanted), None)

    def _lead(self, made: Made) -> Response:
        return answer(200, {"lead": self._shown(made)})

    def _shown(self, made: Made) -> dict[str, Any]:
        status = "CANCELLED" if self.is_cancelled(made) else "BOOKED"
        return {**asked_for(made), "uid": f"u-{made.id}", "status": status}

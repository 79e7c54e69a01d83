"""Simulated Uplisting, at base URLs that end in `/uplisting`: no reference is kept, pages are counted from 0, and nothing is
cancelled.

The world knows a booking by its property and first day, since nothing else of ours is sent.
"""

import base64
import binascii
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from forwarder.http.messages import Response
from forwarder.simulator.bookings import Made
from forwarder.simulator.http import Guard
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.common import HostedPms, No, Stay, answer, asked_for, failing_as, routes_of

_PER_PAGE = 50


def uplisting_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _Uplisting(world)
    guard = Guard(world, failing_as(lambda status: {"errors": [{"title": f"HTTP {status}"}]}), _key_of)
    endpoints = {("POST", "/v2/bookings"): pms.create, ("GET", "/bookings/{listing}"): pms.search}
    return routes_of(pms, "uplisting", guard, endpoints, creates="/v2/bookings")


def _key_of(request: Request) -> str:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    try:
        return base64.b64decode(encoded, validate=True).decode() if scheme == "Basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _refused(no: No) -> Response:
    return answer(422, {"errors": [{"title": "Unprocessable", "detail": str(no)}]})


class _Uplisting(HostedPms):
    def __init__(self, world: World) -> None:
        super().__init__(world, _refused)

    async def create(self, request: Request) -> Response:
        if not request.headers.get("x-uplisting-client-id"):
            return answer(403, {"errors": [{"title": "Forbidden"}]})
        data = (await self.body(request)).get("data") or {}
        asked = data.get("attributes") or {}
        listing = str((data.get("relationships") or {}).get("property", {}).get("data", {}).get("id"))
        dates = (str(asked.get("check_in")), str(asked.get("check_out")))
        email, name = str(asked.get("guest_email", "")), str(asked.get("guest_name", ""))
        made = self.book(request, Stay(listing, *dates, f"{listing}/{dates[0]}", email, name), asked)
        return answer(201, {"data": {"id": str(made.id), "type": "bookings", "attributes": asked}})

    async def search(self, request: Request) -> Response:
        query = request.query_params
        first, last = query.get("from", ""), query.get("to", "9")
        found = [
            made
            for made in self.bookings(request, request.path_params["listing"])
            if made.arrival.isoformat() <= last and made.departure.isoformat() >= first
        ]
        page = int(query.get("page", 0))
        shown = [self._shown(made) for made in found[page * _PER_PAGE : (page + 1) * _PER_PAGE]]
        count = -(-len(found) // _PER_PAGE)
        return answer(200, {"bookings": shown, "meta": {"total": len(found), "total_pages": count}})

    def _shown(self, made: Made) -> dict[str, Any]:
        return {"id": made.id, "status": "confirmed", **asked_for(made)}

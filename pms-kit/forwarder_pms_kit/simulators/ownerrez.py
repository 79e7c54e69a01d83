"""Simulated OwnerRez v2, at base URLs that end in `/ownerrez/v2`: guests first, lists by offset, no cancellation."""

import base64
import re
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from forwarder.http.messages import Response
from forwarder.simulator.bookings import Made
from forwarder.simulator.http import Guard
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.common import HostedPms, No, Stay, answer, asked_for, failing_as, routes_of

_REFERENCE = re.compile(r"rsv_\w+")


def ownerrez_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _OwnerRez(world)
    guard = Guard(world, failing_as(lambda status: {"message": f"HTTP {status}"}), _shown_token)
    endpoints = {
        ("POST", "/guests"): pms.make_guest,
        ("POST", "/bookings"): pms.create,
        ("GET", "/bookings"): pms.search,
    }
    return routes_of(pms, "ownerrez/v2", guard, endpoints, creates="/bookings")


def _shown_token(request: Request) -> str:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    try:
        _, _, token = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return ""
    return token if scheme == "Basic" else ""


def _refused(no: No) -> Response:
    return answer(422, {"messages": [str(no)]})


class _OwnerRez(HostedPms):
    def __init__(self, world: World) -> None:
        super().__init__(world, _refused)
        self._guests: list[dict[str, Any]] = []

    async def make_guest(self, request: Request) -> Response:
        guest = await self.body(request)
        if not guest.get("first_name") or not guest.get("last_name"):
            raise No("guest", "first_name and last_name are required")
        self._guests.append(guest)
        return answer(201, {"id": len(self._guests), **guest})

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        if not isinstance(body.get("property_id"), int):
            raise No("property", "property_id is required")
        number = int(body.get("guest_id") or 0)
        if not 0 < number <= len(self._guests):
            raise No("guest", "guest_id is not known")
        guest = self._guests[number - 1]
        named = _REFERENCE.search(str(body.get("notes", "")))
        emails = guest.get("email_addresses") or [{}]
        stay = Stay(
            str(body["property_id"]),
            str(body.get("arrival")),
            str(body.get("departure")),
            named[0] if named else "",
            str(emails[0].get("address", "")),
            str(guest["last_name"]),
        )
        return answer(201, self._shown(self.book(request, stay, body)))

    async def search(self, request: Request) -> Response:
        query = request.query_params
        skip, limit = int(query.get("offset", 0)), int(query.get("limit", 20))
        found = self.bookings(request, query.get("property_ids"))
        shown = [self._shown(made) for made in found[skip : skip + limit]]
        return answer(200, {"items": shown, "limit": limit, "offset": skip})

    def _shown(self, made: Made) -> dict[str, Any]:
        asked = asked_for(made)
        names = ("property_id", "arrival", "departure", "guest_id", "notes")
        status = "canceled" if self.is_cancelled(made) else "active"
        return {"id": made.id, "status": status, **{name: asked.get(name) for name in names}}

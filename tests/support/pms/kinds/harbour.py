"""Harbour, the made-up PMS of docs/guides/map-a-pms.md, as its docs there describe it: OAuth, every answer HTTP 200, lists
by a cursor."""

from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from forwarder.http.messages import Response
from forwarder.simulator.bookings import Made
from forwarder.simulator.http import Guard
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.common import HostedPms, No, Stay, answer, asked_for, failing_as, routes_of

_AT_ONCE = 2
_CODES = {"taken": "dates_taken", "property": "no_such_unit", "guest": "bad_guest"}


def harbour_app(world: World) -> Starlette:
    pms = _Harbour(world)
    guard = Guard(
        world, failing_as(lambda status: {"ok": False, "error": {"code": "failed", "text": f"HTTP {status}"}})
    )
    endpoints = {
        ("POST", "/bookings"): pms.create,
        ("GET", "/bookings"): pms.list_bookings,
        ("POST", "/bookings/{id}/cancel"): pms.end,
    }
    return Starlette(
        routes=[
            Route("/oauth/token", pms.token, methods=["POST"]),
            *routes_of(pms, "harbour/v2", guard, endpoints, creates="/bookings"),
        ]
    )


def _refused(no: No) -> Response:
    return answer(200, {"ok": False, "error": {"code": _CODES.get(no.why, "other"), "text": str(no)}})


class _Harbour(HostedPms):
    def __init__(self, world: World) -> None:
        super().__init__(world, _refused)

    async def token(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode())
        if form.get("grant_type") != ["client_credentials"] or form.get("client_secret") == ["wrong"]:
            return answer(401, {"error": "invalid_client"})
        return answer(200, {"access_token": f"token-of-{form['client_id'][0]}", "expires_in": 3600})

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        guest = body.get("guest") or {}
        if body.get("unit") == "unknown":
            raise No("property", "No such unit")
        if not isinstance(body.get("price_cents"), int):
            raise No("invalid", "price_cents is a whole number")
        dates = (str(body["arrives"]), str(body["leaves"]))
        stay = Stay(str(body["unit"]), *dates, str(body["external_id"]), str(guest.get("email", "")))
        return answer(200, {"ok": True, "booking": self._shown(self.book(request, stay, body))})

    async def list_bookings(self, request: Request) -> Response:
        query = request.query_params
        found = [
            made
            for made in self.bookings(request, query["unit"])
            if query["from"] <= made.arrival.isoformat() <= query["to"]
        ]
        begin = int(query.get("after", 0))
        more = begin + _AT_ONCE if begin + _AT_ONCE < len(found) else None
        shown = [self._shown(made) for made in found[begin : begin + _AT_ONCE]]
        return answer(200, {"ok": True, "bookings": shown, "more": more})

    async def end(self, request: Request) -> Response:
        made = self.one(request)
        if made is None:
            raise No("invalid", "No such booking")
        if self.is_cancelled(made):
            return answer(200, {"ok": False, "error": {"code": "already_cancelled", "text": "It is cancelled"}})
        self.cancel(made)
        return answer(200, {"ok": True, "booking": self._shown(made)})

    def _shown(self, made: Made) -> dict[str, Any]:
        state = "cancelled" if self.is_cancelled(made) else "active"
        return {**asked_for(made), "number": made.id, "state": state}

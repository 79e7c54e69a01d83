"""Harbour, the made-up PMS of docs/guides/map-a-pms.md, as its docs there describe it: OAuth, every answer HTTP 200, lists
by a cursor."""

from typing import ClassVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from forwarder.http.messages import Response
from forwarder.simulator.world import Made, World
from forwarder_pms_kit.simulators.common import Body, Endpoints, HostedPms, No, Stay, answer, asked_for, token_for

_AT_ONCE = 2
_CODES = {"taken": "dates_taken", "property": "no_such_unit", "guest": "bad_guest"}


def harbour_app(world: World) -> Starlette:
    pms = _Harbour(world)
    return Starlette(routes=[Route("/oauth/token", pms.token, methods=["POST"]), *pms.routes()])


class _Harbour(HostedPms):
    base, creates = "harbour/v2", "/bookings"
    envelope: ClassVar = {"ok": True}
    shown_in = "booking"

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("GET", "/bookings"): self.list_bookings,
            ("POST", "/bookings/{id}/cancel"): self.end,
        }

    def refused(self, no: No) -> Response:
        return self._no(_CODES.get(no.why, "other"), str(no))

    def error(self, _status: int, said: str) -> object:
        return {"ok": False, "error": {"code": "failed", "text": said}}

    def _no(self, code: str, text: str) -> Response:
        return answer(200, {"ok": False, "error": {"code": code, "text": text}})

    async def token(self, request: Request) -> Response:
        return await token_for(request, None, 3600)

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        guest = body.get("guest") or {}
        if body.get("unit") == "unknown":
            raise No("property", "No such unit")
        if not isinstance(body.get("price_cents"), int):
            raise No("invalid", "price_cents is a whole number")
        dates = (str(body["arrives"]), str(body["leaves"]))
        stay = Stay(str(body["unit"]), *dates, str(body["external_id"]), str(guest.get("email", "")))
        return self.answered(self.book(request, stay, body))

    async def list_bookings(self, request: Request) -> Response:
        query = request.query_params
        found = self.bookings(request, query["unit"], query["from"], query["to"])
        begin = int(query.get("after", 0))
        more = begin + _AT_ONCE if begin + _AT_ONCE < len(found) else None
        return answer(200, {"ok": True, "bookings": self.page(found, begin, _AT_ONCE), "more": more})

    async def end(self, request: Request) -> Response:
        if self.is_cancelled(self.one(request)):
            return self._no("already_cancelled", "It is cancelled")
        return await super().end(request)

    def shown(self, made: Made) -> Body:
        state = "cancelled" if self.is_cancelled(made) else "active"
        return {**asked_for(made), "number": made.id, "state": state}

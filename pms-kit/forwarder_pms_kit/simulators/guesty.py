"""Simulated Guesty Open API, at base URLs that end in `/guesty/v1`: OAuth at the host's `/oauth2/token`, taken nights as 401."""

from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from forwarder.http.messages import Response
from forwarder.simulator.bookings import Made
from forwarder.simulator.http import Guard, bearer_of
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.common import HostedPms, No, Stay, answer, asked_for, failing_as, routes_of

_DAY_SECONDS = 86_400


def guesty_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _Guesty(world)
    guard = Guard(world, failing_as(lambda status: {"error": {"code": status, "message": f"HTTP {status}"}}), bearer_of)
    endpoints = {
        ("POST", "/reservations-v3"): pms.create,
        ("GET", "/reservations-v3/search"): pms.search,
        ("GET", "/reservations-v3"): pms.show,
        ("PUT", "/reservations-v3/{id}/status"): pms.change,
    }
    return [
        Route("/oauth2/token", pms.token, methods=["POST"]),
        *routes_of(pms, "guesty/v1", guard, endpoints, creates="/reservations-v3"),
    ]


def _refused(no: No) -> Response:
    return answer(401 if no.why == "taken" else 400, {"error": {"message": str(no)}})


class _Guesty(HostedPms):
    def __init__(self, world: World) -> None:
        super().__init__(world, _refused)

    async def token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        known = (form.get("grant_type"), form.get("scope")) == ("client_credentials", "open-api")
        if not known or form.get("client_secret") in (None, "wrong"):
            return answer(401, {"error": "invalid_client"})
        token = f"token-of-{form.get('client_id')}"
        return answer(200, {"token_type": "Bearer", "expires_in": _DAY_SECONDS, "access_token": token})

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        guest = body.get("guest") or {}
        needed = (body.get("listingId"), body.get("guestsCount"), guest.get("firstName"), guest.get("lastName"))
        if not all(needed) or body.get("status") != "confirmed" or len(str(body.get("confirmationCode"))) > 50:  # noqa: PLR2004
            raise No("invalid", "Validation failed")
        dates = (str(body.get("checkInDateLocalized")), str(body.get("checkOutDateLocalized")))
        stay = Stay(
            str(body["listingId"]),
            *dates,
            str(body["confirmationCode"]),
            str(guest.get("email", "")),
            guest["lastName"],
        )
        made = self.book(request, stay, body)
        said = {"reservationId": f"r{made.id}", "status": "confirmed", "confirmationCode": body["confirmationCode"]}
        return answer(201, said)

    async def search(self, request: Request) -> Response:
        wanted = request.query_params.get("filter[confirmationCode]")
        if wanted is None:
            raise No("invalid", "No such filter")
        found = [self._shown(made) for made in self.bookings(request) if made.reference == wanted]
        return answer(200, {"results": found[:25], "pagination": {"skip": 0, "limit": 25, "hasMore": len(found) > 25}})  # noqa: PLR2004

    async def show(self, request: Request) -> Response:
        wanted = request.query_params.get("reservationIds[]")
        return answer(200, [self._shown(made) for made in self.bookings(request) if f"r{made.id}" == wanted])

    async def change(self, request: Request) -> Response:
        made, body = self._one(request), await self.body(request)
        if made is None or body != {"status": "canceled"}:
            return answer(400, {"error": {"message": "Bad request"}})
        self.cancel(made)
        return answer(200, {"reservationId": f"r{made.id}"})

    def _one(self, request: Request) -> Made | None:
        wanted = request.path_params["id"]
        return next((made for made in self.bookings(request) if f"r{made.id}" == wanted), None)

    def _shown(self, made: Made) -> dict[str, Any]:
        asked = asked_for(made)
        stay = {name: asked[name] for name in ("listingId", "checkInDateLocalized", "checkOutDateLocalized")}
        status = "canceled" if self.is_cancelled(made) else "confirmed"
        code = asked["confirmationCode"]
        return {"reservationId": f"r{made.id}", "status": status, "confirmationCode": code, "stay": [stay]}

"""Simulated Hostaway Public API v1, as its documentation describes it, at base URLs that end in `/hostaway/v1`.

Listing 404 is not known. Any client is given a token but one whose secret is `wrong`; a token `expired` is refused as one that has
ended. A refusal is a 200 with `status: "fail"`.
"""

from dataclasses import replace
from typing import Any

from pydantic_core import from_json
from starlette.requests import Request

from forwarder.http.messages import Response
from forwarder.simulator.http import bearer_of
from forwarder.simulator.world import Made
from forwarder_pms_kit.simulators.common import Endpoints, HostedPms, No, answer, asked_for, token_for

_MOST_PER_PAGE = 100
_UNKNOWN_LISTING = 404
_TOKEN_SECONDS = 15_897_600
_SAID = {401: "Access denied", 403: "Access denied", 404: "Resource not found", 429: "The rate limits are exceeded"}


class Hostaway(HostedPms):
    """Hostaway."""

    base, creates = "hostaway/v1", "/reservations"
    stay = ("listingMapId", "arrivalDate", "departureDate", "customerUserId", "guestEmail")

    def endpoints(self) -> Endpoints:
        return {
            ("POST", "/accessTokens"): self.token,
            ("POST", self.creates): self.create,
            ("GET", "/reservations"): self.list_reservations,
            ("GET", "/reservations/{id:int}"): self.show,
            ("PUT", "/reservations/{id:int}/statuses/cancelled"): self.end,
        }

    def refused(self, no: No) -> Response:
        if no.why == "missing":
            return self.failing(404)
        return answer(404 if no.why == "property" else 200, {"status": "fail", "result": str(no)})

    def failed(self, status: int) -> object:
        return {"status": "fail", "message": _SAID.get(status, f"HTTP {status}, as ordered")}

    def failing(self, status: int, retry_after: float | None = None) -> Response:
        return super().failing({401: 403}.get(status, status), retry_after)

    def credential_of(self, request: Request) -> str:
        if request.url.path.endswith("/accessTokens"):
            return "in the form"
        token = bearer_of(request)
        return "" if token == "expired" else token  # noqa: S105 - the name of a token that is none any more

    async def token(self, request: Request) -> Response:
        return await token_for(request, "general", _TOKEN_SECONDS)

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        listing = body.get("listingMapId")
        if not isinstance(listing, int) or listing == _UNKNOWN_LISTING:
            raise No("property", "Listing not found")
        if not isinstance(body.get("channelId"), int):
            raise No("invalid", "channelId is required")
        name = str(body.get("guestLastName") or body.get("guestName"))
        return self._success(self.book(request, replace(self.stay_in(body), last_name=name), body))

    async def show(self, request: Request) -> Response:
        return self._success(self.one(request))

    async def list_reservations(self, request: Request) -> Response:
        query = request.query_params
        found = sorted(
            (
                made
                for made in self.bookings(request, query.get("listingId"))
                if query.get("arrivalStartDate", "") <= made.arrival.isoformat() <= query.get("arrivalEndDate", "9")
            ),
            key=lambda made: (made.arrival, made.id),
        )
        after = next((index for index, made in enumerate(found, 1) if str(made.id) == query.get("afterId")), 0)
        limit = min(int(query.get("limit", _MOST_PER_PAGE)), _MOST_PER_PAGE)
        shown = [self._shown(made) for made in found[after : after + limit]]
        return answer(200, {"status": "success", "result": shown, "limit": limit, "offset": None, "count": len(found)})

    async def end(self, request: Request) -> Response:
        body = from_json(await request.body() or b"null")
        if not isinstance(body, dict) or body.get("cancelledBy") not in ("host", "guest"):
            return answer(422, {"status": "fail", "result": "cancelledBy must be host or guest"})
        made = self.one(request)
        if self.is_cancelled(made):
            raise No("invalid", "Reservation is already cancelled")
        self.cancel(made)
        return self._success(made)

    def _success(self, made: Made) -> Response:
        return answer(200, {"status": "success", "result": self._shown(made)})

    def _shown(self, made: Made) -> dict[str, Any]:
        asked = asked_for(made)
        price, channel_id = asked.get("totalPrice"), f"{asked['listingMapId']}-{made.id}"
        shown = {
            "source": "hostawaydirect",
            "channelName": "direct",
            "customerUserId": None,
            "cancellationDate": None,
            "cancelledBy": None,
            "doorCode": f"{made.id * 7919 % 10_000:04d}",
            **asked,
            "id": made.id,
            "hostawayReservationId": made.id,
            "reservationId": channel_id,
            "channelReservationId": channel_id,
            "status": "new",
            "isPaid": 0,
        }
        if price is not None:
            shown["remainingBalance"] = price
            base_rate = {"id": made.id, "type": "price", "name": "baseRate", "title": "Base rate", "total": price}
            shown["financeField"] = [{**base_rate, "isDeleted": 0}]
        cancelled_at = self.world.cancelled_at(made)
        if cancelled_at is not None:
            shown |= {"status": "cancelled", "cancelledBy": "guest", "cancellationDate": cancelled_at[:10]}
        return shown

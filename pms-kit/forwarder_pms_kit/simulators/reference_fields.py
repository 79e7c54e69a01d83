"""Simulated vendors that keep our reference in a field of its own: Guesty, Hospitable, Hostfully and Lodgify."""

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from forwarder.http.messages import Response
from forwarder.simulator.world import Made, World
from forwarder_pms_kit.simulators.common import Endpoints, HostedPms, No, answer, asked_for, token_for

_DAY_SECONDS = 86_400


class Guesty(HostedPms):
    """Guesty Open API: OAuth at the host's `/oauth2/token`, taken nights as 401."""

    base, creates = "guesty/v1", "/reservations-v3"
    stay = (
        "listingId",
        "checkInDateLocalized",
        "checkOutDateLocalized",
        "confirmationCode",
        "guest.email",
        "guest.lastName",
    )
    _AT_ONCE = 25
    _MAX_CODE = 50

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("GET", "/reservations-v3/search"): self.search,
            ("GET", "/reservations-v3"): self.show,
            ("PUT", "/reservations-v3/{id}/status"): self.change,
        }

    def routes(self) -> list[BaseRoute]:
        return [Route("/oauth2/token", self.token, methods=["POST"]), *super().routes()]

    def refused(self, no: No) -> Response:
        return answer(401 if no.why == "taken" else 400, {"error": {"message": str(no)}})

    def failed(self, status: int) -> object:
        return {"error": {"code": status, "message": f"HTTP {status}"}}

    def id_of(self, made: Made) -> str:
        return f"r{made.id}"

    async def token(self, request: Request) -> Response:
        return await token_for(request, "open-api", _DAY_SECONDS)

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        stay, guest, code = self.stay_in(body), body.get("guest") or {}, str(body.get("confirmationCode"))
        needed = (stay.room, body.get("guestsCount"), guest.get("firstName"), stay.last_name)
        if not all(needed) or body.get("status") != "confirmed" or len(code) > self._MAX_CODE:
            raise No("invalid", "Validation failed")
        made = self.book(request, stay, body)
        return answer(201, {"reservationId": self.id_of(made), "status": "confirmed", "confirmationCode": code})

    async def search(self, request: Request) -> Response:
        wanted = request.query_params.get("filter[confirmationCode]")
        if wanted is None:
            raise No("invalid", "No such filter")
        found = [self._shown(made) for made in self.bookings(request) if made.reference == wanted]
        pagination = {"skip": 0, "limit": self._AT_ONCE, "hasMore": len(found) > self._AT_ONCE}
        return answer(200, {"results": found[: self._AT_ONCE], "pagination": pagination})

    async def show(self, request: Request) -> Response:
        wanted = request.query_params.get("reservationIds[]")
        return answer(200, [self._shown(made) for made in self.bookings(request) if self.id_of(made) == wanted])

    async def change(self, request: Request) -> Response:
        made = self.one(request)
        if await self.body(request) != {"status": "canceled"}:
            raise No("invalid", "Bad request")
        self.cancel(made)
        return answer(200, {"reservationId": self.id_of(made)})

    def _shown(self, made: Made) -> dict[str, Any]:
        asked = asked_for(made)
        stay = {name: asked[name] for name in ("listingId", "checkInDateLocalized", "checkOutDateLocalized")}
        status = "canceled" if self.is_cancelled(made) else "confirmed"
        code = asked["confirmationCode"]
        return {"reservationId": self.id_of(made), "status": status, "confirmationCode": code, "stay": [stay]}


class Hospitable(HostedPms):
    """Hospitable v2: amounts in minor units, numbered pages, three at a time."""

    base, creates = "hospitable/v2", "/reservations"
    stay = ("property_id", "check_in", "check_out", "reservation_code", "guest.email", "guest.last_name")
    _PER_PAGE = 3

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("GET", "/reservations"): self.search,
            ("GET", "/reservations/{id}"): self.show,
            ("POST", "/reservations/{id}/cancel"): self.end,
        }

    def refused(self, no: No) -> Response:
        status = 404 if no.why == "missing" else 422
        return answer(status, {"status_code": status, "reason_phrase": str(no)})

    def failed(self, status: int) -> object:
        return {"status_code": status, "reason_phrase": f"HTTP {status}"}

    def id_of(self, made: Made) -> str:
        return f"00000000-0000-4000-8000-{made.id:012d}"

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        money = body.get("financials") or {}
        if not isinstance(money.get("accommodation"), int) or not body.get("language"):
            raise No("invalid", "financials.accommodation is a whole number, and language is required")
        return answer(201, {"data": self._shown(self.book(request, self.stay_in(body), body))})

    async def search(self, request: Request) -> Response:
        query, size = request.query_params, self._PER_PAGE
        found = [
            made
            for made in self.bookings(request, query.get("properties[]"))
            if query["start_date"] <= made.arrival.isoformat() <= query["end_date"]
        ]
        page = int(query.get("page", 1))
        shown = [self._shown(made) for made in found[(page - 1) * size : page * size]]
        meta = {"current_page": page, "last_page": max(1, -(-len(found) // size)), "total": len(found)}
        return answer(200, {"data": shown, "meta": meta})

    async def show(self, request: Request) -> Response:
        return answer(200, {"data": self._shown(self.one(request))})

    async def end(self, request: Request) -> Response:
        made, body = self.one(request), await self.body(request)
        if body.get("initiated_by") not in ("guest", "host"):
            raise No("invalid", "initiated_by is guest or host")
        self.cancel(made)
        return answer(202, {"data": None})

    def _shown(self, made: Made) -> dict[str, Any]:
        asked = asked_for(made)
        category = "cancelled" if self.is_cancelled(made) else "accepted"
        return {
            "id": self.id_of(made),
            "code": asked.get("reservation_code"),
            "platform": "manual",
            "reservation_status": {"current": {"category": category, "sub_category": None}},
            "arrival_date": f"{asked['check_in']}T00:00:00+00:00",
            "departure_date": f"{asked['check_out']}T00:00:00+00:00",
            "guest": {"email": (asked.get("guest") or {}).get("email")},
            "notes": asked.get("notes"),
        }


class Hostfully(HostedPms):
    """Hostfully v3: bookings are leads, lists go on by a cursor, two at a time."""

    base, creates = "hostfully/api/v3.3", "/leads"
    stay = (
        "propertyUid",
        "checkInLocalDateTime",
        "checkOutLocalDateTime",
        "externalBookingId",
        "guestInformation.email",
        "guestInformation.lastName",
    )
    _AT_ONCE = 2

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("GET", "/leads"): self.search,
            ("GET", "/leads/{id}"): self.show,
            ("POST", "/leads/{id}/cancel"): self.end,
        }

    def refused(self, no: No) -> Response:
        return answer(404 if no.why == "missing" else 400, {"apiErrorMessage": str(no)})

    def failed(self, status: int) -> object:
        return {"apiErrorMessage": f"HTTP {status}"}

    def credential_of(self, request: Request) -> str:
        return request.headers.get("x-hostfully-apikey", "")

    def id_of(self, made: Made) -> str:
        return f"u-{made.id}"

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        if (body.get("type"), body.get("status")) != ("BOOKING", "BOOKED") or not body.get("agencyUid"):
            raise No("invalid", "type, status and agencyUid are required")
        return self._lead(self.book(request, self.stay_in(body), body))

    async def search(self, request: Request) -> Response:
        query, size = request.query_params, self._AT_ONCE
        found = [
            made
            for made in self.bookings(request, query.get("propertyUid"))
            if query.get("checkInFrom", "") <= made.arrival.isoformat() <= query.get("checkInTo", "9")
        ]
        begin = int(query.get("_cursor", "0"), 16)
        shown = [self._shown(made) for made in found[begin : begin + size]]
        more = f"{begin + size:x}" if begin + size < len(found) else None
        return answer(200, {"leads": shown, "_paging": {"_nextCursor": more}})

    async def show(self, request: Request) -> Response:
        return self._lead(self.one(request))

    async def end(self, request: Request) -> Response:
        made = self.one(request)
        self.cancel(made)
        return self._lead(made)

    def _lead(self, made: Made) -> Response:
        return answer(200, {"lead": self._shown(made)})

    def _shown(self, made: Made) -> dict[str, Any]:
        status = "CANCELLED" if self.is_cancelled(made) else "BOOKED"
        return {**asked_for(made), "uid": self.id_of(made), "status": status}


class Lodgify(HostedPms):
    """Lodgify v1: a booking is open until it is set as booked; every failure is a 500. `status` in a create is not honoured, as
    some clients found. What is deleted goes to the trash."""

    base, creates = "lodgify", "/v1/reservation/booking"
    stay = ("property_id", "arrival", "departure", "source_text", "guest.email", "guest.guest_name.last_name")
    _MOST_PER_PAGE = 50

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._booked: set[tuple[str, int]] = set()

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("PUT", self.creates + "/{id:int}/book"): self.confirm,
            ("GET", self.creates + "/{id:int}"): self.show,
            ("DELETE", self.creates + "/{id:int}"): self.delete,
            ("GET", "/v1/reservation"): self.search,
        }

    def refused(self, no: No) -> Response:
        status = 500 if no.why in ("taken", "missing") else 400
        code = 404 if no.why == "missing" else 666
        return answer(status, {"message": str(no), "code": code, "correlation_id": "c", "event_id": "e"})

    def failed(self, status: int) -> object:
        return {"code": {401: 999}.get(status, 1), "message": f"HTTP {status}"}

    def credential_of(self, request: Request) -> str:
        return request.headers.get("x-apikey", "")

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        room = (body.get("rooms") or [{}])[0].get("room_type_id")
        if not isinstance(body.get("property_id"), int) or not isinstance(room, int):
            raise No("invalid", "property_id and room_type_id are numbers")
        stay = replace(self.stay_in(body), room=f"{body['property_id']}/{room}")
        return answer(201, self.book(request, stay, body).id)

    async def confirm(self, request: Request) -> Response:
        made = self.one(request)
        self._booked.add((made.place, made.id))
        return answer(200, {})

    async def show(self, request: Request) -> Response:
        return answer(200, self._shown(self.one(request)))

    async def delete(self, request: Request) -> Response:
        made = self.one(request)
        self.cancel(made)
        return answer(200, made.id)

    async def search(self, request: Request) -> Response:
        query = request.query_params
        begin, size = int(query.get("offset", 0)), min(int(query.get("limit", 50)), self._MOST_PER_PAGE)
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

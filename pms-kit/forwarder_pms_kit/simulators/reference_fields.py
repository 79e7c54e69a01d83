"""Simulated vendors that keep our reference in a field of its own: Guesty, Hospitable, Hostaway, Hostfully and Lodgify."""

from dataclasses import replace
from typing import ClassVar

from pydantic_core import from_json
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from forwarder.http.messages import Response
from forwarder.simulator.http import bearer_of
from forwarder.simulator.world import Made, World
from forwarder_pms_kit.simulators.common import Body, Endpoints, HostedPms, No, answer, asked_for, token_for

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
    statuses: ClassVar = {"taken": 401, "": 400}
    id_form = "r{}"
    _AT_ONCE = 25
    _MAX_CODE = 50

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("GET", "/reservations-v3/search"): self.search,
            ("GET", "/reservations-v3"): self.show,
            ("PUT", "/reservations-v3/{id}/status"): self.end,
        }

    def routes(self) -> list[BaseRoute]:
        return [Route("/oauth2/token", self.token, methods=["POST"]), *super().routes()]

    def error(self, status: int, said: str) -> object:
        return {"error": {"code": status, "message": said}}

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
        found = [made for made in self.bookings(request) if made.reference == wanted]
        pagination = {"skip": 0, "limit": self._AT_ONCE, "hasMore": len(found) > self._AT_ONCE}
        return answer(200, {"results": self.page(found, 0, self._AT_ONCE), "pagination": pagination})

    async def show(self, request: Request) -> Response:
        wanted = request.query_params.get("reservationIds[]")
        return answer(200, [self.shown(made) for made in self.bookings(request) if self.id_of(made) == wanted])

    async def end(self, request: Request) -> Response:
        made = self.one(request)
        if await self.body(request) != {"status": "canceled"}:
            raise No("invalid", "Bad request")
        self.cancel(made)
        return answer(200, {"reservationId": self.id_of(made)})

    def shown(self, made: Made) -> Body:
        asked = asked_for(made)
        stay = {name: asked[name] for name in ("listingId", "checkInDateLocalized", "checkOutDateLocalized")}
        status = "canceled" if self.is_cancelled(made) else "confirmed"
        code = asked["confirmationCode"]
        return {"reservationId": self.id_of(made), "status": status, "confirmationCode": code, "stay": [stay]}


class Hospitable(HostedPms):
    """Hospitable v2: amounts in minor units, numbered pages, three at a time."""

    base, creates = "hospitable/v2", "/reservations"
    stay = ("property_id", "check_in", "check_out", "reservation_code", "guest.email", "guest.last_name")
    statuses: ClassVar = {"missing": 404, "": 422}
    id_form = "00000000-0000-4000-8000-{:012d}"
    shown_in = "data"
    _PER_PAGE = 3

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("GET", "/reservations"): self.search,
            ("GET", "/reservations/{id}"): self.show,
            ("POST", "/reservations/{id}/cancel"): self.end,
        }

    def error(self, status: int, said: str) -> object:
        return {"status_code": status, "reason_phrase": said}

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        money = body.get("financials") or {}
        if not isinstance(money.get("accommodation"), int) or not body.get("language"):
            raise No("invalid", "financials.accommodation is a whole number, and language is required")
        return self.answered(self.book(request, self.stay_in(body), body), 201)

    async def search(self, request: Request) -> Response:
        query, size = request.query_params, self._PER_PAGE
        found = self.bookings(request, query.get("properties[]"), query["start_date"], query["end_date"])
        page = int(query.get("page", 1))
        meta = {"current_page": page, "last_page": max(1, -(-len(found) // size)), "total": len(found)}
        return answer(200, {"data": self.page(found, (page - 1) * size, size), "meta": meta})

    async def end(self, request: Request) -> Response:
        made, body = self.one(request), await self.body(request)
        if body.get("initiated_by") not in ("guest", "host"):
            raise No("invalid", "initiated_by is guest or host")
        self.cancel(made)
        return answer(202, {"data": None})

    def shown(self, made: Made) -> Body:
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


class Hostaway(HostedPms):
    """Hostaway Public API v1, by its documentation. Listing 404 is not known. Any client is given a token but one whose
    secret is `wrong`; a token `expired` is refused as one that has ended. A refusal is a 200 with `status: "fail"`."""

    base, creates = "hostaway/v1", "/reservations"
    stay = ("listingMapId", "arrivalDate", "departureDate", "customerUserId", "guestEmail")
    envelope: ClassVar = {"status": "success"}
    shown_in = "result"
    _MOST_PER_PAGE = 100
    _UNKNOWN_LISTING = 404
    _TOKEN_SECONDS = 15_897_600
    _DENIED = 403

    def endpoints(self) -> Endpoints:
        return {
            ("POST", "/accessTokens"): self.token,
            ("POST", self.creates): self.create,
            ("GET", "/reservations"): self.search,
            ("GET", "/reservations/{id:int}"): self.show,
            ("PUT", "/reservations/{id:int}/statuses/cancelled"): self.end,
        }

    def refused(self, no: No) -> Response:
        if no.why == "missing":
            return self.failing(404)
        return answer(404 if no.why == "property" else 200, {"status": "fail", "result": str(no)})

    def error(self, _status: int, said: str) -> object:
        return {"status": "fail", "message": said}

    def failing(self, status: int, retry_after: float | None = None) -> Response:
        return super().failing({401: self._DENIED}.get(status, status), retry_after)

    def credential_of(self, request: Request) -> str:
        if request.url.path.endswith("/accessTokens"):
            return "in the form"
        token = bearer_of(request)
        return "" if token == "expired" else token  # noqa: S105 - the name of a token that is none any more

    async def token(self, request: Request) -> Response:
        return await token_for(request, "general", self._TOKEN_SECONDS)

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        listing = body.get("listingMapId")
        if not isinstance(listing, int) or listing == self._UNKNOWN_LISTING:
            raise No("property", "Listing not found")
        if not isinstance(body.get("channelId"), int):
            raise No("invalid", "channelId is required")
        name = str(body.get("guestLastName") or body.get("guestName"))
        return self.answered(self.book(request, replace(self.stay_in(body), last_name=name), body))

    async def search(self, request: Request) -> Response:
        query = request.query_params
        days = (query.get("arrivalStartDate", ""), query.get("arrivalEndDate", "9"))
        found = sorted(self.bookings(request, query.get("listingId"), *days), key=lambda made: (made.arrival, made.id))
        after = next((index for index, made in enumerate(found, 1) if str(made.id) == query.get("afterId")), 0)
        limit = min(int(query.get("limit", self._MOST_PER_PAGE)), self._MOST_PER_PAGE)
        listed = {"result": self.page(found, after, limit), "limit": limit, "offset": None, "count": len(found)}
        return answer(200, {"status": "success", **listed})

    async def end(self, request: Request) -> Response:
        body = from_json(await request.body() or b"null")
        if not isinstance(body, dict) or body.get("cancelledBy") not in ("host", "guest"):
            return answer(422, {"status": "fail", "result": "cancelledBy must be host or guest"})
        if self.is_cancelled(self.one(request)):
            raise No("invalid", "Reservation is already cancelled")
        return await super().end(request)

    def shown(self, made: Made) -> Body:
        asked = asked_for(made)
        price, channel_id = asked.get("totalPrice"), f"{asked['listingMapId']}-{made.id}"
        shown: Body = {
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
    key_header = "x-hostfully-apikey"
    statuses: ClassVar = {"missing": 404, "": 400}
    id_form = "u-{}"
    shown_in = "lead"
    _AT_ONCE = 2

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("GET", "/leads"): self.search,
            ("GET", "/leads/{id}"): self.show,
            ("POST", "/leads/{id}/cancel"): self.end,
        }

    def error(self, _status: int, said: str) -> object:
        return {"apiErrorMessage": said}

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        if (body.get("type"), body.get("status")) != ("BOOKING", "BOOKED") or not body.get("agencyUid"):
            raise No("invalid", "type, status and agencyUid are required")
        return self.answered(self.book(request, self.stay_in(body), body))

    async def search(self, request: Request) -> Response:
        query, size = request.query_params, self._AT_ONCE
        days = (query.get("checkInFrom", ""), query.get("checkInTo", "9"))
        found = self.bookings(request, query.get("propertyUid"), *days)
        begin = int(query.get("_cursor", "0"), 16)
        more = f"{begin + size:x}" if begin + size < len(found) else None
        return answer(200, {"leads": self.page(found, begin, size), "_paging": {"_nextCursor": more}})

    def shown(self, made: Made) -> Body:
        status = "CANCELLED" if self.is_cancelled(made) else "BOOKED"
        return {**asked_for(made), "uid": self.id_of(made), "status": status}


class Lodgify(HostedPms):
    """Lodgify v1: a booking is open until it is set as booked; every failure is a 500. `status` in a create is not honoured, as
    some clients found. What is deleted goes to the trash."""

    base, creates = "lodgify", "/v1/reservation/booking"
    stay = ("property_id", "arrival", "departure", "source_text", "guest.email", "guest.guest_name.last_name")
    key_header = "x-apikey"
    _MOST_PER_PAGE = 50

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._booked: set[tuple[str, int]] = set()

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("PUT", self.creates + "/{id:int}/book"): self.confirm,
            ("GET", self.creates + "/{id:int}"): self.show,
            ("DELETE", self.creates + "/{id:int}"): self.end,
            ("GET", "/v1/reservation"): self.search,
        }

    def refused(self, no: No) -> Response:
        status = 500 if no.why in ("taken", "missing") else 400
        code = 404 if no.why == "missing" else 666
        return answer(status, {"message": str(no), "code": code, "correlation_id": "c", "event_id": "e"})

    def error(self, status: int, said: str) -> object:
        return {"code": {401: 999}.get(status, 1), "message": said}

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

    async def end(self, request: Request) -> Response:
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
        return answer(200, {"total": len(found), "items": self.page(found, begin, size)})

    def shown(self, made: Made) -> Body:
        status = "Booked" if (made.place, made.id) in self._booked else "Open"
        return {**asked_for(made), "id": made.id, "status": status, "is_deleted": self.is_cancelled(made)}

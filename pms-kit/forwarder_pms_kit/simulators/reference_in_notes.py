"""Simulated vendors that keep our reference in the notes alone, or not at all: Hostify, OwnerRez, Smoobu and Uplisting."""

import base64
import hashlib
import hmac
import re
from dataclasses import replace
from typing import ClassVar
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.types import ASGIApp

from forwarder.http.messages import Response
from forwarder.simulator.http import Handler
from forwarder.simulator.world import Made, World
from forwarder_pms_kit.simulators.common import Body, Endpoints, HostedPms, No, Stay, answer, asked_for

_MOST_PER_PAGE = 100


def _basic(request: Request) -> str:
    """The user and the password of basic authentication; empty if there are none."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    try:
        return base64.b64decode(encoded, validate=True).decode() if scheme == "Basic" else ""
    except ValueError:
        return ""


class Hostify(HostedPms):
    """Hostify: `success` in every answer, days in the filter of its list empty it."""

    base, creates = "hostify", "/reservations"
    stay = ("listing_id", "start_date", "end_date", "note", "email", "name")
    key_header = "x-api-key"
    statuses: ClassVar = {"missing": 404, "": 400}
    envelope: ClassVar = {"success": True}
    shown_in = "reservation"

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("GET", "/reservations"): self.search,
            ("GET", "/reservations/{id:int}"): self.show,
            ("PUT", "/reservations/{id:int}"): self.change,
        }

    def error(self, _status: int, said: str) -> object:
        return {"success": False, "error": said}

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        if not isinstance(body.get("listing_id"), int) or not body.get("name"):
            raise No("invalid", "listing_id and name are required")
        shown = self.shown(self.book(request, self.stay_in(body), body))
        names = ("id", "status", "source", "confirmation_code", "notes")
        return answer(200, {"success": True, "reservation": {name: shown[name] for name in names}})

    async def search(self, request: Request) -> Response:
        query = request.query_params
        size, page = min(int(query.get("per_page", 20)), _MOST_PER_PAGE), int(query.get("page", 1))
        found = self.bookings(request, query.get("listing_id"))
        if "start_date" in query or "end_date" in query:
            found = []
        return answer(
            200, {"success": True, "reservations": self.page(found, (page - 1) * size, size), "total": len(found)}
        )

    async def change(self, request: Request) -> Response:
        made, body = self.one(request), await self.body(request)
        if body.get("status") == "cancelled_by_host":
            self.cancel(made)
        return answer(200, {"success": True, "reservation": {**self.shown(made), **body}})

    def shown(self, made: Made) -> Body:
        asked = asked_for(made)
        return {
            "id": made.id,
            "listing_id": asked["listing_id"],
            "status": "cancelled_by_host" if self.is_cancelled(made) else "accepted",
            "source": asked.get("source"),
            "confirmation_code": f"HM{made.id}",
            "notes": asked.get("note"),
            "checkIn": asked["start_date"],
            "checkOut": asked["end_date"],
            "guest_email": asked.get("email"),
        }


class OwnerRez(HostedPms):
    """OwnerRez v2: guests first, lists by offset, no cancellation."""

    base, creates = "ownerrez/v2", "/bookings"
    stay = ("property_id", "arrival", "departure", "notes")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._guests: list[Body] = []

    def endpoints(self) -> Endpoints:
        return {
            ("POST", "/guests"): self.make_guest,
            ("POST", self.creates): self.create,
            ("GET", "/bookings"): self.search,
        }

    def refused(self, no: No) -> Response:
        return answer(422, {"messages": [str(no)]})

    def error(self, _status: int, said: str) -> object:
        return {"message": said}

    def credential_of(self, request: Request) -> str:
        return _basic(request).partition(":")[2]

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
        emails = guest.get("email_addresses") or [{}]
        of_guest = {"email": str(emails[0].get("address", "")), "last_name": str(guest["last_name"])}
        return self.answered(self.book(request, replace(self.stay_in(body), **of_guest), body), 201)

    async def search(self, request: Request) -> Response:
        query = request.query_params
        skip, limit = int(query.get("offset", 0)), int(query.get("limit", 20))
        found = self.bookings(request, query.get("property_ids"))
        return answer(200, {"items": self.page(found, skip, limit), "limit": limit, "offset": skip})

    def shown(self, made: Made) -> Body:
        asked = asked_for(made)
        names = ("property_id", "arrival", "departure", "guest_id", "notes")
        status = "canceled" if self.is_cancelled(made) else "active"
        return {"id": made.id, "status": status, **{name: asked.get(name) for name in names}}


class Smoobu(HostedPms):
    """Smoobu: signed requests, numbered pages. The secret of every key is `a-simulated-secret`. A nonce is taken once."""

    base, creates = "smoobu/api", "/reservations"
    stay = ("apartmentId", "arrivalDate", "departureDate", "notice", "email", "lastName")
    key_header = "x-api-key"
    _SECRET = b"a-simulated-secret"
    _MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._nonces: set[str] = set()

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("GET", "/reservations"): self.search,
            ("GET", "/reservations/{id:int}"): self.show,
            ("DELETE", "/reservations/{id:int}"): self.end,
        }

    def refused(self, no: No) -> Response:
        if no.why == "missing":
            return answer(404, {"status": 404, "title": "Not Found", "detail": "Entity not found"})
        return answer(400, {"status": 400, "title": "Error occurred", "detail": str(no)})

    def error(self, status: int, said: str) -> object:
        return {"status": status, "title": said}

    def guarded(self, handler: Handler, *, books: bool = False) -> Handler:
        """`handler` for requests whose signature is right."""

        async def answered(request: Request) -> ASGIApp:
            if not self._is_signed(request, await request.body()):
                return answer(401, {"status": 401, "title": "Unauthorized"})
            return await handler(request)

        return super().guarded(answered, books=books)

    def _is_signed(self, request: Request, content: bytes) -> bool:
        headers = request.headers
        nonce, moment = headers.get("x-nonce", ""), headers.get("x-timestamp", "")
        pairs = sorted(parse_qsl(request.url.query, keep_blank_values=True))
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
        path = request.scope["raw_path"].decode("ascii").partition("?")[0]
        parts = [request.method, path, query, moment, nonce, hashlib.sha256(content).hexdigest()]
        text = "\n".join([*parts, headers["x-api-key"]])
        expected = base64.b64encode(hmac.new(self._SECRET, text.encode(), hashlib.sha256).digest()).decode()
        fresh = nonce != "" and nonce not in self._nonces and self._MOMENT.fullmatch(moment) is not None
        self._nonces.add(nonce)
        return fresh and hmac.compare_digest(expected, headers.get("x-signature", ""))

    async def create(self, request: Request) -> Response:
        body = await self.body(request)
        if not isinstance(body.get("apartmentId"), int) or not isinstance(body.get("channelId"), int):
            raise No("invalid", "apartmentId and channelId are numbers")
        return answer(200, {"id": self.book(request, self.stay_in(body), body).id})

    async def search(self, request: Request) -> Response:
        query = request.query_params
        size, page = min(int(query.get("pageSize", 25)), _MOST_PER_PAGE), int(query.get("page", 1))
        days = (query.get("arrivalFrom", ""), query.get("arrivalTo", "9"))
        found = [
            made
            for made in self.bookings(request, query.get("apartmentId"), *days)
            if query.get("showCancellation") == "true" or not self.is_cancelled(made)
        ]
        counts = {"page_count": -(-len(found) // size), "page_size": size, "total_items": len(found), "page": page}
        return answer(200, {**counts, "bookings": self.page(found, (page - 1) * size, size)})

    async def end(self, request: Request) -> Response:
        self.cancel(self.one(request))
        return answer(200, {"success": True})

    def shown(self, made: Made) -> Body:
        asked = asked_for(made)
        return {
            "id": made.id,
            "type": "cancellation" if self.is_cancelled(made) else "reservation",
            "arrival": asked["arrivalDate"],
            "departure": asked["departureDate"],
            "apartment": {"id": asked["apartmentId"], "name": "Apartment"},
            "email": asked.get("email"),
            "notice": asked.get("notice"),
            "price": asked.get("price"),
        }


class Uplisting(HostedPms):
    """Uplisting: pages are counted from 0, and nothing is cancelled. The world knows a booking by its property and first day, since
    nothing else of ours is sent."""

    base, creates = "uplisting", "/v2/bookings"
    _PER_PAGE = 50

    def endpoints(self) -> Endpoints:
        return {("POST", self.creates): self.create, ("GET", "/bookings/{listing}"): self.search}

    def refused(self, no: No) -> Response:
        return answer(422, {"errors": [{"title": "Unprocessable", "detail": str(no)}]})

    def error(self, _status: int, said: str) -> object:
        return {"errors": [{"title": said}]}

    def credential_of(self, request: Request) -> str:
        return _basic(request)

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
        query, size = request.query_params, self._PER_PAGE
        found = [
            made
            for made in self.bookings(request, request.path_params["listing"])
            if made.arrival.isoformat() <= query.get("to", "9") and made.departure.isoformat() >= query.get("from", "")
        ]
        meta = {"total": len(found), "total_pages": -(-len(found) // size)}
        return answer(200, {"bookings": self.page(found, int(query.get("page", 0)) * size, size), "meta": meta})

    def shown(self, made: Made) -> Body:
        return {"id": made.id, "status": "confirmed", **asked_for(made)}

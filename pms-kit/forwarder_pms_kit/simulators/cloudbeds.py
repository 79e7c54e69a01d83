"""Simulated Cloudbeds PMS API v1.3, as its OpenAPI file and its guides show it, at any base URL.

Property and room type `unknown` are not known. A room type has one room. Cloudbeds sets the price: 100 a night, and a tenth of it
for taxes. Our reference is shown where the source is a third party's. A refusal is a 200 with `success: false`.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from starlette.requests import Request
from starlette.routing import BaseRoute

from forwarder.http.messages import Response
from forwarder.process.clock import iso
from forwarder.simulator.http import Handler, bearer_of, below_any_base
from forwarder.simulator.world import Made, World
from forwarder_pms_kit.simulators.common import Body, Endpoints, HostedPms, No, Stay, answer, asked_for, form_of

_MOST_PER_PAGE = 100
_A_NIGHT = 100
_UNKNOWN = "unknown"
_SAID = {
    401: {"error": "access_denied", "message": "The resource owner or authorization server denied the request."},
    429: {"success": False, "message": "Rate limit exceeded"},
}
_LISTED = ("propertyID", "reservationID", "status", "guestName", "startDate", "endDate", "balance", "sourceID")
_NO_SUCH_PROPERTY = "None of the included property id's match the access_token user's property id"


class Cloudbeds(HostedPms):
    """Cloudbeds."""

    base, creates = "", "/postReservation"
    statuses: ClassVar = {"": 200}
    envelope: ClassVar = {"success": True}
    shown_in = "data"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._notes: defaultdict[tuple[str, int], list[dict[str, str]]] = defaultdict(list)

    def endpoints(self) -> Endpoints:
        return {
            ("POST", self.creates): self.create,
            ("GET", "/getReservation"): self.show,
            ("GET", "/getReservations"): self.search,
            ("PUT", "/putReservation"): self.change,
            ("POST", "/postReservationNote"): self.leave_note,
            ("GET", "/getReservationNotes"): self.list_notes,
        }

    def route(self, method: str, path: str, endpoint: Handler) -> list[BaseRoute]:
        return below_any_base(path, method, endpoint)

    def error(self, status: int, said: str) -> object:
        return _SAID.get(status, {"success": False, "message": said})

    def credential_of(self, request: Request) -> str:
        """An API key in a header of its own, or as a bearer token."""
        return request.headers.get("x-api-key") or bearer_of(request)

    async def create(self, request: Request) -> Response:
        form = await form_of(request)
        property_id, room = form.get("propertyID", ""), form.get("rooms[0][roomTypeID]", "")
        if property_id in ("", _UNKNOWN):
            raise No("property", _NO_SUCH_PROPERTY)
        if room in ("", _UNKNOWN):
            raise No("invalid", "Parameter rooms: the roomTypeID is not valid")
        for name in ("guestFirstName", "guestLastName", "paymentMethod"):
            if not form.get(name):
                raise No("invalid", f"Parameter {name} is required")
        if form.get("guestEmail", "").endswith("@refused.example"):
            raise No("guest", "Parameter guestEmail is not valid")
        dates = (form.get("startDate", ""), form.get("endDate", ""))
        reference, last_name = form.get("thirdPartyIdentifier", ""), form["guestLastName"]
        made = self.book(request, Stay(f"{property_id}/{room}", *dates, reference, last_name=last_name), form)
        reservation = self.shown(made)
        # Here numbers, where getReservation has texts.
        rooms = [
            {**room, **{name: int(room[name]) for name in ("adults", "children", "roomTotal")}}
            for room in reservation["unassigned"]
        ]
        named = {name: reservation[name] for name in ("reservationID", "status", "startDate", "endDate")}
        return answer(200, {"success": True, **named, "grandTotal": reservation["total"], "unassigned": rooms})

    async def show(self, request: Request) -> Response:
        return self.answered(self.one(request, request.query_params.get("reservationID", "")))

    async def search(self, request: Request) -> Response:
        query = request.query_params
        property_id, reference, status = map(query.get, ("propertyID", "sourceReservationId", "status"))
        if property_id == _UNKNOWN:
            raise No("property", _NO_SUCH_PROPERTY)
        page, size = int(query.get("pageNumber", 1)), min(int(query.get("pageSize", _MOST_PER_PAGE)), _MOST_PER_PAGE)
        found = [
            shown
            for shown in map(self.shown, self.bookings(request))
            if property_id in (None, shown["propertyID"])
            and reference in (None, shown["thirdPartyIdentifier"])
            and status in (None, shown["status"])
        ]
        listed = [  # without prices
            {name: shown[name] for name in (*_LISTED, "thirdPartyIdentifier")} | {"sourceName": shown["source"]}
            for shown in found[(page - 1) * size : page * size]
        ]
        return answer(200, {"success": True, "data": listed, "count": len(listed), "total": len(found)})

    async def change(self, request: Request) -> Response:
        form = await form_of(request)
        made = self.one(request, form.get("reservationID", ""))
        if form.get("status") != "canceled":
            raise No("invalid", "Only cancellations are simulated")
        self.cancel(made)
        return self.answered(made)

    async def leave_note(self, request: Request) -> Response:
        form = await form_of(request)
        made = self.one(request, form.get("reservationID", ""))
        if not form.get("reservationNote"):
            raise No("invalid", "Parameter reservationNote is required")
        notes = self._notes[made.place, made.id]
        moment = iso(self.world.clock.now())
        note = {"reservationNoteID": f"{made.id}{len(notes) + 1}", "userName": "API", "dateCreated": moment}
        notes.append({**note, "dateModified": moment, "reservationNote": form["reservationNote"]})
        return answer(200, {"success": True, "reservationNoteID": note["reservationNoteID"]})

    async def list_notes(self, request: Request) -> Response:
        made = self.one(request, request.query_params.get("reservationID", ""))
        return answer(200, {"success": True, "data": self._notes[made.place, made.id]})

    def shown(self, made: Made) -> Body:
        form = asked_for(made)
        nights = [made.arrival + timedelta(days=day) for day in range((made.departure - made.arrival).days)]
        price, taxes = len(nights) * _A_NIGHT, len(nights) * _A_NIGHT // 10
        source, cancelled = form.get("sourceID", "s-1"), self.is_cancelled(made)
        room = {
            "subReservationID": "1",
            "roomTypeID": form["rooms[0][roomTypeID]"],
            "roomTypeName": "Room",
            "adults": form.get("adults[0][quantity]", "1"),
            "children": form.get("children[0][quantity]", "0"),
            "dailyRates": [{"date": night.isoformat(), "rate": _A_NIGHT} for night in nights],
            "roomTotal": str(price),
        }
        return {
            "propertyID": form["propertyID"],
            "reservationID": str(made.id),
            "guestName": f"{form['guestFirstName']} {form['guestLastName']}",
            "startDate": form["startDate"],
            "endDate": form["endDate"],
            "source": "Website/Booking Engine" if source.startswith("s-") else "Direct channel",
            "sourceID": source,
            "thirdPartyIdentifier": "" if source.startswith("s-") else form.get("thirdPartyIdentifier", ""),
            "status": "canceled" if cancelled else "confirmed",
            "total": price + taxes,
            "balance": 0 if cancelled else price + taxes,
            "balanceDetailed": {
                "suggestedDeposit": "0",
                "subTotal": price,
                "additionalItems": 0,
                "taxesFees": taxes,
                "grandTotal": price + taxes,
                "paid": 0,
            },
            "customFields": _custom_fields(form),
            "assigned": [],
            "unassigned": [room],
        }


def _custom_fields(form: Mapping[str, str]) -> list[dict[str, str]]:
    name, value = form.get("customFields[0][fieldName]"), form.get("customFields[0][fieldValue]")
    return [{"shortcode": name, "customFieldName": name, "customFieldValue": value}] if name and value else []

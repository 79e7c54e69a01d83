"""Simulated Cloudbeds PMS API v1.3, as its OpenAPI file and its guides show it. No idempotency: every postReservation books.

Property and room type `unknown` are not known; a guest at `refused.example` is refused. A room type has one room. Cloudbeds sets
the price: 100 a night, and a tenth of it for taxes. Our reference is shown where the source is a third party's.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, assert_never
from urllib.parse import parse_qsl

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.routing import BaseRoute

from forwarder.http.messages import Response
from forwarder.process.clock import iso
from forwarder.simulator.bookings import CardDeclined, KeyReused, Made, OtherPrice, Replayed, Taken, Wanted
from forwarder.simulator.http import Guard, bearer_of, below_any_base, book, name_of, place_of
from forwarder.simulator.magic import effect_of
from forwarder.simulator.world import World

_MOST_PER_PAGE = 100
_A_NIGHT = 100
_UNKNOWN = "unknown"
_SAID = {
    401: {"error": "access_denied", "message": "The resource owner or authorization server denied the request."},
    429: {"success": False, "message": "Rate limit exceeded"},
}


class _Refusal(Exception):
    """The no of Cloudbeds, in HTTP 200."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.answer = Response(200, to_json({"success": False, "message": message}))


def cloudbeds_routes(world: World) -> list[BaseRoute]:
    """The routes of the kind."""
    pms = _Cloudbeds(world)
    guard = Guard(world, _failing, _credential_of)
    endpoints = {
        ("POST", "/postReservation"): guard.endpoint(pms.create, books=True),
        ("GET", "/getReservation"): guard.endpoint(pms.show),
        ("GET", "/getReservations"): guard.endpoint(pms.search),
        ("PUT", "/putReservation"): guard.endpoint(pms.change),
        ("POST", "/postReservationNote"): guard.endpoint(pms.leave_note),
        ("GET", "/getReservationNotes"): guard.endpoint(pms.list_notes),
    }
    return [route for (method, path), endpoint in endpoints.items() for route in below_any_base(path, method, endpoint)]


def _credential_of(request: Request) -> str:
    """An API key in a header of its own, or as a bearer token."""
    return request.headers.get("x-api-key") or bearer_of(request)


def _failing(status: int, retry_after: float | None = None) -> Response:
    said = _SAID.get(status, {"success": False, "message": f"HTTP {status}, as ordered"})
    headers = () if retry_after is None else ((b"retry-after", b"%d" % round(retry_after)),)
    return Response(status, to_json(said), headers)


class _Cloudbeds:
    def __init__(self, world: World) -> None:
        self._world = world
        self._notes: defaultdict[tuple[str, int], list[dict[str, str]]] = defaultdict(list)

    async def create(self, request: Request) -> Response:
        try:
            wanted = _wanted(request, _form(await request.body()))
        except _Refusal as refusal:
            return refusal.answer
        booked = book(self._world, request, wanted)
        match booked:
            case Made():
                return Response(200, to_json(_created(from_json(booked.answer))))
            case Taken():
                return _Refusal("The room type is not available for the selected dates").answer
            case OtherPrice():
                return _Refusal("The price has changed").answer
            case CardDeclined():
                return _Refusal("The credit card was declined").answer
            case Replayed() | KeyReused():
                raise AssertionError("a booking without a key has no other by its key")
            case _:
                assert_never(booked)

    async def show(self, request: Request) -> Response:
        made = self._by_id(request, request.query_params.get("reservationID"))
        if made is None:
            return _Refusal("Reservation not found").answer
        return Response(200, to_json({"success": True, "data": self._shown(made)}))

    async def search(self, request: Request) -> Response:
        query = request.query_params
        if query.get("propertyID") == _UNKNOWN:
            return _no_such_property().answer
        page, size = int(query.get("pageNumber", 1)), min(int(query.get("pageSize", _MOST_PER_PAGE)), _MOST_PER_PAGE)
        shown = [self._shown(made) for made in self._world.at(place_of(request))]
        found = [reservation for reservation in shown if _matches(reservation, query)]
        listed = [_listed(reservation) for reservation in found[(page - 1) * size : page * size]]
        return Response(200, to_json({"success": True, "data": listed, "count": len(listed), "total": len(found)}))

    async def change(self, request: Request) -> Response:
        form = _form(await request.body())
        made = self._by_id(request, form.get("reservationID"))
        if made is None:
            return _Refusal("Reservation not found").answer
        if form.get("status") != "canceled":
            return _Refusal("Only cancellations are simulated").answer
        self._world.cancel(made.place, made.id)
        return Response(200, to_json({"success": True, "data": self._shown(made)}))

    async def leave_note(self, request: Request) -> Response:
        form = _form(await request.body())
        made = self._by_id(request, form.get("reservationID"))
        if made is None or not form.get("reservationNote"):
            return _Refusal("Reservation not found").answer
        notes = self._notes[made.place, made.id]
        moment = iso(self._world.clock.now())
        note = {"reservationNoteID": f"{made.id}{len(notes) + 1}", "userName": "API", "dateCreated": moment}
        notes.append({**note, "dateModified": moment, "reservationNote": form["reservationNote"]})
        return Response(200, to_json({"success": True, "reservationNoteID": note["reservationNoteID"]}))

    async def list_notes(self, request: Request) -> Response:
        made = self._by_id(request, request.query_params.get("reservationID"))
        if made is None:
            return _Refusal("Reservation not found").answer
        return Response(200, to_json({"success": True, "data": self._notes[made.place, made.id]}))

    def _by_id(self, request: Request, reservation_id: str | None) -> Made | None:
        return next((made for made in self._world.at(place_of(request)) if str(made.id) == reservation_id), None)

    def _shown(self, made: Made) -> dict[str, Any]:
        reservation: dict[str, Any] = from_json(made.answer)
        cancelled = self._world.cancelled_at(made) is not None
        return {**reservation, "status": "canceled", "balance": 0} if cancelled else reservation


def _form(content: bytes) -> dict[str, str]:
    return dict(parse_qsl(content.decode()))


def _wanted(request: Request, form: Mapping[str, str]) -> Wanted:
    property_id, room = form.get("propertyID", ""), form.get("rooms[0][roomTypeID]", "")
    _check(form, property_id, room)
    arrival, departure = (_day(form, name) for name in ("startDate", "endDate"))
    if departure <= arrival:
        raise _Refusal("The endDate must be after the startDate")
    return Wanted(
        name=name_of(request),
        place=place_of(request),
        room=f"{property_id}/{room}",
        arrival=arrival,
        departure=departure,
        reference=form.get("thirdPartyIdentifier", ""),
        answer=lambda made_id: to_json(_reservation(made_id, form, arrival, departure)),
        effect=effect_of(form.get("guestLastName"), property_id, room),
    )


def _check(form: Mapping[str, str], property_id: str, room: str) -> None:
    if property_id in ("", _UNKNOWN):
        raise _no_such_property()
    if room in ("", _UNKNOWN):
        raise _Refusal("Parameter rooms: the roomTypeID is not valid")
    for name in ("guestFirstName", "guestLastName", "paymentMethod"):
        if not form.get(name):
            raise _Refusal(f"Parameter {name} is required")
    if form.get("guestEmail", "").endswith("@refused.example"):
        raise _Refusal("Parameter guestEmail is not valid")


def _no_such_property() -> _Refusal:
    return _Refusal("None of the included property id's match the access_token user's property id")


def _day(form: Mapping[str, str], name: str) -> date:
    try:
        return date.fromisoformat(form[name])
    except (KeyError, ValueError) as error:
        raise _Refusal(f"Parameter {name} is not a valid date") from error


def _reservation(made_id: int, form: Mapping[str, str], arrival: date, departure: date) -> dict[str, Any]:
    """As getReservation shows it."""
    nights = [arrival + timedelta(days=day) for day in range((departure - arrival).days)]
    price = len(nights) * _A_NIGHT
    taxes = price // 10
    source = form.get("sourceID", "s-1")
    return {
        "propertyID": form["propertyID"],
        "reservationID": str(made_id),
        "guestName": f"{form['guestFirstName']} {form['guestLastName']}",
        "startDate": form["startDate"],
        "endDate": form["endDate"],
        "source": "Website/Booking Engine" if source.startswith("s-") else "Direct channel",
        "sourceID": source,
        "thirdPartyIdentifier": "" if source.startswith("s-") else form.get("thirdPartyIdentifier", ""),
        "status": "confirmed",
        "total": price + taxes,
        "balance": price + taxes,
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
        "unassigned": [_room(form, nights)],
    }


def _custom_fields(form: Mapping[str, str]) -> list[dict[str, str]]:
    name, value = form.get("customFields[0][fieldName]"), form.get("customFields[0][fieldValue]")
    return [{"shortcode": name, "customFieldName": name, "customFieldValue": value}] if name and value else []


def _room(form: Mapping[str, str], nights: list[date]) -> dict[str, Any]:
    return {
        "subReservationID": "1",
        "roomTypeID": form["rooms[0][roomTypeID]"],
        "roomTypeName": "Room",
        "adults": form.get("adults[0][quantity]", "1"),
        "children": form.get("children[0][quantity]", "0"),
        "dailyRates": [{"date": night.isoformat(), "rate": _A_NIGHT} for night in nights],
        "roomTotal": str(len(nights) * _A_NIGHT),
    }


def _created(reservation: Mapping[str, Any]) -> dict[str, Any]:
    """As postReservation answers."""
    names = ("reservationID", "status", "startDate", "endDate")
    return {
        "success": True,
        **{name: reservation[name] for name in names},
        "grandTotal": reservation["total"],
        # Here numbers, where getReservation has texts.
        "unassigned": [
            {**room, **{name: int(room[name]) for name in ("adults", "children", "roomTotal")}}
            for room in reservation["unassigned"]
        ],
    }


def _matches(reservation: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    reference, status = query.get("sourceReservationId"), query.get("status")
    return (
        reservation["propertyID"] == query.get("propertyID", reservation["propertyID"])
        and (reference is None or reservation["thirdPartyIdentifier"] == reference)
        and (status is None or reservation["status"] == status)
    )


def _listed(reservation: Mapping[str, Any]) -> dict[str, Any]:
    """As getReservations shows it: without prices."""
    names = ("propertyID", "reservationID", "status", "guestName", "startDate", "endDate", "balance", "sourceID")
    shown = {name: reservation[name] for name in names}
    return {**shown, "sourceName": reservation["source"], "thirdPartyIdentifier": reservation["thirdPartyIdentifier"]}

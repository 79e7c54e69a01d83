"""The simulator's application: its PMSs, and endpoints for developers and tests; and the PMSs of the open contract: kind `generic`,
and `website-builder` with its websites.

    BASE/reservations, BASE/websites/ID/reservations, BASE/rentals/ID/bookings …
                            any base URL, and none, is a PMS of its own, and speaks every kind's wire form (many
                            kinds' only where it ends in a path of theirs: `world`); only below /nowhere there is none
    GET  /count             how many bookings were made, as text          GET /stats   more, as JSON
    POST /reset             forget all bookings
    PUT  /NAME/faults       what goes wrong from now on (`Faults`) at base URLs that begin with /NAME; of the one without a path
                            the name is `pms`                              GET, DELETE  look, lift

Accepts any bearer credential but `wrong`. Test values in a booking select its outcome: see `world`. What a PMS of the open
contract refuses: property or room `unknown`, a guest at `refused.example`, the card 4000000000000002 or one whose check
digit is wrong. Only the last four digits of a card outlive the request."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from hashlib import blake2b
from http import HTTPStatus
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json, to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from forwarder.http.health import Health, health_routes
from forwarder.http.messages import PROBLEM_JSON, Response, problem_response
from forwarder.reservation.problems import Problem
from forwarder.simulator.booking_sync import booking_sync_routes
from forwarder.simulator.faults import Faults
from forwarder.simulator.http import SimulatorGuard, below_any_base, book, name_of, place_of, with_retry_after
from forwarder.simulator.world import NotBooked, Wanted, World, effect_of

SimulatorApp = Starlette


def simulator_app(world: World, vendors: Sequence[BaseRoute] = ()) -> SimulatorApp:
    """The application over `world`, which the caller closes. May be mounted below a path. `vendors`: routes of further kinds, tried
    first; `forwarder_pms_kit.simulators` has them."""

    async def count(_request: Request) -> Response:
        return Response(200, b"%d\n" % world.made, media_type=b"text/plain")

    async def stats(_request: Request) -> Response:
        return Response(200, to_json(world.stats()))

    async def reset(_request: Request) -> StarletteResponse:
        world.reset()
        return StarletteResponse(status_code=204)

    async def faults(request: Request) -> ASGIApp:
        name = request.path_params["name"]
        if request.method == "DELETE":
            world.faults.lift(name)
            return StarletteResponse(status_code=204)
        if request.method == "PUT":
            try:
                world.faults.order(name, Faults.model_validate_json(await request.body()))
            except ValidationError as error:
                detail = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
                return problem_response(Problem("invalid_faults", "Not an order of faults", 422, detail))
        order = world.faults.at(name)
        return Response(200, (Faults() if order is None else order.faults).model_dump_json().encode())

    async def no_such_thing(_request: Request, error: Exception) -> StarletteResponse:
        status = error.status_code if isinstance(error, HTTPException) else 500
        problem = Problem("not_found", "Nothing there", status, "The simulator has nothing at this address.")
        return StarletteResponse(to_json(problem.as_json()), status, media_type="application/problem+json")

    return Starlette(
        routes=[
            *vendors,
            *_open_pms_routes(world),
            *booking_sync_routes(world),
            Route("/count", count, methods=["GET"]),
            Route("/stats", stats, methods=["GET"]),
            Route("/reset", reset, methods=["POST"]),
            Route("/{name}/faults", faults, methods=["PUT", "GET", "DELETE"]),
            *health_routes(Health(), "simulator"),
        ],
        exception_handlers={HTTPException: no_such_thing},
    )


def simulator_below(path: str, app: SimulatorApp) -> BaseRoute:
    """The application as one route of another, below `path`."""
    return Mount(path, app=app)


# --- the open contract ---

_UNKNOWN = "unknown"
_NOT_BOOKED: Final = {
    "key_reused": (422, "idempotency_key_reused", "This key came before, with another body."),
    "taken": (409, "room_unavailable", "The room is taken for some of these nights."),
    "price": (409, "price_changed", "The price has changed."),
    "card": (409, "card_refused", "The card was declined."),
}


class _Refusal(Exception):
    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(code)
        self.answer = problem_response(Problem(code, code.replace("_", " ").capitalize(), status, detail))


def _open_pms_routes(world: World) -> list[BaseRoute]:
    async def create(request: Request) -> Response:
        try:
            made, is_new = book(world, request, _wanted(request, await request.body()))
        except NotBooked as no:
            return _Refusal(*_NOT_BOOKED[no.why]).answer
        except _Refusal as refusal:
            return refusal.answer
        return Response(201 if is_new else 200, made.answer)

    async def find(request: Request) -> Response:
        reference, place = request.query_params.get("reference"), _place(request)
        shown = []
        for made in world.at(place) if reference is None else world.find(place, reference):
            cancelled = {"status": "CANCELLED", "cancelledAt": world.cancelled_at(made)}
            is_cancelled = cancelled["cancelledAt"] is not None
            shown.append(to_json({**from_json(made.answer), **cancelled}) if is_cancelled else made.answer)
        return Response(200, b'{"data":[' + b",".join(shown) + b"]}")

    async def cancel(request: Request) -> ASGIApp:
        """Idempotent: a cancelled booking can be cancelled again."""
        identifier = request.path_params["id"]
        if identifier.isdecimal() and world.cancel(_place(request), int(identifier)):
            return StarletteResponse(status_code=204)
        return _Refusal(404, "reservation_not_found", "There is no such reservation.").answer

    guard = SimulatorGuard(world, _failing)
    endpoints = (
        ("POST", "", guard.endpoint(create, books=True)),
        ("GET", "", guard.endpoint(find)),
        ("DELETE", "/{id}", guard.endpoint(cancel)),
    )
    return [
        route
        for path in ("/websites/{website}/reservations", "/reservations")
        for method, one, endpoint in endpoints
        for route in below_any_base(path + one, method, endpoint)
    ]


def _failing(status: int, retry_after: float | None) -> Response:
    """A problem that only has a status, and with 503 says that nothing was done."""
    code = "nothing_done" if status == HTTPStatus.SERVICE_UNAVAILABLE else f"simulated_{status}"
    problem = Problem(code, "A simulated fault", status, f"HTTP {status}, as ordered.")
    return replace(with_retry_after(status, retry_after, to_json(problem.as_json())), media_type=PROBLEM_JSON)


def _place(request: Request) -> str:
    website = request.path_params.get("website")
    return place_of(request) if website is None else f"{place_of(request)}/websites/{website}"


def _wanted(request: Request, content: bytes) -> Wanted:
    try:
        body = from_json(content)
    except ValueError as error:
        raise _Refusal(400, "invalid_json", "The body is not JSON.") from error
    if not isinstance(body, dict):
        raise _Refusal(422, "invalid_reservation", "The body is not a JSON object.")
    last_four = _checked_card(body.pop("cardDetails", None))
    try:
        arrival, departure = (date.fromisoformat(body[name]) for name in ("arrivalDate", "departureDate"))
        property_id = body["propertyId"]
    except (KeyError, TypeError, ValueError) as error:
        raise _Refusal(422, "invalid_reservation", "propertyId, arrivalDate and departureDate are needed.") from error
    if departure <= arrival:
        raise _Refusal(422, "invalid_reservation", "departureDate is not after arrivalDate.")
    room = body.get("roomId", property_id)
    if property_id == _UNKNOWN:
        raise _Refusal(404, "property_not_found", "There is no such property.")
    if room == _UNKNOWN:
        raise _Refusal(404, "room_not_found", "There is no such room.")
    guest = body["guest"] if isinstance(body.get("guest"), dict) else {}
    if str(guest.get("email", "")).endswith("@refused.example"):
        raise _Refusal(409, "guest_refused", "This guest is not welcome.")
    key = request.headers.get("idempotency-key")
    return Wanted(
        name=name_of(request),
        place=_place(request),
        room=f"{property_id}/{room}",
        arrival=arrival,
        departure=departure,
        reference=str(body.get("reference") or ""),
        answer=lambda made_id: to_json(_reservation(made_id, body, room, last_four)),
        key=None if key is None else key.strip('"'),
        fingerprint=blake2b(to_json([body, last_four]), digest_size=16).hexdigest(),
        effect=effect_of(property_id, room, guest.get("lastName"), guest.get("name")),
    )


def _checked_card(card: object) -> str | None:
    """The last four digits of a card that would be charged; None without a card. Its number must pass Luhn's check (ISO 7812-1)."""
    number = card.get("cardNumber") if isinstance(card, dict) else None
    if number is None:
        return None
    digits = "".join(character for character in str(number) if character.isdigit())
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    is_valid = len(digits) >= 12 and (doubled + sum(map(int, digits[::-2]))) % 10 == 0  # noqa: PLR2004 - the shortest
    if digits == "4000000000000002" or not is_valid:
        raise _Refusal(*_NOT_BOOKED["card"])
    return digits[-4:]


def _reservation(made_id: int, body: Mapping[str, Any], room: object, last_four: str | None) -> dict[str, Any]:
    price, currency = body.get("totalPrice"), body.get("currency")
    asked = {**body, "roomId": room}
    shown = "reference propertyId roomId arrivalDate departureDate totalPrice currency notes comments".split()
    reservation = {
        "id": made_id,
        "status": "CONFIRMED",
        **{name: asked.get(name) for name in shown},
        "codes": {"accessCode": [f"{made_id * 7919 % 10_000:04d}"]},
        "paymentUrl": f"https://pay.example/{made_id}" if last_four is None else "",
        "cardLastFour": last_four,
    }
    if price is not None:
        paid, left = (0, price) if last_four is None else (price, 0)
        amounts = {"totalPrice": price, "currency": currency, "totalPaid": paid, "remainingBalance": left}
        reservation["finances"] = {name: value for name, value in amounts.items() if value is not None}
    return {name: value for name, value in reservation.items() if value is not None}

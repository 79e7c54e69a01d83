"""What simulated PMSs of JSON have in common: a base URL that ends in a certain way, bookings kept as they were asked for,
and a no.

None is idempotent: every create books. A guest at `refused.example` is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, assert_never

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from forwarder.http.messages import Response
from forwarder.simulator.bookings import CardDeclined, KeyReused, Made, OtherPrice, Replayed, Taken, Wanted
from forwarder.simulator.http import Guard, Handler, below_base_ending_in, book, name_of, place_of
from forwarder.simulator.magic import effect_of
from forwarder.simulator.world import World

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stay:
    """What a body asks for, in our words. `reference`: what the world is to know it by."""

    room: str
    arrival: str
    departure: str
    reference: str
    email: str = ""
    last_name: str = ""


class No(Exception):
    """The PMS does not make it: `taken`, `price`, `card`, `guest`, `property` or `invalid`."""

    def __init__(self, why: str, said: str) -> None:
        super().__init__(said)
        self.why = why
        self.said = said


class HostedPms:
    """One kind. `refused` words a no."""

    def __init__(self, world: World, refused: Callable[[No], Response]) -> None:
        self.world = world
        self._refused = refused

    def answering(self, handler: Handler) -> Handler:
        """`handler`, whose `No` is answered."""

        async def answered(request: Request) -> ASGIApp:
            try:
                return await handler(request)
            except No as no:
                return self._refused(no)

        return answered

    async def body(self, request: Request) -> Body:
        """The JSON object of a request."""
        try:
            body = from_json(await request.body())
        except ValueError as error:
            raise No("invalid", "The body is not JSON") from error
        if not isinstance(body, dict):
            raise No("invalid", "The body is not an object")
        return body

    def book(self, request: Request, stay: Stay, asked: Mapping[str, Any]) -> Made:
        """The booking, which keeps `asked`. Raises `No`."""
        if stay.email.endswith("@refused.example"):
            raise No("guest", "The guest's e-mail is not valid")
        arrival, departure = _day(stay.arrival), _day(stay.departure)
        if departure <= arrival:
            raise No("invalid", "Departure must be after arrival")
        wanted = Wanted(
            name=name_of(request),
            place=place_of(request),
            room=stay.room,
            arrival=arrival,
            departure=departure,
            reference=stay.reference,
            answer=lambda made_id: to_json({"id": made_id, "asked": asked}),
            effect=effect_of(stay.last_name, *stay.room.split("/")),
        )
        booked = book(self.world, request, wanted)
        match booked:
            case Made():
                return booked
            case Taken():
                raise No("taken", "These dates are not available")
            case OtherPrice():
                raise No("price", "The price has changed")
            case CardDeclined():
                raise No("card", "The card was declined")
            case Replayed() | KeyReused():
                raise AssertionError("a booking without a key has no other by its key")
            case _:
                assert_never(booked)

    def bookings(self, request: Request, room: str | None = None) -> Sequence[Made]:
        """Those of the place, or of one of its rooms."""
        return [made for made in self.world.at(place_of(request)) if room in (None, made.room)]

    def one(self, request: Request) -> Made | None:
        """The booking whose id is in the path."""
        made_id = str(request.path_params["id"])
        return next((made for made in self.bookings(request) if str(made.id) == made_id), None)

    def is_cancelled(self, made: Made) -> bool:
        return self.world.cancelled_at(made) is not None

    def cancel(self, made: Made) -> None:
        self.world.cancel(made.place, made.id)


def asked_for(made: Made) -> Body:
    """The body that asked for it."""
    asked: Body = from_json(made.answer)["asked"]
    return asked


def answer(status: int, body: object) -> Response:
    """A response of JSON."""
    return Response(status, to_json(body))


def failing_as(body: Callable[[int], object]) -> Callable[..., Response]:
    """How a kind words a response that is no more than a status."""

    def failing(status: int, retry_after: float | None = None) -> Response:
        headers = () if retry_after is None else ((b"retry-after", b"%d" % round(retry_after)),)
        return Response(status, to_json(body(status)), headers)

    return failing


def routes_of(
    pms: HostedPms, base: str, guard: Guard, endpoints: Mapping[tuple[str, str], Handler], *, creates: str
) -> list[BaseRoute]:
    """`endpoints` below every base URL that ends in `base`; `creates`: the path at which a POST books."""
    return [
        route
        for (method, path), handler in endpoints.items()
        for route in below_base_ending_in(
            base, path, method, guard.endpoint(pms.answering(handler), books=(method, path) == ("POST", creates))
        )
    ]


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text[:10])
    except ValueError as error:
        raise No("invalid", f"{text} is not a date") from error

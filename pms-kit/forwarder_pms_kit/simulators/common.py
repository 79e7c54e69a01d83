"""What the simulated vendors have in common: a base URL that ends in a certain way, and bookings kept as they were asked for.

None is idempotent: every create books. A guest at `refused.example` is refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from pydantic_core import from_json, to_json
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from forwarder.http.messages import Response
from forwarder.pms.mapping.values import MISSING, value_at
from forwarder.simulator.http import Handler, SimulatorGuard, bearer_of, book, name_of, place_of, with_retry_after
from forwarder.simulator.world import Made, NotBooked, Wanted, World, effect_of

Body = dict[str, Any]
Endpoints = Mapping[tuple[str, str], Handler]
"""The handler of each method and path."""

_REFERENCE = re.compile(r"rsv_\w+")
_NOT_BOOKED = {
    "taken": "These dates are not available",
    "price": "The price has changed",
    "card": "The card was declined",
}


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
    """The PMS does not do it: `taken`, `price`, `card`, `guest`, `property`, `missing` (no such reservation) or `invalid`."""

    def __init__(self, why: str, said: str) -> None:
        super().__init__(said)
        self.why = why


class HostedPms:
    """One kind, at base URLs that end in `base`; a POST to the path `creates` books. `stay`: where its body has the fields of a
    `Stay`, in their order; of a text around our reference, the reference counts. `key_header`: the header of the credential, if it
    is no bearer token. `statuses`: of the answer to a `No`, by its reason; "" for any other. `id_form`: its ids. `envelope`,
    `shown_in`: what answers have besides the reservation that they show, and its name there; empty: it is the whole answer."""

    base: ClassVar[str]
    creates: ClassVar[str]
    stay: ClassVar[tuple[str, ...]] = ()
    key_header: ClassVar[str] = ""
    statuses: ClassVar[Mapping[str, int]] = {"": 400}
    id_form: ClassVar[str] = "{}"
    envelope: ClassVar[Mapping[str, object]] = {}
    shown_in: ClassVar[str] = ""

    def __init__(self, world: World) -> None:
        self.world = world
        self.guard = SimulatorGuard(world, self.failing, self.credential_of)

    # --- what each kind has of its own ---

    def endpoints(self) -> Endpoints:
        raise NotImplementedError

    def error(self, status: int, said: str) -> object:
        """The body of an error."""
        raise NotImplementedError

    def shown(self, made: Made) -> Body:
        """A reservation, in JSON."""
        raise NotImplementedError

    def refused(self, no: No) -> Response:
        status = self.statuses.get(no.why) or self.statuses[""]
        return answer(status, self.error(status, str(no)))

    def credential_of(self, request: Request) -> str:
        """Where a request carries its credential."""
        return request.headers.get(self.key_header, "") if self.key_header else bearer_of(request)

    def id_of(self, made: Made) -> str:
        return self.id_form.format(made.id)

    # --- endpoints of many ---

    async def show(self, request: Request) -> Response:
        return self.answered(self.one(request))

    async def end(self, request: Request) -> Response:
        made = self.one(request)
        self.cancel(made)
        return self.answered(made)

    # --- what they share ---

    def routes(self) -> list[BaseRoute]:
        return [
            route
            for (method, path), handler in self.endpoints().items()
            for route in self.route(method, path, self.guarded(handler, books=(method, path) == ("POST", self.creates)))
        ]

    def route(self, method: str, path: str, endpoint: Handler) -> list[BaseRoute]:
        """`path` below every base URL whose path ends in `base`. Must precede the routes that accept any base."""

        class BasePath(PathConvertor):
            regex = rf"(?:.*/)?{re.escape(self.base)}"

        name = re.sub(r"\W", "_", self.base)
        register_url_convertor(name, BasePath())
        return [Route(f"/{{base:{name}}}{path}", endpoint, methods=[method])]

    def guarded(self, handler: Handler, *, books: bool = False) -> Handler:
        """`handler` behind the guard; its `No` is answered."""

        async def answered(request: Request) -> ASGIApp:
            try:
                return await handler(request)
            except No as no:
                return self.refused(no)

        return self.guard.endpoint(answered, books=books)

    def failing(self, status: int, retry_after: float | None = None) -> Response:
        return with_retry_after(status, retry_after, to_json(self.error(status, f"HTTP {status}, as ordered")))

    def answered(self, made: Made, status: int = 200) -> Response:
        """The answer that shows it."""
        shown = self.shown(made)
        return answer(status, {**self.envelope, self.shown_in: shown} if self.shown_in else shown)

    async def body(self, request: Request) -> Body:
        try:
            body = from_json(await request.body())
        except ValueError as error:
            raise No("invalid", "The body is not JSON") from error
        if not isinstance(body, dict):
            raise No("invalid", "The body is not an object")
        return body

    def stay_in(self, body: Body) -> Stay:
        """The stay that `body` asks for; empty texts for what it does not say."""
        values = [value_at(body, path) for path in self.stay]
        room, arrival, departure, reference, *more = ["" if each in (MISSING, None) else str(each) for each in values]
        named = _REFERENCE.search(reference)
        return Stay(room, arrival, departure, named[0] if named else reference, *more)

    def wanted(self, request: Request, stay: Stay, asked: Mapping[str, Any]) -> Wanted:
        """The booking that `asked` asks for. Raises `No`."""
        if stay.email.endswith("@refused.example"):
            raise No("guest", "The guest's e-mail is not valid")
        try:
            arrival, departure = (date.fromisoformat(day[:10]) for day in (stay.arrival, stay.departure))
        except ValueError as error:
            raise No("invalid", "The days of the stay are not dates") from error
        if departure <= arrival:
            raise No("invalid", "Departure must be after arrival")
        return Wanted(
            name=name_of(request),
            place=place_of(request),
            room=stay.room,
            arrival=arrival,
            departure=departure,
            reference=stay.reference,
            answer=lambda made_id: to_json({"id": made_id, "asked": asked}),
            effect=effect_of(stay.last_name, *stay.room.split("/")),
        )

    def book(self, request: Request, stay: Stay, asked: Mapping[str, Any]) -> Made:
        """The booking, which keeps `asked`. Raises `No`."""
        try:
            made, _ = book(self.world, request, self.wanted(request, stay, asked))
        except NotBooked as no:
            raise No(no.why, _NOT_BOOKED[no.why]) from no
        return made

    def bookings(self, request: Request, room: str | None = None, since: str = "", until: str = "9") -> Sequence[Made]:
        """Those of that room that arrive between these days."""
        return [
            made
            for made in self.world.at(place_of(request))
            if room in (None, made.room) and since <= made.arrival.isoformat() <= until
        ]

    def one(self, request: Request, made_id: object = None) -> Made:
        """The booking of that id, or of the id in the path. Raises `No`."""
        wanted = str(request.path_params["id"] if made_id is None else made_id)
        for made in self.bookings(request):
            if self.id_of(made) == wanted:
                return made
        raise No("missing", "Reservation not found")

    def is_cancelled(self, made: Made) -> bool:
        return self.world.cancelled_at(made) is not None

    def cancel(self, made: Made) -> None:
        self.world.cancel(made.place, made.id)

    def page(self, found: Sequence[Made], begin: int, size: int) -> list[Body]:
        return [self.shown(made) for made in found[begin : begin + size]]


def asked_for(made: Made) -> Body:
    """The body that asked for it."""
    asked: Body = from_json(made.answer)["asked"]
    return asked


def answer(status: int, body: object) -> Response:
    """A response of JSON."""
    return Response(status, to_json(body))


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form."""
    return dict(parse_qsl((await request.body()).decode()))


async def token_for(request: Request, scope: str | None, seconds: int) -> Response:
    """The response to a request for a token by client credentials: any client has one but whose secret is `wrong`."""
    form = await form_of(request)
    known = (form.get("grant_type"), form.get("scope")) == ("client_credentials", scope)
    if not known or form.get("client_secret") in (None, "wrong"):
        return answer(401, {"error": "invalid_client"})
    return answer(
        200, {"token_type": "Bearer", "expires_in": seconds, "access_token": f"token-of-{form.get('client_id')}"}
    )

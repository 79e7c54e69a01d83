"""The simulator's application: its PMSs, and endpoints for developers and tests.

    BASE/reservations, BASE/websites/ID/reservations, BASE/rentals/ID/bookings …
                            any base URL, and none, is a PMS of its own, and speaks every kind's wire form (many
                            kinds' only where it ends in a path of theirs: `world`); only below /nowhere there is none
    GET  /count             how many bookings were made, as text          GET /stats   more, as JSON
    POST /reset             forget all bookings
    PUT  /NAME/faults       what goes wrong from now on (`Faults`) at base URLs that begin with /NAME; of the one without a path
                            the name is `pms`                              GET, DELETE  look, lift

Accepts any bearer credential but `wrong`. Test values in a booking select its outcome: see `world`."""

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from forwarder.http.health import Health, health_routes
from forwarder.http.messages import Response, problem_response
from forwarder.reservation.problems.problem import Problem
from forwarder.simulator.booking_sync import booking_sync_routes
from forwarder.simulator.faults import Faults
from forwarder.simulator.open_pms import open_pms_routes
from forwarder.simulator.world import World

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
            *open_pms_routes(world),
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

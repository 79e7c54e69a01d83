"""The application of every process that serves HTTP: each error that leaves it is a problem, each request is measured.

May touch the web framework and the metrics; knows nothing of reservations.
"""

import functools
import secrets
import traceback
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import structlog
from prometheus_client import Histogram
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from forwarder.http.responses import DirectEndpoint, DirectEndpoints, Response, Routes, problem_response
from forwarder.observability.metrics import REQUEST_SECONDS
from forwarder.observability.observations import OBSERVATIONS
from forwarder.process.clock import Clock
from forwarder.reservation.problems import requests, service

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_CLIENT_GONE = 499
"""The status that is counted, and seen by nobody, when the client left before an answer."""

_log = structlog.get_logger()


def http_app(routes: Routes, clock: Clock, *, lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    """One application of these routes. Every error that leaves it is a problem; every request is measured by its route."""
    handlers: dict[Any, Any] = {HTTPException: _refused}
    app = _Application(clock, routes=routes, exception_handlers=handlers, lifespan=lifespan)
    # An address is one spelling: a redirect would cost a client that posts a second try of everything it sent.
    app.router.redirect_slashes = False
    return app


class _Application(Starlette):
    """Calls to a `DirectEndpoint` at an address without parameters bypass the framework: what that does for each call costs
    more than some of those answers. `straight`: what answers them, for servers that know the way."""

    def __init__(self, clock: Clock, *, routes: Routes, **options: Any) -> None:
        self._clock = clock
        self.straight = _straight(routes, clock)
        super().__init__(routes=routes, **options)

    def build_middleware_stack(self) -> ASGIApp:
        framework = ExceptionMiddleware(self.router, handlers=self.exception_handlers)
        return _Observed(framework, self._clock, self.straight)


def _straight(routes: Routes, clock: Clock) -> DirectEndpoints:
    """Those that the router would find: the first that takes such a call."""
    found: dict[tuple[str, str], ASGIApp] = {}
    for route in routes:
        if isinstance(route, Route) and isinstance(route.app, DirectEndpoint) and not route.param_convertors:
            for method in route.methods or ():
                call = {"type": "http", "method": method, "path": route.path}
                if next(each for each in routes if each.matches(call)[0] is Match.FULL) is route:
                    found[method, route.path] = _StraightWay(route.path, method, route.app, clock)
    return found


async def _refused(request: Request, error: Exception) -> Response:
    """The framework's own refusals: no such path, no such method."""
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    match status:
        case HTTPStatus.NOT_FOUND:
            return problem_response(requests.NOT_FOUND.problem("There is nothing at this path."))
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = ", ".join(sorted(_allowed(request)))
            problem = requests.METHOD_NOT_ALLOWED.problem(f"This path takes {allowed}.")
            return problem_response(problem, (b"allow", allowed.encode()))
        case _:
            raise error  # none of ours asks the framework to refuse anything else


def _allowed(request: Request) -> set[str]:
    """The methods of every route at this path, which may be several stages' routes."""
    routes = (route for route in request.app.routes if isinstance(route, Route))
    return {
        method
        for route in routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }


class _StraightWay:
    """To what answers at an address: measures each request, and answers what nobody foresaw."""

    def __init__(self, template: str, method: str, answerer: DirectEndpoint, clock: Clock) -> None:
        self._template = template
        self._method = method
        self._answerer = answerer
        self._clock = clock
        self._log = _log.bind()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = self._clock.monotonic(), 0
        try:
            try:
                answer = await self._answerer.answer(scope, receive)
            except ClientDisconnect:
                status = _CLIENT_GONE
                return
            except Exception as error:  # noqa: BLE001 - the last resort
                answer = _internal_error(_log_failure(self._template, error))
            status = answer.status
            await answer(scope, receive, send)
        finally:
            _measure(self._log, self._template, self._method, status, self._clock.monotonic() - started)


class _Observed:
    """Around everything else: measures each request, and answers what nobody foresaw."""

    def __init__(self, app: ASGIApp, clock: Clock, straight: DirectEndpoints) -> None:
        self._app = app
        self._clock = clock
        self._straight = straight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        straight = self._straight.get((scope["method"], scope["path"]))
        await (self._pass_on if straight is None else straight)(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = self._clock.monotonic()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except ClientDisconnect:
            status = _CLIENT_GONE
        except Exception as error:
            reference = _log_failure(getattr(scope.get("route"), "path", "unmatched"), error)
            if status:  # the answer has begun: only closing the connection tells the client that it is not whole
                raise
            await _internal_error(reference)(scope, receive, noting)
        finally:
            route = scope.get("route")
            template = "unmatched" if route is None else getattr(route, "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            _measure(_log, template, method, status, self._clock.monotonic() - started)


def _measure(
    log: structlog.typing.FilteringBoundLogger, template: str, method: str, status: int, seconds: float
) -> None:
    OBSERVATIONS.note(_timer(template, method, status), seconds)
    log.debug("request.answered", route=template, method=method, status=status, seconds=round(seconds, 6))


@functools.cache
def _timer(route: str, method: str, status: int) -> Histogram:
    return REQUEST_SECONDS.labels(route, method, str(status))


def _log_failure(template: str, error: Exception) -> str:
    """Write down where a bug showed, under a reference that the client is given. Without the errors' own words, which may
    quote a guest or a card."""
    reference = secrets.token_hex(8)
    chain = list(_chain(error))
    _log.error(
        "request.failed",
        reference=reference,
        route=template,
        errors=[type(link).__qualname__ for link in chain],
        frames=[frame for link in chain for frame in traceback.format_tb(link.__traceback__)],
    )
    return reference


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _internal_error(reference: str) -> Response:
    detail = f"This is a fault of the service, noted as {reference}. It is not known whether the request took effect."
    return problem_response(service.INTERNAL_ERROR.problem(detail, extra={"reference": reference}))

"""What every process that serves HTTP shares: answers, problems (RFC 9457), the last resort for errors, and one measure.

May touch the web framework and the metrics; knows nothing of reservations beyond `Problem`.
"""

import functools
import secrets
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import structlog
from prometheus_client import Histogram
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from forwarder.reservation.catalogue import requests, service
from forwarder.reservation.problem import Problem
from forwarder.runtime.clock import Clock
from forwarder.runtime.metrics import REQUEST_SECONDS

JSON: Final = b"application/json"
PROBLEM_JSON: Final = b"application/problem+json"
NO_STORE: Final = (b"cache-control", b"no-store")
"""For answers with guests in them: no cache on the way may keep them."""

Routes = Sequence[BaseRoute]
"""What a stage contributes to an application: its addresses and what answers there."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_CLIENT_GONE = 499
"""The status that is counted, and seen by nobody, when the client left before an answer."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole response, and the ASGI application that sends it. `headers` are as ASGI has them: lower-case names."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = JSON

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", self.media_type),
            (b"content-length", b"%d" % len(self.body)),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def problem_answer(problem: Problem, *headers: tuple[bytes, bytes], retry_after_seconds: int = 1) -> Answer:
    """The answer that refuses with `problem`. A 401 says which credential is asked for (RFC 9110, section 11.6.1), a 503 when
    to come again."""
    match problem.status:
        case HTTPStatus.UNAUTHORIZED:
            headers = (*headers, (b"www-authenticate", b"Bearer"))
        case HTTPStatus.SERVICE_UNAVAILABLE:
            headers = (*headers, retry_after(retry_after_seconds))
    return Answer(problem.status, to_json(problem.as_json()), headers, PROBLEM_JSON)


def retry_after(seconds: int) -> tuple[bytes, bytes]:
    """When to come again."""
    return (b"retry-after", b"%d" % seconds)


def header_map(scope: Scope) -> dict[str, str]:
    """The request's headers by lower-case name; lines of one name are joined by a comma, as RFC 9110 (5.3) has it."""
    lines = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    headers = dict(lines)
    return headers if len(headers) == len(lines) else _joined(lines)


def _joined(lines: Sequence[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in lines:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def http_app(routes: Routes, clock: Clock, *, lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    """One application of these routes. Every error that leaves it is a problem; every request is measured by its route."""
    handlers: dict[Any, Any] = {HTTPException: _refused}
    app = Starlette(
        routes=routes,
        middleware=[Middleware(_Observed, clock=clock)],
        exception_handlers=handlers,
        lifespan=lifespan,
    )
    # An address is one spelling: a redirect would cost a client that posts a second try of everything it sent.
    app.router.redirect_slashes = False
    return app


async def _refused(request: Request, error: Exception) -> Answer:
    """The framework's own refusals: no such path, no such method."""
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    match status:
        case HTTPStatus.NOT_FOUND:
            return problem_answer(requests.NOT_FOUND.problem("There is nothing at this path."))
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = ", ".join(sorted(_allowed(request)))
            problem = requests.METHOD_NOT_ALLOWED.problem(f"This path takes {allowed}.")
            return problem_answer(problem, (b"allow", allowed.encode()))
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


class _Observed:
    """Around everything else: measures each request, and answers what nobody foresaw."""

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
            reference = _log_failure(scope, error)
            if status:  # the answer has begun: only closing the connection tells the client that it is not whole
                raise
            await _internal_error(reference)(scope, receive, noting)
        finally:
            self._measure(scope, status, self._clock.monotonic() - started)

    def _measure(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        template = "unmatched" if route is None else getattr(route, "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        _timer(template, method, status).observe(seconds)
        _log.debug("request.answered", route=template, method=method, status=status, seconds=round(seconds, 6))


@functools.cache
def _timer(route: str, method: str, status: int) -> Histogram:
    return REQUEST_SECONDS.labels(route, method, str(status))


def _log_failure(scope: Scope, error: Exception) -> str:
    """Write down where a bug showed, under a reference that the client is given. Without the errors' own words, which may
    quote a guest or a card."""
    reference = secrets.token_hex(8)
    chain = list(_chain(error))
    _log.error(
        "request.failed",
        reference=reference,
        route=getattr(scope.get("route"), "path", "unmatched"),
        errors=[type(link).__qualname__ for link in chain],
        frames=[frame for link in chain for frame in traceback.format_tb(link.__traceback__)],
    )
    return reference


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _internal_error(reference: str) -> Answer:
    detail = f"This is a fault of the service, noted as {reference}. It is not known whether the request took effect."
    return problem_answer(service.INTERNAL_ERROR.problem(detail, extra={"reference": reference}))

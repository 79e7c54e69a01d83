"""The server of every process that speaks HTTP: its application, and uvicorn, which serves it on a socket with limits on
connections (docs/decisions/0016 says why). Independent of reservations."""

import asyncio
import contextlib
import functools
import re
import socket
import traceback
from collections.abc import Iterator, Mapping
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import Any, Final, cast

import structlog
import uvicorn
from prometheus_client import Histogram
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forwarder.http import messages
from forwarder.http.connection_limits import HEAD_TOO_LARGE, MAX_HEAD_BYTES, LimitedProtocol
from forwarder.http.connections import ConnectionLimits, Connections, ServerTls, accept_secured
from forwarder.http.health import ALWAYS_ANSWERED
from forwarder.http.messages import Response, Routes, problem_response
from forwarder.observability import tracing
from forwarder.observability.logging import bind_log_context
from forwarder.observability.metrics import DEFERRED, REQUEST_SECONDS
from forwarder.observability.tracing import Kind, Span, Tracer
from forwarder.process.clock import Clock
from forwarder.process.supervision import BACKLOG, Stop
from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks.card_numbers import find

_TRACE_FIELDS: Final = (tracing.TRACEPARENT.encode(), tracing.TRACESTATE.encode())
_NAMING_FIELDS: Final = frozenset({b"request-id", b"x-request-id", _TRACE_FIELDS[0]})
_SANE_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_CLOSE: Final = (b"connection", b"close")
_OVERLOADED: Final = problem_response(catalogue.OVERLOADED.problem("Send the same request again in a moment."), _CLOSE)
_NO_SUCH_PATH: Final = problem_response(catalogue.NOT_FOUND.problem("Unknown path."))
_CLIENT_GONE = 499  # the status to count if the client left before a response; never sent
_UNTRACED: Final = contextlib.nullcontext()
_log = structlog.get_logger()


class HttpApp:
    """The ASGI application for these routes. Responds to every error with a problem, and measures every request by its route. Once
    `leaving` is set, each response ends its connection, so that its client opens the next one elsewhere. Each request takes a place
    of `admission`; a `DirectEndpoint` takes it itself, once it knows its caller. Links of problems begin with `public_url`.
    `tracer`: records a span for each request, in its caller's trace; the application sees that span as the caller's.

    Finds a `DirectEndpoint` without path parameters in a table: the framework's routing costs more than some responses."""

    def __init__(
        self,
        routes: Routes,
        clock: Clock,
        *,
        leaving: Stop | None = None,
        admission: messages.Admission | None = None,
        public_url: str = "",
        tracer: Tracer | None = None,
    ) -> None:
        self._clock, self._leaving, self._public_url = clock, leaving or Stop(), public_url.encode()
        self._admission, self._tracer, self._log = admission or messages.Admission(), tracer, _log.bind()
        self._direct = _direct_endpoints(routes)
        # One spelling per address: a redirect would make a client post everything again.
        self._router = Router(routes, redirect_slashes=False)
        self._framework = ExceptionMiddleware(self._router, handlers=cast("Any", {HTTPException: _refused}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._framework(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "other"
        spans = []
        if self._tracer is not None and scope["path"] not in ALWAYS_ANSWERED:
            came = messages.header_map(scope)
            parent = tracing.read_trace(came.get(tracing.TRACEPARENT), came.get(tracing.TRACESTATE))
            known = {"http.request.method": "_OTHER" if method == "other" else method, "url.scheme": scope["scheme"]}
            spans = [self._tracer.start(_span_name(method), Kind.SERVER, parent, known)]
            rest = [line for line in scope["headers"] if line[0] not in _TRACE_FIELDS]
            traced = [(name.encode(), value.encode()) for name, value in tracing.trace_headers(spans[0].trace)]
            scope = {**scope, "headers": [*rest, *traced]}
        request_id, trace_id = _names(scope)
        named = (b"request-id", request_id)
        scope[messages.ADDED] = (named, _CLOSE) if self._leaving.is_set() else (named,)
        if self._public_url:
            scope[messages.PUBLIC_URL] = self._public_url
        traced_as = {} if trace_id is None else {"trace_id": trace_id}
        bind_log_context(http_request_id=request_id.decode(), **traced_as)
        started, status = self._clock.monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with tracing.ending(*spans) if spans else _UNTRACED:
            try:
                await self._respond(scope, receive, noting)
            except ClientDisconnect:
                status = _CLIENT_GONE
            except Exception as error:
                _log_failure(self._template(scope), error)
                if status:  # the response has begun: only closing the connection shows the client that it is incomplete
                    raise
                failed = f"This is a fault of the service, noted as {request_id.decode()}."
                failed += " It is not known whether the request took effect."
                await problem_response(catalogue.INTERNAL_ERROR.problem(failed))(scope, receive, noting)
            finally:
                if (place := messages.place_of(scope)) is not None:
                    place.end()
                template, seconds = self._template(scope), self._clock.monotonic() - started
                DEFERRED.observe(_timer(template, method, status), seconds)
                self._log.debug(
                    "request.completed", route=template, method=method, status=status, seconds=round(seconds, 6)
                )
                for span in spans:
                    _complete(span, method, template, status)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, app = scope["path"], self._direct.get((scope["method"], scope["path"]))
        if sum(map(len, (path, scope["query_string"], *chain.from_iterable(scope["headers"])))) > MAX_HEAD_BYTES:
            app = HEAD_TOO_LARGE
        elif path.endswith("\n"):  # it would match routes, and break a header that repeats it
            app = _NO_SUCH_PATH
        elif app is None:
            address, scope["app"] = messages.client_address(scope), self._router
            place = self._admission.enter_unknown(address, always=path in ALWAYS_ANSWERED)
            scope[messages.PLACE] = place
            app = _OVERLOADED if place is None else self._framework
        await app(scope, receive, send)

    def _template(self, scope: Scope) -> str:
        """The route's template; never the path itself, which identifies the reservation."""
        if (scope["method"], scope["path"]) in self._direct:
            return str(scope["path"])
        route = scope.get("route")
        return "unmatched" if route is None else getattr(route, "path", "other")


def _direct_endpoints(routes: Routes) -> Mapping[tuple[str, str], ASGIApp]:
    """The endpoints by method and path, as the router would find them: the first that matches."""
    found: dict[tuple[str, str], ASGIApp] = {}
    for route in routes:
        if isinstance(route, Route) and isinstance(route.app, messages.DirectEndpoint) and not route.param_convertors:
            for method in route.methods or ():
                request = {"type": "http", "method": method, "path": route.path}
                if next(each for each in routes if each.matches(request)[0] is Match.FULL) is route:
                    found[method, route.path] = route.app
    return found


def _names(scope: Scope) -> tuple[bytes, str | None]:
    """The request's id (the caller's, if that is one word of moderate length and no card number), and that of its trace."""
    given = traceparent = None
    for name, line in scope["headers"]:
        if name in _NAMING_FIELDS:
            if name == _TRACE_FIELDS[0]:
                traceparent = line if traceparent in {None, line} else b""  # two are none
            elif given is None:
                given = line
    if given is None or not _SANE_REQUEST_ID.fullmatch(given) or find(given.decode()):
        given = messages.new_request_id()
    trace = None if traceparent is None else tracing.read_trace(traceparent.decode("latin-1"))
    return given, None if trace is None else tracing.trace_id_of(trace)


def _complete(span: Span, method: str, template: str, status: int) -> None:
    if template not in {"unmatched", "other"}:
        span.rename(f"{_span_name(method)} {template}")
        span.note({"http.route": template})
    if status not in {0, _CLIENT_GONE}:
        span.note({"http.response.status_code": status})
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        span.fail(str(status))


def _span_name(method: str) -> str:
    return "HTTP" if method == "other" else method


async def _refused(request: Request, error: Exception) -> Response:
    path: str = request.scope["path"]
    bare, at_path = path.rstrip("/"), _allowed(request, path)
    at_bare = set() if path == bare else _allowed(request, bare)
    match error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR:
        case HTTPStatus.NOT_FOUND:
            hint = " It exists without the trailing slash." if at_bare else _where_else(request, bare)
            return problem_response(catalogue.NOT_FOUND.problem(f"Unknown path.{hint}"))
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = ", ".join(sorted(at_path))
            hint = f" Without the trailing slash it supports {request.method}." if request.method in at_bare else ""
            problem = catalogue.METHOD_NOT_ALLOWED.problem(f"This path supports {allowed}.{hint}")
            return problem_response(problem, (b"allow", allowed.encode()))
        case _:
            raise error  # our routes use the framework for no other refusal


def _where_else(request: Request, path: str) -> str:
    routes = [route for route in request.scope["router"].routes if isinstance(route, Route)]
    last = f"/{path.rpartition('/')[2]}"
    alike = [route.path for route in routes if route.include_in_schema and route.path.endswith(last)]
    if alike and last != "/":
        return f" Did you mean {max(alike, key=len)}?"
    documented = any(route.path == "/docs" for route in routes)
    return " All paths are in /openapi.json; documentation is at /docs." if documented else ""


def _allowed(request: Request, path: str) -> set[str]:
    scope = {**request.scope, "path": path}
    routes = (route for route in request.scope["router"].routes if isinstance(route, Route))
    return {method for route in routes if route.matches(scope)[0] is not Match.NONE for method in route.methods or ()}


@functools.cache
def _timer(route: str, method: str, status: int) -> Histogram:
    return REQUEST_SECONDS.labels(route, method, str(status))


def _log_failure(template: str, error: Exception) -> None:
    """Logs where an unexpected error occurred, without its message, which may quote a guest or a card."""
    links: list[BaseException] = [error]
    while (link := links[-1].__cause__ or links[-1].__context__) is not None:
        links.append(link)
    _log.error(
        "request.failed",
        route=template,
        errors=[type(each).__qualname__ for each in links],
        frames=[frame for each in links for frame in traceback.format_tb(each.__traceback__)],
    )


async def serve(
    app: ASGIApp,
    listening: socket.socket,
    stop: Stop,
    *,
    grace_seconds: float,
    limits: ConnectionLimits | None = None,
    tls: ServerTls | None = None,
    trusted_proxies: str = "",
) -> None:
    """Serves `app` on the bound socket `listening` until `stop` is set; then accepts nothing more and lets requests finish within
    the grace period. `trusted_proxies`: comma-separated networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted."""
    connections = Connections(limits or ConnectionLimits())
    protocol = partial(LimitedProtocol, connections=connections)
    config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", protocol),
        loop="none",
        ws="none",
        interface="asgi3",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=trusted_proxies,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(int(grace_seconds), 1),
    )
    server = _Server(config)
    background = [asyncio.create_task(connections.watch())]
    if tls is not None:
        make = partial(protocol, config=config, server_state=server.server_state, app_state={})
        accepting = accept_secured(listening, tls, connections, make)
        background += [asyncio.create_task(tls.watch()), asyncio.create_task(accepting)]

    async def stop_server() -> None:
        await stop.wait()
        for task in background[1:]:
            task.cancel()
        server.should_exit = True

    stopping = asyncio.create_task(stop_server())
    try:
        await server.serve(sockets=[listening] if tls is None else [])
    finally:
        for task in (*background, stopping):
            task.cancel()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

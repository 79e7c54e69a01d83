"""An application whose requests are spans: each continues its caller's trace."""

from collections.abc import Iterable
from typing import Final

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forwarder.observability.tracing.context import TRACEPARENT, TRACESTATE, read_trace, trace_headers
from forwarder.observability.tracing.tracer import Kind, Span, Tracer, ending

_UNTRACED: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Polled every few seconds; traces of them are of no use."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TRACE_FIELDS: Final = (TRACEPARENT.encode(), TRACESTATE.encode())
_FAILED: Final = 500


class TracedApp:
    """`app`, which serves `routes`."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute], tracer: Tracer) -> None:
        self._app = app
        self._paths = {route.path for route in routes if isinstance(route, Route)}
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNTRACED:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        attributes = {"http.request.method": method, "url.scheme": scope["scheme"]}
        span = self._tracer.start(_named(method), Kind.SERVER, _trace_of(scope), attributes)
        inner = {**scope, "headers": _with_trace(scope, span.trace)}
        with ending(span):
            try:
                await self._app(inner, receive, _noting(send, span))
            finally:
                if (template := self._template(inner)) is not None:
                    span.rename(f"{_named(method)} {template}")
                    span.note({"http.route": template})

    def _template(self, scope: Scope) -> str | None:
        """The route's template; never the path itself, which identifies the reservation."""
        route = scope.get("route")
        template: str | None = getattr(route, "path", None)
        # A direct endpoint is routed without the framework; its path has no parameters.
        return template or (scope["path"] if scope["path"] in self._paths else None)


def _named(method: str) -> str:
    return "HTTP" if method == "_OTHER" else method


def _trace_of(scope: Scope) -> str | None:
    found: dict[bytes, bytes] = {}
    for name, field in scope["headers"]:
        if name in _TRACE_FIELDS:
            found[name] = field if found.get(name, field) == field else b"%b,%b" % (found[name], field)
    parent, state = (found.get(name) for name in _TRACE_FIELDS)
    return (
        None
        if parent is None
        else read_trace(parent.decode("latin-1"), None if state is None else state.decode("latin-1"))
    )


def _with_trace(scope: Scope, trace: str) -> list[tuple[bytes, bytes]]:
    rest = [line for line in scope["headers"] if line[0] not in _TRACE_FIELDS]
    return [*rest, *((name.encode(), value.encode()) for name, value in trace_headers(trace))]


def _noting(send: Send, span: Span) -> Send:
    async def noting(message: Message) -> None:
        if message["type"] == "http.response.start":
            status = message["status"]
            span.note({"http.response.status_code": status})
            if status >= _FAILED:
                span.fail(str(status))
        await send(message)

    return noting

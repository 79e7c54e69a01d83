"""A sender whose posts are spans, each a part of the trace in its `traceparent`."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from forwarder.observability.tracing.context import TRACEPARENT, TRACESTATE, read_trace, trace_headers
from forwarder.observability.tracing.tracer import OUR_ID, Kind, Tracer, ending
from forwarder.webhooks.port import EndpointResponse, PostResult, Sender

_PORTS: Final = {"http": 80, "https": 443}
_FAILED: Final = 400


class TracedSender:
    """`sender`, with a span for each post."""

    def __init__(self, sender: Sender, tracer: Tracer) -> None:
        self._sender = sender
        self._tracer = tracer

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        parent = read_trace(headers.get(TRACEPARENT), headers.get(TRACESTATE))
        event_id = headers.get("webhook-id", "")
        named = {"forwarder.event_id": event_id} if OUR_ID.fullmatch(event_id) else {}
        span = self._tracer.start("POST", Kind.CLIENT, parent, {**_address(url), **named})
        with ending(span):
            result = await self._sender.post(url, {**headers, **dict(trace_headers(span.trace))}, body)
            if not isinstance(result, EndpointResponse):
                span.fail(result.failure)
                return result
            span.note({"http.response.status_code": result.status})
            if result.status >= _FAILED:
                span.fail(str(result.status))
            return result


def _address(url: str) -> dict[str, str | int]:
    """Span attributes of the host only: the rest of a webhook's URL is often secret."""
    method: dict[str, str | int] = {"http.request.method": "POST"}
    try:
        parsed = urlsplit(url)
        port = parsed.port or _PORTS[parsed.scheme]
    except (KeyError, ValueError):  # `sender` refuses it
        return method
    return {**method, "server.address": parsed.hostname or "", "server.port": port, "url.scheme": parsed.scheme}

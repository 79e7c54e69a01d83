"""Spans by OpenTelemetry's SDK, which reads its own variables. Imported only if tracing is configured. A separate thread exports
spans over HTTP from a bounded queue: if the collector is slow or unreachable they are dropped, and nothing waits."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span as OtelSpan

from forwarder.observability.tracing import ERROR, Attributes, Kind, Span, trace_headers


class OtelTracer:
    """A `Tracer` on an SDK provider, which `close` shuts down."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider, self._tracer = provider, provider.get_tracer("forwarder")

    def start(
        self, name: str, kind: Kind, parent: str | None, attributes: Attributes, *, links: Sequence[str] = ()
    ) -> Span:
        # Never the current context: the parent is the trace that came with the work.
        context, linked = Context(), [api.Link(_remote(each)) for each in links]
        if parent is not None:
            context = api.set_span_in_context(api.NonRecordingSpan(_remote(parent)), context)
        start = self._tracer.start_span
        return _Span(start(name, context, api.SpanKind[kind.name], attributes, linked, set_status_on_exception=False))

    async def close(self, seconds: float) -> bool:
        """Exports what is left, for at most `seconds`; False if that was too short."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(done.set)

        # A daemon thread: neither it nor the exporter's keeps the process alive when the collector hangs.
        threading.Thread(target=shut_down, name="traces", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                await done.wait()
        except TimeoutError:
            return False
        return True


class _Span:
    __slots__ = ("_span", "trace")

    def __init__(self, span: OtelSpan) -> None:
        self._span, context = span, span.get_span_context()
        trace = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        self.trace = f"{trace} {context.trace_state.to_header()}" if context.trace_state else trace

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def note(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def fail(self, error_type: str) -> None:
        self._span.set_attribute(ERROR, error_type)
        self._span.set_status(api.Status(api.StatusCode.ERROR))

    def end(self) -> None:
        self._span.end()


def _remote(trace: str) -> api.SpanContext:
    (_, parent), *states = trace_headers(trace)
    _, trace_id, span_id, flags = (int(part, 16) for part in parent.split("-"))
    state = api.TraceState.from_header([value for _, value in states])
    return api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=api.TraceFlags(flags), trace_state=state)


def open_otel(service: str, version: str) -> OtelTracer:
    """A tracer configured by OpenTelemetry's variables, for `service` unless they name another."""
    resource = Resource.create({SERVICE_VERSION: version})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OtelTracer(provider)

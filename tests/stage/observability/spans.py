"""Spans, recorded in memory by the real SDK."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from forwarder.observability.otel import OtelTracer


class Seen(NamedTuple):
    """A span that ended. `trace`: what is kept of it; `parent`: its parent's id, empty at the beginning of a trace."""

    name: str
    kind: str
    trace: str
    parent: str
    attributes: Mapping[str, Any]
    failed: bool
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spans:
    """A tracer, and the spans of it that ended."""

    tracer: OtelTracer
    exporter: InMemorySpanExporter

    @property
    def seen(self) -> list[Seen]:
        return [_seen(span) for span in self.exporter.get_finished_spans()]


def spans_in_memory() -> Spans:
    """Records what its parent's flag says, and all that has no parent."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(OtelTracer(provider), exporter)


def _seen(span: ReadableSpan) -> Seen:
    context = span.get_span_context()
    assert context is not None
    state = f" {context.trace_state.to_header()}" if context.trace_state else ""
    return Seen(
        span.name,
        span.kind.name,
        f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}{state}",
        "" if span.parent is None else f"{span.parent.span_id:016x}",
        dict(span.attributes or {}),
        not span.status.is_ok and not span.status.is_unset,
        tuple(f"{link.context.span_id:016x}" for link in span.links),
    )

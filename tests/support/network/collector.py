"""A collector of traces: takes what OpenTelemetry exports by OTLP over HTTP, as protobuf, and shows it by its names."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.network.raw_server import Caller, raw_server

_PATIENCE_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Collected:
    """A span. Ids are hexadecimal; `parent` is empty at the beginning of a trace, `links` are spans' ids."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    attributes: Mapping[str, str | int]
    links: Sequence[str]
    failed: bool
    begin: int
    end: int


@dataclass(slots=True)
class Collector:
    """Where it is, and what it took."""

    url: str = ""
    spans: list[Collected] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def serve(self, caller: Caller) -> None:
        """One connection."""
        while True:
            request = await caller.request()
            head, _, body = request.partition(b"\r\n\r\n")
            if b"content-encoding: gzip" in head.lower():
                body = gzip.decompress(body)
            self.paths.add(head.split()[1].decode())
            self.bodies.append(body)
            self.spans += _spans(ExportTraceServiceRequest.FromString(body))
            await caller.say(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
            async with self._changed:
                self._changed.notify_all()

    def of(self, trace: str) -> list[Collected]:
        """The spans of a trace, in the order in which they began."""
        return sorted((each for each in self.spans if each.trace == trace), key=lambda each: each.begin)

    async def has(self, trace: str, reached: Callable[[Sequence[Collected]], bool]) -> Sequence[Collected]:
        """The spans of a trace, once they are as `reached` says."""
        async with asyncio.timeout(_PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: reached(self.of(trace)))
        return self.of(trace)


def _spans(exported: ExportTraceServiceRequest) -> list[Collected]:
    return [
        _collected(span, str({each.key: _plain(each.value) for each in of_one.resource.attributes}["service.name"]))
        for of_one in exported.resource_spans
        for scope in of_one.scope_spans
        for span in scope.spans
    ]


def _collected(span: Span, service: str) -> Collected:
    return Collected(
        service,
        span.name,
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        {each.key: _plain(each.value) for each in span.attributes},
        [link.span_id.hex() for link in span.links],
        span.status.code == Status.STATUS_CODE_ERROR,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )


def _plain(value: AnyValue) -> str | int:
    return value.int_value if value.HasField("int_value") else value.string_value


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """One on a free port of loopback."""
    made = Collector()
    async with raw_server(made.serve) as server:
        made.url = server.url
        yield made

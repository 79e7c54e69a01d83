"""Whether traces are exported: what asks for it, what stands in the way, and that no work waits for a collector."""

import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest
import structlog

from forwarder.assembly.role import open_tracer
from forwarder.observability.otel import open_otel
from forwarder.observability.tracing import Kind
from forwarder.process.loading import load
from forwarder.settings import Environment, Settings, settings_of
from forwarder.settings.reading import NOT_EXPORTED, TraceExport, trace_export_of
from tests.support.cases import for_each
from tests.support.network.collector import collector
from tests.support.network.raw_server import Caller, raw_server

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.fixture
def settings() -> Settings:
    return settings_of(Environment())


@for_each(
    ("variables", "asked_by"),
    [
        ({}, ""),
        ({"OTEL_SERVICE_NAME": "mine", "OTEL_TRACES_SAMPLER": "always_on"}, ""),
        (ENDPOINT, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector/v1/traces"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        ({"OTEL_TRACES_EXPORTER": "OTLP"}, "OTEL_TRACES_EXPORTER"),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "console, otlp"}, "OTEL_TRACES_EXPORTER"),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, ""),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, ""),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ],
)
def test_what_asks_for_traces(variables: Mapping[str, str], asked_by: str) -> None:
    assert trace_export_of(variables) == TraceExport(asked_by)
    assert trace_export_of({**variables, "HOME": "/"}) == TraceExport(asked_by)
    assert asked_by or trace_export_of(variables) is NOT_EXPORTED


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is grpc"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "http/protobuf alone"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is zipkin"),
    ],
)
async def test_what_cannot_be_done_is_told_and_stops_nothing(
    settings: Settings, variables: Mapping[str, str], says: str
) -> None:
    asked = trace_export_of({**ENDPOINT, **variables})
    assert says in asked.refusal
    with structlog.testing.capture_logs() as logged:
        async with open_tracer(replace(settings, trace_export=asked), "ingress") as tracer:
            assert tracer is None
    (line,) = logged
    assert (line["event"], line["log_level"], line["reason"]) == ("tracing.not_started", "warning", asked.refusal)


async def test_without_its_packages_the_log_says_once_what_to_install(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "forwarder.observability.otel", raising=False)
    load.cache_clear()
    asked = replace(settings, trace_export=TraceExport("OTEL_EXPORTER_OTLP_ENDPOINT"))
    with structlog.testing.capture_logs() as logged:
        async with open_tracer(asked, "ingress") as tracer:
            assert tracer is None
    (line,) = logged
    assert line["event"] == "tracing.not_started"
    assert "pip install 'reservation-forwarder[otel]'" in line["reason"]


async def test_what_is_left_is_exported_when_a_process_stops(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collector() as taking:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", taking.url)
        asked = replace(settings, trace_export=TraceExport("OTEL_EXPORTER_OTLP_ENDPOINT"))
        async with open_tracer(asked, "ingress") as tracer:
            assert tracer is not None
            tracer.start("alone", Kind.INTERNAL, None, {}).end()
            assert taking.spans == []
        (span,) = taking.spans
    assert (span.service, span.name) == ("forwarder-ingress", "alone")


async def test_a_collector_that_hangs_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def say_nothing(caller: Caller) -> None:
        await caller.request()
        await caller.gone()

    async with raw_server(say_nothing) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "named-by-the-operator")
        tracer = open_otel("forwarder-ingress", "1")
        tracer.start("alone", Kind.INTERNAL, None, {}).end()
        assert not await tracer.close(0.1)

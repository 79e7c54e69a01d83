"""Whether to export traces: decided by OpenTelemetry's own variables; its SDK reads the rest of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL: Final = "http/protobuf"


@dataclass(frozen=True, slots=True)
class TraceExport:
    """`asked_by`: the variable that asks for export, empty if none does. `refusal`: why it is not exported as asked. A refusal
    stops nothing: operators often set these variables for all processes of a machine."""

    asked_by: str = ""
    refusal: str = ""


NOT_EXPORTED: Final = TraceExport()


def trace_export_of(variables: Mapping[str, str]) -> TraceExport:
    """The export that the environment asks for."""
    given = {name: value.strip() for name, value in variables.items() if name.startswith("OTEL_") and value.strip()}
    exporters = {each.strip() for each in given.get(_EXPORTER, "").lower().split(",")} - {""}
    asked_by = next((name for name in (_EXPORTER, *_ENDPOINTS) if name in given), "")
    if not asked_by or "none" in exporters or given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return NOT_EXPORTED
    if exporters and "otlp" not in exporters:
        return TraceExport(asked_by, f"{_EXPORTER} is {given[_EXPORTER]}, and traces are exported by otlp alone")
    protocol = next((name for name in _PROTOCOLS if name in given), None)
    if protocol is not None and given[protocol] != _PROTOCOL:
        return TraceExport(
            asked_by,
            f"{protocol} is {given[protocol]}, and traces are exported by {_PROTOCOL} alone: collectors take that at port 4318",
        )
    return TraceExport(asked_by)

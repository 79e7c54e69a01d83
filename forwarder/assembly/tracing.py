"""Opens the span recorder of a stage's process, if OpenTelemetry's variables ask for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from forwarder import __version__
from forwarder.observability.tracing.tracer import Tracer
from forwarder.process.loading import load
from forwarder.settings import Settings

_OPEN: Final = "forwarder.observability.tracing.otel:open_otel"
_FLUSH_SECONDS: Final = 3.0
"""How long a stopping process waits for the collector to accept the remaining spans."""

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_tracer(settings: Settings, role: str) -> AsyncIterator[Tracer | None]:
    """Records the spans of `role`; None if export is not configured, or not possible, which it logs."""
    asked = settings.trace_export
    if not asked.asked_by:
        yield None
        return
    if asked.refusal:
        _log.warning("tracing.not_started", asked_by=asked.asked_by, reason=asked.refusal)
        yield None
        return
    try:
        tracer = load(_OPEN)(f"forwarder-{role}", __version__)
    except ImportError:
        reason = "packages are not installed: pip install 'reservation-forwarder[otel]'"
        _log.warning("tracing.not_started", asked_by=asked.asked_by, reason=reason)
        yield None
        return
    _log.info("tracing.started", asked_by=asked.asked_by)
    try:
        yield tracer
    finally:
        if not await tracer.close(_FLUSH_SECONDS):
            _log.warning("tracing.not_flushed", seconds=_FLUSH_SECONDS)

"""Tracing: passes on callers' traces, and records spans if configured. Only one module uses OpenTelemetry."""

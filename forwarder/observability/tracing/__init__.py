"""Traces: a caller's is read, kept and sent on; spans are recorded where that is wanted. One module touches OpenTelemetry."""

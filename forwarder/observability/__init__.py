"""Logging and metrics: how they leave the process, and the catalogue of metrics. Knows nothing of reservations."""

"""Logging and metrics: their output, and the catalogue of metrics. Independent of reservations."""

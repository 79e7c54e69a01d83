"""Decides, records and publishes the outcome of a push. Uses store and log, never a PMS."""

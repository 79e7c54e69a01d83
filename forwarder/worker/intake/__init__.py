"""Ingest: from the requests topic into rows, and from due rows into account queues. Touches log and store, never a PMS."""

"""The running processes, each of which reports itself every few seconds. For operators; no other part depends on it."""

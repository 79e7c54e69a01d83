"""Repairs: settle, cancel, replay, retry, one or by the hundred; how a completed submission is recorded."""

"""Repairs: settle, cancel, replay, retry, one or many; and the records of a completed submission."""

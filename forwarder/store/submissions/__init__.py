"""Submissions in the store: ingested, leased, recorded with their events, repaired. Stages import `port` only."""

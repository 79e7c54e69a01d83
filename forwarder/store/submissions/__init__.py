"""Submissions as rows: taken in, leased, pushed, ended, repaired. SQL for the worker's side of the store."""

"""Every problem that the service answers or records: its code, what it means, and what whoever gets it can do. Pure.

A code means the same for ever. docs/reference/problems.md and `/problems/<code>` are written from here; `chapters` has them all.
"""

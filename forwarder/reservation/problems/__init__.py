"""Problems (RFC 9457): what one is, and every one that the service answers or records, with what it means and what to do. Pure.

A code means the same for ever. docs/reference/problems.md and `/problems/<code>` are generated from here; `catalogue` has all.
"""

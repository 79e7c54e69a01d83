"""Problems (RFC 9457): the type, and all problems that the service responds with or records, with meaning and remedy. Pure.

A code never changes its meaning. docs/reference/problems.md and `/problems/<code>` are generated from here; `catalogue` has all.
"""

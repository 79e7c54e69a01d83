"""docs/operations/assumptions.md: what the guarantees assume of Kafka and PostgreSQL."""

from typing import Final

from forwarder.oversight.assumptions import ASSUMPTIONS
from tools.reference.source import HEAD, table

_ABOUT: Final = """# Assumptions about Kafka and PostgreSQL

The [guarantees](../explanation/guarantees.md) assume these settings of the servers. `forwarder doctor` checks them, and every
worker logs those that do not hold as `assumption.broken` when it starts. *failed*: a guarantee is broken. *warning*: it is weaker.
*info*: a choice; know what it means.

Isolation level, synchronous commit and time zone are not assumed: the forwarder sets them on each connection.

"""


def assumptions_page() -> str:
    """The page."""
    rows = [
        [f"`{each.name}`", each.subject, each.severity, each.checked, each.why, each.remedy.replace("{topic}", "TOPIC")]
        for each in ASSUMPTIONS
    ]
    return HEAD + _ABOUT + table(["assumption", "of", "severity", "checked by", "why", "what to do"], rows)

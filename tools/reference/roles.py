"""docs/reference/database-roles.md: what each stage's PostgreSQL role may do with each table."""

import re
from collections.abc import Sequence
from typing import Final

from forwarder.store.roles import ROLES
from tools.reference.source import HEAD, table

_ABOUT: Final = """# Privileges of the database roles

The privileges that `forwarder migrate --roles` grants: [Database roles](../operations/database-roles.md). Empty: nothing.
*of columns*: only those that `forwarder/store/roles.py` names. Only worker and operator read a sealed card or credential, only
notifier and operator the secret of a webhook.

"""


def roles_page() -> str:
    """The page."""
    tables = sorted({each for granted in ROLES.values() for each in granted})
    rows = [[f"`{name}`", *(_shown(ROLES[stage].get(name, ())) for stage in ROLES)] for name in tables]
    return HEAD + _ABOUT + table(["table", *ROLES], rows)


def _shown(privileges: Sequence[str]) -> str:
    return ", ".join(re.sub(r" \(.*\)", " *of columns*", each) for each in privileges).lower()

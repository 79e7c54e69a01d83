"""The entries of the audit trail, as it takes and returns them."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class AuditResult(StrEnum):
    DONE = "done"
    REQUESTED = "requested"
    """About to be sent to the log, which cannot take part in a transaction of the store."""
    REFUSED = "refused"
    """Nothing was changed: the operation is not possible."""
    FAILED = "failed"
    """An outage or an interruption: part of it may have been done."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An operation. `actor_kind`: `operator` (an account of the operating system, on the host `origin`), `key` (an API key, from
    the address `origin`) or `system`. `details`: a JSON text, never with a secret or a guest's data. `number`: 0 until stored."""

    number: int = field(default=0, kw_only=True)
    at: datetime
    actor_kind: str
    actor: str
    origin: str
    action: str
    workspace_id: str | None
    target: str | None
    result: str
    reason: str | None = None
    details: str = "{}"


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects entries, as far as given. `action`: one action (`key.revoke`), or all of a noun (`key`)."""

    since: datetime | None = None
    actor: str | None = None
    action: str | None = None
    workspace_id: str | None = None

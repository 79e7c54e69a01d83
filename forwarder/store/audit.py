"""The entries of the audit trail, as it takes and returns them; `audit_trail` stores them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic_core import to_json


class AuditResult(StrEnum):
    """The result of an operation."""

    DONE = "done"
    REQUESTED = "requested"
    """About to be sent to the log, which cannot take part in a transaction of the store."""
    REFUSED = "refused"
    """Nothing was changed: the operation is not possible."""
    FAILED = "failed"
    """An outage or an interruption: part of it may have been done."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An operation. `actor_kind`: `operator` (an account of the operating system, on the host `origin`), `key` (an API key, from
    the address `origin`) or `system`. `details`: JSON values, never a secret or a guest's data."""

    at: datetime
    actor_kind: str
    actor: str
    origin: str
    action: str
    result: AuditResult
    workspace_id: str | None = None
    target: str | None = None
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A stored entry. `details` is a JSON text."""

    number: int
    at: datetime
    actor_kind: str
    actor: str
    origin: str
    action: str
    workspace_id: str | None
    target: str | None
    result: str
    reason: str | None
    details: str


def numbered(entry: NewEntry, number: int) -> AuditEntry:
    """`entry` as it is stored under `number`."""
    return AuditEntry(
        number=number,
        at=entry.at.replace(microsecond=entry.at.microsecond // 1000 * 1000),  # as databases keep it
        actor_kind=entry.actor_kind,
        actor=entry.actor,
        origin=entry.origin,
        action=entry.action,
        workspace_id=entry.workspace_id,
        target=entry.target,
        result=entry.result.value,
        reason=entry.reason,
        details=to_json(entry.details).decode(),
    )


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects entries, as far as given. `action`: one action (`key.revoke`), or all of a noun (`key`)."""

    since: datetime | None = None
    actor: str | None = None
    action: str | None = None
    workspace_id: str | None = None

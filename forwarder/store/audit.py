"""The audit trail's entries and its hash chain. Pure; `audit_trail` keeps it in SQL.

Anyone with write access to the database can also compute hashes, and so rewrite the trail from some entry to its end. Comparing it
with a head that was kept elsewhere reveals that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, Protocol

from pydantic_core import to_json

from forwarder.process.clock import iso


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
    """A stored entry. `details` is a JSON text. `hash` covers all of it, `previous_hash` included."""

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
    previous_hash: str
    hash: str


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The end of the trail: its last entry's number, 0 before the first, and hash."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects entries, as far as given. `action`: one action (`key.revoke`), or all of a noun (`key`)."""

    since: datetime | None = None
    actor: str | None = None
    action: str | None = None
    workspace_id: str | None = None


class AuditTrail(Protocol):
    """Entries are numbered from 1, without a gap. They are appended and read, never changed or deleted."""

    async def append(self, entry: NewEntry) -> None:
        """Append `entry` in a transaction of its own."""
        ...

    async def append_within(self, connection: Any, entry: NewEntry) -> None:
        """Appends `entry` in the transaction of `connection`, which should commit at once: other appends wait for it."""
        ...

    async def entries(self, wanted: AuditFilter, *, before: int | None, limit: int) -> Sequence[AuditEntry]:
        """Entries that match `wanted`, newest first, with numbers below `before`."""
        ...

    async def after(self, number: int, *, limit: int) -> Sequence[AuditEntry]:
        """All entries after that number, oldest first."""
        ...

    async def head(self) -> AuditHead:
        """The end of the trail, as recorded with its last entry."""
        ...


GENESIS: Final = "0" * 64
"""The previous hash of the first entry."""


@dataclass(frozen=True, slots=True)
class Tampering:
    """The first fault. `entry`: the number where it shows; `fault`: `changed`, `removed`, `inserted` or `rewritten`."""

    entry: int
    fault: str
    detail: str


def hash_of(entry: AuditEntry) -> str:
    """SHA-256, in hexadecimal, of everything in `entry` but its hash."""
    covered = [
        entry.number,
        iso(entry.at),
        entry.actor_kind,
        entry.actor,
        entry.origin,
        entry.action,
        entry.workspace_id,
        entry.target,
        entry.result,
        entry.reason,
        entry.details,
        entry.previous_hash,
    ]
    return sha256(to_json(covered)).hexdigest()


def chained(entry: NewEntry, head: AuditHead) -> AuditEntry:
    """`entry` as it follows `head`."""
    kept = AuditEntry(
        number=head.number + 1,
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
        previous_hash=head.hash,
        hash="",
    )
    return replace(kept, hash=hash_of(kept))


class ChainCheck:
    """Verifies a trail from its beginning, in batches. `noted`: a head that was kept elsewhere, which the trail must contain."""

    def __init__(self, noted: AuditHead | None = None) -> None:
        self._noted = noted
        self.last = AuditHead(0, GENESIS)
        """The last verified entry."""

    def check(self, entries: Sequence[AuditEntry]) -> Tampering | None:
        """The first fault in `entries`, which follow the ones checked before."""
        for entry in entries:
            fault = self._fault(entry)
            if fault is not None:
                return fault
            self.last = AuditHead(entry.number, entry.hash)
            if self._noted is not None and self._noted.number == entry.number and self._noted.hash != entry.hash:
                return Tampering(
                    entry.number, "rewritten", "it has another hash than the head that was noted elsewhere"
                )
        return None

    def check_end(self, head: AuditHead) -> Tampering | None:
        """The fault at the end of the trail, whose own record of the end is `head`."""
        number = self.last.number
        if number < head.number:
            return _missing(number + 1, head.number, "at the end")
        if number > head.number:
            return Tampering(head.number + 1, "inserted", f"the trail was last appended to with entry {head.number}")
        if self.last.hash != head.hash:
            return Tampering(number, "rewritten", "it has another hash than when it was appended")
        if self._noted is not None and self._noted.number > number:
            return _missing(number + 1, self._noted.number, "at the end: a head noted elsewhere names the last of them")
        return None

    def _fault(self, entry: AuditEntry) -> Tampering | None:
        expected = self.last.number + 1
        if entry.number > expected:
            return _missing(expected, entry.number - 1, "from the middle")
        if entry.number < expected:
            return Tampering(entry.number, "inserted", "no entry has that number")
        if entry.hash != hash_of(entry):
            return Tampering(entry.number, "changed", "its content does not have its hash")
        if entry.previous_hash != self.last.hash:
            detail = f"it does not follow entry {self.last.number}: one of the two was replaced or inserted"
            return Tampering(entry.number, "rewritten", detail)
        return None


def _missing(first: int, last: int, where: str) -> Tampering:
    which = f"entry {first} is" if first == last else f"entries {first} to {last} are"
    return Tampering(first, "removed", f"{which} missing, {where}")

"""An audit trail in memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock
from forwarder.store.audit import AuditEntry, AuditFilter
from forwarder.store.deployment import AuditTrail
from forwarder.store.submissions.port import StoreUnavailable


class MemoryTrail(AuditTrail):
    """What belongs to a transaction is appended at once. `away`: nothing can be appended."""

    def __init__(self) -> None:
        self.kept: list[AuditEntry] = []
        self.away = False

    async def append(self, entry: AuditEntry) -> None:
        if self.away:
            raise StoreUnavailable("the audit trail is away")
        self.kept.append(replace(entry, number=len(self.kept) + 1))

    async def append_within(self, connection: Any, entry: AuditEntry) -> None:
        await self.append(entry)

    async def entries(self, wanted: AuditFilter, *, before: int | None, limit: int) -> Sequence[AuditEntry]:
        found = [each for each in reversed(self.kept) if before is None or each.number < before]
        return [each for each in found if wanted.action in {None, each.action}][:limit]

    async def last(self) -> int:
        return len(self.kept)


def memory_audit(clock: Clock) -> Audit:
    """An audit that nobody reads."""
    return Audit(MemoryTrail(), clock)

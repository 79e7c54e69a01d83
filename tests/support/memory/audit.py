"""An audit trail in memory."""

from collections.abc import Sequence
from typing import Any

from forwarder.operations.audit import Audit
from forwarder.process.clock import Clock
from forwarder.store.audit import GENESIS, AuditEntry, AuditFilter, AuditHead, NewEntry, chained
from forwarder.store.submissions.port import StoreUnavailable


class MemoryTrail:
    """`AuditTrail`. What belongs to a transaction is appended at once. `away`: nothing can be appended."""

    def __init__(self) -> None:
        self.kept: list[AuditEntry] = []
        self.away = False

    async def append(self, entry: NewEntry) -> None:
        if self.away:
            raise StoreUnavailable("the audit trail is away")
        self.kept.append(chained(entry, await self.head()))

    async def append_within(self, connection: Any, entry: NewEntry) -> None:
        await self.append(entry)

    async def entries(self, wanted: AuditFilter, *, before: int | None, limit: int) -> Sequence[AuditEntry]:
        found = [each for each in reversed(self.kept) if before is None or each.number < before]
        return [each for each in found if wanted.action in {None, each.action}][:limit]

    async def after(self, number: int, *, limit: int) -> Sequence[AuditEntry]:
        return self.kept[number : number + limit]

    async def head(self) -> AuditHead:
        return AuditHead(len(self.kept), self.kept[-1].hash) if self.kept else AuditHead(0, GENESIS)


def memory_audit(clock: Clock) -> Audit:
    """An audit that nobody reads."""
    return Audit(MemoryTrail(), clock)

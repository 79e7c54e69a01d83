"""The store's reading side in memory, at the store's own seam."""

from dataclasses import dataclass, field

from forwarder.store.port import StoreUnavailable
from forwarder.store.reading import Page, Stored


@dataclass
class MemoryReader:
    """Implements `Reader` over what `put` was given."""

    rows: list[tuple[str, Stored]] = field(default_factory=list)
    away: bool = False
    reads: int = 0

    def put(self, account_id: str, stored: Stored) -> None:
        """Keep `stored`, in the place of an earlier one of its id."""
        self.rows = sorted(
            [*(row for row in self.rows if row[1].id != stored.id), (account_id, stored)], key=lambda row: row[1].id
        )

    async def submission(self, account_id: str, request_id: str) -> Stored | None:
        return next((stored for stored in self._of(account_id) if stored.request_id == request_id), None)

    async def reservation(self, account_id: str, reservation_id: int) -> Stored | None:
        return next((stored for stored in self._of(account_id) if stored.id == reservation_id), None)

    async def page(self, account_id: str, *, cursor: int, limit: int) -> Page:
        rows = self._of(account_id)
        before = [stored.id for stored in rows if stored.id < cursor]
        found = [stored for stored in rows if stored.id >= cursor]
        previous = None
        if before:
            previous = before[-limit] if len(before) > limit else 1
        return Page(
            [stored.record for stored in found[:limit]],
            cursor,
            previous,
            found[limit].id if len(found) > limit else None,
        )

    async def ready(self) -> bool:
        return not self.away

    def _of(self, account_id: str) -> list[Stored]:
        self.reads += 1
        if self.away:
            raise StoreUnavailable("the store is away")
        return [stored for owner, stored in self.rows if owner == account_id]

"""The store's reading side in memory, at the store's own seam."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime

from pydantic_core import from_json

from forwarder.store.lists.port import (
    DEFAULT_FILTERS,
    FIRST,
    Filters,
    Order,
    Page,
    SimilarSubmission,
    StoredSubmission,
    fitting,
    neighbours,
)
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.port import StoreUnavailable


@dataclass
class MemoryReader(Reader):
    """Reads what `put` was given."""

    rows: list[tuple[str, StoredSubmission]] = field(default_factory=list)
    duplicates: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By the request id of each: that of the one that it repeats, and its fingerprint."""
    similar_ones: list[SimilarSubmission] = field(default_factory=list)
    """For every stay."""
    away: bool = False
    reads: int = 0

    def put(self, account_id: str, stored: StoredSubmission) -> None:
        """Keep `stored`, in the place of an earlier one of its id."""
        self.rows = sorted(
            [*(row for row in self.rows if row[1].id != stored.id), (account_id, stored)], key=lambda row: row[1].id
        )

    async def submission(self, account_id: str, request_id: str) -> StoredSubmission | None:
        return (await self.submissions(account_id, [request_id])).get(request_id)

    async def submissions(self, account_id: str, request_ids: Collection[str]) -> Mapping[str, StoredSubmission]:
        known = {stored.request_id: stored for stored in self._of(account_id)}
        for request_id, (original, fingerprint) in self.duplicates.items():
            if original in known:
                known[request_id] = replace(known[original], fingerprint=fingerprint)
        return {request_id: known[request_id] for request_id in request_ids if request_id in known}

    async def similar(self, account_id: str, stay_key: str) -> Sequence[SimilarSubmission]:
        assert len(stay_key) == 20
        self._of(account_id)
        return self.similar_ones

    async def reservation(self, account_id: str, reservation_id: int) -> StoredSubmission | None:
        return next((stored for stored in self._of(account_id) if stored.id == reservation_id), None)

    async def page(
        self, account_id: str, *, cursor: int, limit: int, filters: Filters = DEFAULT_FILTERS, order: Order = "asc"
    ) -> Page:
        rows = [stored for stored in self._of(account_id) if _matches(stored, filters)]
        above = [stored for stored in rows if stored.id >= cursor]
        below = [stored for stored in reversed(rows) if stored.id < cursor]
        if order == "desc" and cursor == FIRST:
            above, below = [], rows[::-1]
        onward, before = (above, below) if order == "asc" else (below, above)
        earlier, later = ([stored.id for stored in part[: limit + 1]] for part in (before, onward))
        shown = fitting(len(stored.record.encode()) for stored in onward[:limit])
        others = neighbours(earlier, later, limit, shown=shown, descending=order == "desc")
        return Page([stored.record for stored in onward[:shown]], cursor, others.previous, others.next)

    async def ready(self) -> bool:
        return not self.away

    def _of(self, account_id: str) -> list[StoredSubmission]:
        self.reads += 1
        if self.away:
            raise StoreUnavailable("the store is away")
        return [stored for owner, stored in self.rows if owner == account_id]


def _matches(stored: StoredSubmission, filters: Filters) -> bool:
    record = from_json(stored.record)
    spans = ((record["arrivalDate"], filters.arrival), (record["departureDate"], filters.departure))
    return (
        stored.status in filters.statuses
        and filters.property_id in {None, stored.property_id}
        and all((span.first or date.min) <= date.fromisoformat(day) <= (span.last or date.max) for day, span in spans)
        and (filters.updated_since is None or datetime.fromisoformat(stored.updated_at) >= filters.updated_since)
    )

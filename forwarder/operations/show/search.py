"""Searching submissions, in every workspace, for operators."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import RequestIds
from forwarder.store.lists.port import SubmissionFilter, SubmissionSummary

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview


@dataclass(frozen=True, slots=True)
class SubmissionQuery:
    """Search criteria, combined with AND.

    `reason`: of the last try, or the code of the problem. `accepted_before` and `accepted_since`: moments.
    `guest`: words of the guest's name or e-mail address, in any case, or at least six digits of a phone number. `transaction_id`:
    the caller's `transactionId`.
    """

    statuses: frozenset[Status] = frozenset(Status)
    account_id: str | None = None
    workspace_id: str | None = None
    property_id: str | None = None
    reason: str | None = None
    accepted_before: datetime | None = None
    accepted_since: datetime | None = None
    transaction_id: str | None = None
    guest: str | None = None
    pms_reservation_id: str | None = None


class SubmissionSearch:
    """Searches `overview`. `request_ids` fetches the keys for hashing transaction ids."""

    def __init__(self, overview: "Overview", request_ids: Callable[[], Awaitable[RequestIds]]) -> None:
        self._overview = overview
        self._request_ids = request_ids

    async def pages(
        self, query: SubmissionQuery, *, page: int, before: int | None = None
    ) -> AsyncGenerator[tuple[Sequence[SubmissionSummary], int | None], None]:
        """Pages of submissions that match `query` and have an id below `before`, newest first, at most `page` rows each. A page
        may be empty when one scan step finds no match. Each comes with the id to continue below, None at the end. Raises
        `StoreUnavailable`."""
        wanted, below = await self._filter(query), before
        while True:
            found = await self._overview.search(wanted, limit=page, before=below)
            yield found.rows, found.next
            if found.next is None:
                return
            below = found.next

    async def newest(self, query: SubmissionQuery, limit: int) -> Sequence[SubmissionSummary]:
        """The newest `limit` that match. Raises `StoreUnavailable`."""
        found: list[SubmissionSummary] = []
        async for rows, _ in self.pages(query, page=limit):
            found += rows
            if len(found) >= limit:
                break
        return found[:limit]

    async def _filter(self, query: SubmissionQuery) -> SubmissionFilter:
        known = [] if query.account_id and not query.workspace_id else await self._overview.accounts(query.workspace_id)
        if query.account_id is not None:
            known = [query.account_id] if query.workspace_id is None or query.account_id in known else []
        keys = None
        if query.transaction_id is not None:
            ids = await self._request_ids()
            keys = {each: ids.transaction_key(each, query.transaction_id.strip()) for each in known}
        return SubmissionFilter(
            known,
            query.statuses,
            property_id=query.property_id,
            reason=query.reason,
            accepted_before=query.accepted_before,
            accepted_since=query.accepted_since,
            guest=query.guest,
            pms_reservation_id=query.pms_reservation_id,
            transaction_keys=keys,
        )

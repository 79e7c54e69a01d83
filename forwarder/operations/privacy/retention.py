"""Retention. Guests' data: shows and sets each workspace's periods, audited; the workers' sweeper applies them. Finished
submissions: counts them, then deletes them in small batches while the workers run, audited."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from forwarder.operations.audit import Audit
from forwarder.process.clock import Clock
from forwarder.store.audit import AuditResult
from forwarder.store.retention import Purged
from forwarder.tenancy.port import RetentionPolicy

if TYPE_CHECKING:
    from forwarder.tenancy.sql.admin import RetentionPolicies

MIN_DAYS: Final = 30
"""Submissions that finished less than this many days ago are kept: callers, webhooks and consumers still query them."""
_AT_ONCE: Final = 500


class Retention:
    """Raises `NotKnown`, `TenancyUnavailable`."""

    def __init__(self, policies: "RetentionPolicies", audit: Audit) -> None:
        self._policies = policies
        self._audit = audit

    async def policies(self, workspace_id: str | None = None) -> Sequence[RetentionPolicy]:
        """The policies of one workspace, or of all."""
        return await self._policies.policies(workspace_id)

    async def set(self, workspace_id: str, changes: Mapping[str, Any]) -> RetentionPolicy:
        """Sets the fields of `RetentionPolicy` in `changes`. Returns the new policy."""
        async with self._audit.operation("retention.set", workspace=workspace_id, **changes):
            (policy,) = await self._policies.policies(workspace_id)
            changed = replace(policy, **changes)
            await self._policies.set_policy(changed)
        return changed


class TooRecent(ValueError):
    """Submissions of that day are still needed. The message gives the latest day that is allowed."""


class PurgeStore(Protocol):
    """See `Purger`."""

    async def count(self, before: date, workspace_id: str | None) -> int: ...

    async def mark(self, before: date, *, now: datetime) -> None: ...

    async def delete_some(self, before: date, workspace_id: str | None, *, after: int, limit: int) -> Purged: ...


class Purge:
    """Deletes submissions that finished before a day, in UTC: confirmed ones finish when the guest leaves, others with their
    outcome. Never deletes pending, in-doubt or being-cancelled ones, however old. Raises `StoreUnavailable`."""

    def __init__(self, store: PurgeStore, audit: Audit, clock: Clock) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock

    async def count(self, before: date, workspace_id: str | None) -> int:
        """How many would be deleted now. Raises `TooRecent`."""
        latest = self._clock.now().date() - timedelta(days=MIN_DAYS)
        if before > latest:
            raise TooRecent(
                f"{before} is too recent: submissions are kept for {MIN_DAYS} days. {latest} is the latest."
            )
        return await self._store.count(before, workspace_id)

    async def run(self, before: date, workspace_id: str | None, on_more: Callable[[int], None]) -> int:
        """Deletes them and returns how many. Calls `on_more` with the size of each batch. Can be interrupted and run again."""
        deleted, after = 0, 0
        async with self._audit.request(
            "submissions.purge", workspace=workspace_id, finished_before=before.isoformat()
        ) as operation:
            await self._store.mark(before, now=self._clock.now())
            while True:
                purged = await self._store.delete_some(before, workspace_id, after=after, limit=_AT_ONCE)
                if purged.last is None:
                    break
                after, deleted = purged.last, deleted + purged.deleted
                on_more(purged.deleted)
            operation.details["deleted"] = deleted
            await self._audit.note(operation, AuditResult.DONE)
        return deleted

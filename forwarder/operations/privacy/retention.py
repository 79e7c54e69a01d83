"""How long what is kept is kept. Guests' data: for each workspace, shown, and set, which is audited; the workers' sweeper carries
it out. Submissions that were finished long ago: counted, then deleted a few at a time beside the workers, and audited."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any, Final, Protocol

from forwarder.operations.audit import Audit
from forwarder.process.clock import Clock
from forwarder.store.audit.port import AuditResult
from forwarder.store.retention.purge import Purged
from forwarder.tenancy.retention import RetentionPolicies, RetentionPolicy

MIN_DAYS: Final = 30
"""What was finished less than so many days ago is kept: callers, webhooks and consumers still ask for it."""
_AT_ONCE: Final = 500


class Retention:
    """Raises `NotKnown`, `TenancyUnavailable`."""

    def __init__(self, policies: RetentionPolicies, audit: Audit) -> None:
        self._policies = policies
        self._audit = audit

    async def policies(self, workspace_id: str | None = None) -> Sequence[RetentionPolicy]:
        """Of one workspace, or all."""
        return await self._policies.policies(workspace_id)

    async def set(self, workspace_id: str, changes: Mapping[str, Any]) -> RetentionPolicy:
        """Change what `changes` names: fields of `RetentionPolicy`. The policy as it is then."""
        async with self._audit.operation("retention.set", workspace=workspace_id, **changes):
            (policy,) = await self._policies.policies(workspace_id)
            changed = replace(policy, **changes)
            await self._policies.set_policy(changed)
        return changed


class TooRecent(ValueError):
    """Of the day that was given, submissions are still needed. Says which day would do."""


class PurgeStore(Protocol):
    """See `SqlPurge`."""

    async def count(self, before: date, workspace_id: str | None) -> int: ...

    async def mark(self, before: date, *, now: datetime) -> None: ...

    async def delete_some(self, before: date, workspace_id: str | None, *, after: int, limit: int) -> Purged: ...


class Purge:
    """Raises `StoreUnavailable`. `before`: submissions that were finished before that day, in UTC: confirmed ones when the guest
    left, others with their outcome. What is pending, in doubt or being cancelled is never deleted, however old."""

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
        """Delete them; how many. `on_more` is told how many more were. Broken off, it has deleted some, and can be run again."""
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

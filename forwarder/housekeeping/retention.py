"""The retention sweeper: removes guests' data when their workspace's retention period ends, in small batches, in the background.

It works at most a tenth of the time, even on a small machine: after each batch it rests nine times as long as the batch took. It
skips rows that others have locked. The next sweep finishes the work of a killed process.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import structlog

from forwarder.process.clock import Clock
from forwarder.process.containment import FAULTS, Where, contained
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import shadow_id
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import RetentionPolicy, TenancyUnavailable

if TYPE_CHECKING:
    from forwarder.tenancy.sql.admin import RetentionPolicies

if TYPE_CHECKING:
    from forwarder.store.retention import GuestStore

_log = structlog.get_logger(__name__)

BATCH = 50
_PAUSE_SECONDS = 0.05
_REST = 9
_SWEEP_SECONDS = 900.0
_REMOVED_FOR = timedelta(hours=1)
"""How long deliveries of a removed endpoint are kept; no API shows them."""


class RetentionSweeper:
    """Sweeps what `policies` say out of `store`."""

    def __init__(self, store: "GuestStore", policies: "RetentionPolicies", clock: Clock) -> None:
        self._store = store
        self._policies = policies
        self._clock = clock

    async def keep_sweeping(self) -> None:
        """One sweep, and the wait for the next. Raises `StoreUnavailable`, `TenancyUnavailable`."""
        await self.sweep()
        await self._clock.sleep(_SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Removes all data that is due. Raises `StoreUnavailable`, `TenancyUnavailable`."""
        policies = await self._policies.policies()
        for policy in policies:
            try:
                await self._sweep_submissions(policy)
            except (StoreUnavailable, TenancyUnavailable):
                raise
            except FAULTS as error:  # continue with the other workspaces
                contained(Where.RETENTION, error, workspace_id=policy.workspace_id)
        await self._sweep_parked({policy.workspace_id: policy.reservation_days for policy in policies})
        await self._sweep_deliveries({policy.workspace_id: policy.delivery_days for policy in policies})

    async def _sweep_submissions(self, policy: RetentionPolicy) -> None:
        days = dict.fromkeys((Status.CONFIRMED, Status.REJECTED, Status.CANCELLED), policy.reservation_days)
        for status, kept in (days | {Status.FAILED: policy.dead_letter_days}).items():
            if kept is None:
                continue
            now = self._clock.now()
            until = now.date() - timedelta(days=kept)
            anonymize = partial(
                self._store.anonymize_finished, policy.workspace_id, status, until=until, now=now, limit=BATCH
            )
            count = await self._in_batches(anonymize)
            if count:
                _log.info("guests.removed", workspace_id=policy.workspace_id, status=status.value, count=count)

    async def _sweep_parked(self, days: dict[str, int | None]) -> None:
        """The reasons of cancellations whose submissions never came: a caller may have named the guest in one."""
        accounts = await self._policies.account_workspaces()
        for workspace_id, kept in days.items():
            owned = [account_id for account_id, owner in accounts.items() if owner == workspace_id]
            if kept is None or not owned:
                continue
            ids = [*owned, *map(shadow_id, owned)]
            before = self._clock.now() - timedelta(days=kept)
            count = await self._in_batches(partial(self._store.forget_parked_reasons, ids, before=before, limit=BATCH))
            if count:
                _log.info("guests.removed", workspace_id=workspace_id, status="PARKED", count=count)

    async def _sweep_deliveries(self, days: dict[str, int | None]) -> None:
        endpoints = await self._store.endpoints_with_deliveries()
        owners = await self._policies.endpoint_workspaces()
        for endpoint_id in endpoints:
            owner = owners.get(endpoint_id)
            kept = days.get(owner) if owner is not None else None
            if owner is not None and kept is None:
                continue
            ended_before = self._clock.now() - (_REMOVED_FOR if kept is None else timedelta(days=kept))

            delete = partial(self._store.delete_deliveries, endpoint_id, ended_before=ended_before, limit=BATCH)
            count = await self._in_batches(delete)
            if count:
                _log.info("deliveries.removed", endpoint_id=endpoint_id, workspace_id=owner, count=count)

    async def _in_batches(self, step: Callable[[], Awaitable[int]]) -> int:
        total = 0
        while True:
            began = self._clock.monotonic()
            count = await step()
            total += count
            if count < BATCH:
                return total
            await self._clock.sleep(max((self._clock.monotonic() - began) * _REST, _PAUSE_SECONDS))

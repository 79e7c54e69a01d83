"""Housekeeping: metrics of the deployment's backlog, and removal of guests' data when their workspace's retention period ends.

Nothing of a deployment waits for it, and any number of processes may run. Each reports the backlog of the whole deployment: where
several run, queries take the maximum over them, not the sum. Retention works at most a tenth of the time, even on a small machine.
It skips rows that others have locked. The next sweep finishes the work of a killed process."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Final

import structlog

from forwarder.observability import metrics
from forwarder.observability.metrics import SnapshotGauge, Values
from forwarder.oversight.audit import OUTAGES
from forwarder.oversight.backlog import AccountBacklog, AccountState, Backlog, Group, read_backlog, read_lag
from forwarder.process.clock import Clock
from forwarder.process.loops import FAULTS, Where, cancel_all, contained, forever
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import shadow_id
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import MAX_DELIVERY_DAYS, RetentionPolicy, TenancyUnavailable
from forwarder.topics.port import Log

if TYPE_CHECKING:
    from forwarder.store.deployment import BacklogReader
    from forwarder.store.retention import GuestStore
    from forwarder.tenancy.sql.admin import TenancyAdmin

_log = structlog.get_logger(__name__)


async def keep_house(backlog: "BacklogMetrics", sweeper: "RetentionSweeper", clock: Clock, stop: asyncio.Event) -> None:
    """Reports the backlog and removes data whose time is over, until `stop`; through outages and faults."""
    steps = {Where.STANDING: backlog.read_backlog, Where.STANDING_LAG: backlog.read_lag}
    steps |= {Where.RETENTION: sweeper.keep_sweeping}
    run = partial(forever, clock=clock, outages=OUTAGES)
    loops = [asyncio.create_task(run(step, name=name), name=name) for name, step in steps.items()]
    try:
        await stop.wait()
    finally:
        await cancel_all(loops)
        backlog.clear()


LOOK_SECONDS: Final = 10.0


@dataclass(eq=False)
class BacklogMetrics:
    """The backlog metrics of one process: of the store, and of `groups` by their names in metrics. Of accounts and endpoints,
    `max_accounts` have metrics of their own. `read_backlog` and `read_lag` are steps of loops."""

    store: "BacklogReader"
    accounts: "TenancyAdmin"
    log: Log
    clock: Clock
    groups: Mapping[str, Group]
    max_accounts: int
    _next_work: float = -math.inf
    _shown: dict[str, tuple[float, datetime, Collection[SnapshotGauge]]] = field(default_factory=dict)

    async def read_backlog(self) -> None:
        """Reports the backlog in the store; then waits. Raises `StoreUnavailable`, `TenancyUnavailable`."""
        self.clear(older_than=120.0)
        started = self.clock.monotonic()
        if started >= self._next_work:
            work = await read_backlog(self.store, self.accounts, self.clock)
            self._show("work", work.at, backlog_numbers(work, self.max_accounts))
            took = self.clock.monotonic() - started
            # At most a twentieth of the time is spent on it, but no pause is longer than 90 s.
            self._next_work = started + min(20 * took, 90.0)
        await self.clock.sleep(LOOK_SECONDS)

    async def read_lag(self) -> None:
        """Reports the groups' lag; then waits. Raises `LogUnavailable`."""
        self.clear(older_than=120.0)
        lags = await read_lag(self.log, list(self.groups.values()), self.clock)
        named = {(name,): lag for name, lag in zip(self.groups, lags, strict=True)}
        kept = [(name, lag.kept) for name, lag in named.items() if lag.kept is not None]
        numbers: dict[SnapshotGauge, Values] = {
            metrics.LAG_MESSAGES: {name: lag.messages for name, lag in named.items()},
            metrics.LAG_SECONDS: {name: lag.seconds for name, lag in named.items()},
            metrics.RETENTION_SECONDS: {name: time.total_seconds() for name, time in kept},
        }
        self._show("lag", lags[0].at, numbers)
        await self.clock.sleep(LOOK_SECONDS)

    def _show(self, what: str, at: datetime, numbers: Mapping[SnapshotGauge, Values]) -> None:
        for gauge, values in numbers.items():
            gauge.replace(values)
        self._shown[what] = self.clock.monotonic(), at, [*numbers]
        self.clear(older_than=120.0)

    def clear(self, *, older_than: float = -math.inf) -> None:
        """Clears metrics that could not be refreshed for so many seconds: a stale number looks as if all were well."""
        oldest = self.clock.monotonic() - older_than
        for what in [what for what, (read_at, _, _) in self._shown.items() if read_at < oldest]:
            for gauge in self._shown.pop(what)[2]:
                gauge.replace({})
        metrics.STANDING_READ_AT.replace({(what,): at.timestamp() for what, (_, at, _) in self._shown.items()})


def backlog_numbers(work: Backlog, max_accounts: int) -> Mapping[SnapshotGauge, Values]:
    """The backlog in the store; accounts and endpoints with the most have their own labels."""

    def urgency(account: AccountBacklog) -> tuple[bool, int]:
        return account.work.in_doubt > 0, account.work.pending + account.work.due + account.work.in_doubt

    def age(moment: datetime | None) -> float:
        return 0.0 if moment is None else max((work.at - moment).total_seconds(), 0.0)

    own = {each.account_id for each in sorted(work.accounts, key=urgency, reverse=True)[:max_accounts]}
    named = [(each.account_id if each.account_id in own else "other", each.state, each.work) for each in work.accounts]
    pushed = [((name, state.value), each) for name, state, each in named]
    doubted = [((name,), each) for name, state, each in named if state is not AccountState.TEST]
    states = [*((state, 0.0) for state in AccountState), *((state, 1.0) for _, state, _ in named)]
    most = sorted(work.endpoints, key=lambda each: each.pending, reverse=True)
    endpoints = [((each.endpoint_id if place < max_accounts else "other",), each) for place, each in enumerate(most)]
    return {
        metrics.PENDING: _folded(add, ((labels, each.pending) for labels, each in pushed)),
        metrics.OLDEST_PENDING_SECONDS: _folded(max, ((name, age(each.oldest_pending_at)) for name, each in pushed)),
        metrics.DUE: _folded(add, ((labels, each.due) for labels, each in pushed)),
        metrics.OLDEST_DUE_SECONDS: _folded(max, ((labels, age(each.oldest_due_at)) for labels, each in pushed)),
        metrics.IN_DOUBT: _folded(add, ((labels, each.in_doubt) for labels, each in doubted)),
        metrics.OLDEST_IN_DOUBT_SECONDS: _folded(max, ((name, age(each.oldest_in_doubt_at)) for name, each in doubted)),
        metrics.OPEN_DEAD_LETTERS: {(name,): count for name, count in work.failed_by_class.items()},
        metrics.SET_ASIDE: {(each.failure_class,): each.messages for each in work.set_aside},
        metrics.KEYS_ENDING: {(): work.keys_ending},
        metrics.CERTIFICATES_ENDING: {(): len(work.certificates_ending)},
        metrics.STORE_BYTES: {(): work.size_bytes},
        metrics.ACCOUNTS: _folded(add, (((state.value,), count) for state, count in states)),
        metrics.WEBHOOKS_PENDING: _folded(add, ((name, each.pending) for name, each in endpoints)),
        metrics.WEBHOOKS_OLDEST_DUE_SECONDS: _folded(max, ((name, age(each.first_due_at)) for name, each in endpoints)),
    }


def _folded(combine: Callable[[float, float], float], numbers: Iterable[tuple[tuple[str, ...], float]]) -> Values:
    found: dict[tuple[str, ...], float] = {}
    for labels, number in numbers:
        found[labels] = combine(found.get(labels, 0.0), number)
    return found


BATCH = 50


class RetentionSweeper:
    def __init__(self, store: "GuestStore", policies: "TenancyAdmin", clock: Clock) -> None:
        self._store, self._policies, self._clock = store, policies, clock

    async def keep_sweeping(self) -> None:
        """One sweep, and the wait for the next. Raises `StoreUnavailable`, `TenancyUnavailable`."""
        await self.sweep()
        await self._clock.sleep(900.0)

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
        accounts = await self._policies.account_workspaces()
        for policy in policies:
            # The reasons of cancellations whose submissions never came: a caller may have named the guest in one.
            owned = [account_id for account_id, owner in accounts.items() if owner == policy.workspace_id]
            if policy.reservation_days is None or not owned:
                continue
            ids = [*owned, *map(shadow_id, owned)]
            before = self._clock.now() - timedelta(days=policy.reservation_days)
            count = await self._in_batches(partial(self._store.forget_parked_reasons, ids, before=before, limit=BATCH))
            if count:
                _log.info("guests.removed", workspace_id=policy.workspace_id, status="PARKED", count=count)
        await self._sweep_deliveries({policy.workspace_id: policy.delivery_days for policy in policies})

    async def _sweep_submissions(self, policy: RetentionPolicy) -> None:
        days = dict.fromkeys((Status.CONFIRMED, Status.REJECTED, Status.CANCELLED), policy.reservation_days)
        for status, kept in (days | {Status.FAILED: policy.dead_letter_days}).items():
            if kept is None:
                continue
            now = self._clock.now()
            until = now.date() - timedelta(days=kept)
            anonymize = partial(self._store.anonymize_finished, policy.workspace_id, status, until=until, now=now)
            count = await self._in_batches(partial(anonymize, limit=BATCH))
            if count:
                _log.info("guests.removed", workspace_id=policy.workspace_id, status=status.value, count=count)

    async def _sweep_deliveries(self, days: dict[str, int | None]) -> None:
        endpoints = await self._store.endpoints_with_deliveries()
        owners = await self._policies.endpoint_workspaces()
        for endpoint_id in endpoints:
            kept, owner = timedelta(hours=1), owners.get(endpoint_id)
            if owner is not None:  # else the endpoint was removed, and no API shows its deliveries
                given = days.get(owner)
                kept = timedelta(days=MAX_DELIVERY_DAYS if given is None else given)
            after: int | None = 0
            count, before = 0, self._clock.now() - kept
            delete = partial(self._store.delete_deliveries, endpoint_id, ended_before=before, limit=BATCH)
            while after is not None:
                began = self._clock.monotonic()
                after, some = await delete(after=after)
                count += some
                if after is not None:
                    await self._rest(began)
            if count:
                _log.info("deliveries.removed", endpoint_id=endpoint_id, workspace_id=owner, count=count)

    async def _in_batches(self, step: Callable[[], Awaitable[int]]) -> int:
        total = 0
        while True:
            began = self._clock.monotonic()
            total += (count := await step())
            if count < BATCH:
                return total
            await self._rest(began)

    async def _rest(self, began: float) -> None:
        """Nine times as long as the work since `began` took."""
        await self._clock.sleep(max((self._clock.monotonic() - began) * 9, 0.05))

"""A snapshot of a deployment's health: its log, its store and its backlog; problems, most urgent first, with the command that
fixes each. For the command line and the console. If the log or the store is unreachable, shows the other."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from forwarder.assembly.backend import database_of, open_log
from forwarder.operate.command import require_data
from forwarder.oversight.backlog import (
    AccountBacklog,
    AccountState,
    Group,
    GroupLag,
    read_backlog,
    read_lag,
)
from forwarder.oversight.losses import TopicCheck, TopicLost
from forwarder.process.clock import Clock, SystemClock
from forwarder.settings import Settings
from forwarder.store.audit_trail import SqlAuditTrail
from forwarder.store.deployment import BacklogReader, ProcessRegister, RunningProcess
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.lists.port import EndpointWork, NextTry
from forwarder.store.migrate import HEAD, applied_revisions, is_current
from forwarder.store.submissions.port import Heartbeat, StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Places
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.tenancy.sealing import KnownSecret, SecretState
from forwarder.tenancy.sql.admin import SqlTenancyAdmin
from forwarder.tenancy.sql.endpoints import SqlEndpoints
from forwarder.tenancy.sql.secrets import SqlSecrets, load_sealing_keys
from forwarder.topics.port import Log, LogUnavailable, TopicState

if TYPE_CHECKING:
    from forwarder.store.deployment import BacklogReader, ProcessRegister, RunningProcess
    from forwarder.store.lists.overview import Overview

LATE: Final = timedelta(minutes=1)
"""Lag, or a due and untouched row, older than this is a problem."""
_DEADLINE_SECONDS: Final = 20.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The log. `missing`: topics that do not exist. `members`: the member count of each group; None where the log does not
    report it."""

    topics: Mapping[str, TopicState]
    missing: Sequence[str]
    lags: Sequence[GroupLag]
    members: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """An account with open work. `next_try`: its next due submission, and the reason of its last failure."""

    backlog: AccountBacklog
    next_try: NextTry | None


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """A webhook endpoint with waiting deliveries, or one that was not disabled by an operator."""

    id: str
    work: EndpointWork | None
    disabled_reason: str | None


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The store. `revisions`: of its tables; `wanted_revision`: the one that this version needs. The rest is filled in only if the
    tables are current. `sealing_keys`: the ids of the keys that can seal cards now. `size_bytes`: on disk."""

    revisions: Sequence[str]
    wanted_revision: str
    current: bool
    processes: "Sequence[RunningProcess]" = ()
    workers: Sequence[Heartbeat] = ()
    accounts: Sequence[AccountStatus] = ()
    failed_by_class: Mapping[str, int] | None = None
    endpoints: Sequence[EndpointStatus] = ()
    secrets: Sequence[KnownSecret] = ()
    sealing_keys: Sequence[str] = ()
    audit_entries: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and its remedy, usually a command."""

    says: str
    mend: str


@dataclass(frozen=True, slots=True)
class DeploymentStatus:
    """The whole snapshot. If the log or the store is unreachable, it is None, and its `…_fault` says why."""

    at: datetime
    log: LogStatus | None
    log_fault: str | None
    store: StoreStatus | None
    store_fault: str | None
    lost: TopicLost | None = None
    """Lost messages; None also if the log or the store is unreachable."""

    @property
    def well(self) -> bool:
        return not self.findings

    @property
    def findings(self) -> Sequence[Finding]:
        """The problems, most urgent first."""
        return [*_of_outages(self), *_of_losses(self), *_of_log(self), *_of_store(self)]


@dataclass(frozen=True, slots=True)
class StatusReader:
    """Reads a deployment's status: its log, and its store through `engine`."""

    settings: Settings
    log: Log
    engine: Engine
    clock: Clock

    @property
    def groups(self) -> Sequence[Group]:
        """The consumer groups of the workers and of the notifiers."""
        settings, topics = self.settings, self.settings.topics
        return [Group(settings.worker.group, topics.requests), Group(settings.notifier.group, topics.results)]

    async def read(self) -> DeploymentStatus:
        """Never raises for an outage: it becomes a finding."""
        (log, log_fault), (store, store_fault) = await asyncio.gather(
            _within_deadline(self._log()), _within_deadline(self._store())
        )
        lost = None
        if log is not None and store is not None and store.current:
            check = TopicCheck(self.log, self.settings.topics.requests, Places(self.engine), self.clock)
            lost, _ = await _within_deadline(check.lost(timed=False))
        return DeploymentStatus(self.clock.now(), log, log_fault, store, store_fault, lost)

    async def _log(self) -> LogStatus:
        wanted = self.settings.topics.all()
        async with self.log.admin() as admin:
            topics = await admin.describe(wanted)
            members = {group.name: await admin.members(group.name) for group in self.groups}
        lags = await read_lag(self.log, [group for group in self.groups if group.topic in topics], self.clock)
        return LogStatus(topics, [topic for topic in wanted if topic not in topics], lags, members)

    async def _store(self) -> StoreStatus:
        engine, overview = self.engine, Overview(self.engine)
        revisions = await applied_revisions(engine)
        if not await is_current(engine):
            return StoreStatus(revisions, HEAD, current=False)
        work = await read_backlog(BacklogReader(engine), SqlTenancyAdmin(engine), self.clock)
        waiting = [each for each in work.accounts if each.work.pending or each.work.in_doubt or each.work.due]
        accounts = [AccountStatus(each, await overview.next_try(each.account_id)) for each in waiting]
        pending = {each.endpoint_id: each for each in work.endpoints}
        endpoints = [
            EndpointStatus(each.id, pending.get(each.id), None if each.enabled else each.disabled_reason)
            for each in await SqlEndpoints(engine).of(None)
            if each.id in pending or (not each.enabled and each.disabled_reason != _BY_HAND)
        ]
        return StoreStatus(
            revisions,
            HEAD,
            current=True,
            processes=await ProcessRegister(engine).processes(),
            workers=await Recorder(engine).heartbeats(),
            accounts=accounts,
            failed_by_class=work.failed_by_class,
            endpoints=endpoints,
            secrets=await SqlSecrets(engine).known(),
            sealing_keys=await valid_sealing_keys(engine, self.clock.now()),
            audit_entries=await SqlAuditTrail(engine).last(),
            size_bytes=await overview.size(),
        )


@asynccontextmanager
async def open_status(settings: Settings) -> AsyncIterator[StatusReader]:
    """The reader of this deployment's status. Creates nothing: raises `Failed` if an embedded deployment's directory has no
    data."""
    require_data(settings)
    engine = open_engine(database_of(settings), pool_size=2)
    try:
        async with open_log(settings.backend, partitions=settings.environment.partitions) as log:
            yield StatusReader(settings, log, engine, SystemClock())
    finally:
        await engine.dispose()


async def valid_sealing_keys(engine: Engine, now: datetime) -> Sequence[str]:
    """The ids of the keys that cards can be sealed to now."""
    keys = await load_sealing_keys(engine, now=now)
    return [key.key_id for key in keys if key.not_before <= now < key.not_after]


_BY_HAND: Final = "by_hand"


async def _within_deadline(reading: Coroutine[Any, Any, T]) -> tuple[T | None, str | None]:
    """The result, or the reason why there is none."""
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            return await reading, None
    except TimeoutError:
        return None, f"no answer within {_DEADLINE_SECONDS:.0f} s"
    except (LogUnavailable, StoreUnavailable, TenancyUnavailable) as error:
        return None, str(error)


# --- findings ---------------------------------------------------------------------------------------------------------------


def _of_outages(status: DeploymentStatus) -> Iterator[Finding]:
    if status.log_fault is not None:
        yield Finding(f"the log is away: {status.log_fault}", "look into docs/operations/outages.md")
    if status.store_fault is not None:
        yield Finding(f"the store is away: {status.store_fault}", "look into docs/operations/outages.md")


def _of_losses(status: DeploymentStatus) -> Iterator[Finding]:
    if status.lost is None:
        return
    remedy = "forwarder recover --topics-lost --dry-run says what may be lost; without --dry-run it accepts that"
    if status.lost.beyond:
        yield Finding("the requests topic was lost or recreated: submissions that it had may be lost", remedy)
    for gap in status.lost.gaps:
        count = "an unknown number of" if gap.missing is None else f"{gap.missing:,}"
        says = f"{gap.topic}: partition {gap.partition} lost {count} messages before they were received"
        yield Finding(says, remedy)
    if status.lost.unowned:
        says = f"{status.lost.unowned:,} due submissions are of partitions that the requests topic no longer has"
        yield Finding(says, "start a worker, which moves them within half a minute: forwarder worker")


def _of_log(status: DeploymentStatus) -> Iterator[Finding]:
    if status.log is None:
        return
    if status.log.missing:
        yield Finding(f"topics are missing: {', '.join(status.log.missing)}", "forwarder topics create")
    for name, topic in status.log.topics.items():
        if topic.in_sync < topic.replicas:
            says = f"{name} has {topic.in_sync} of {topic.replicas} replicas in sync: a broker is away or behind"
            yield Finding(says, "start the broker again: docs/operations/outages.md")
    for lag in status.log.lags:
        members = status.log.members.get(lag.group.name)
        if lag.messages and (members == 0 or lag.seconds > LATE.total_seconds()):
            unread = ", and no process reads it" if members == 0 else ""
            says = f"{lag.group.name} is {lag.messages:,} messages and {lag.seconds:,.0f} s behind{unread}"
            role = lag.group.name.rpartition("forwarder-")[2]  # a topic prefix may precede it
            yield Finding(says, f"start more: forwarder {role}")


def _of_store(status: DeploymentStatus) -> Iterator[Finding]:
    store = status.store
    if store is None:
        return
    if not store.current:
        is_at = ", ".join(store.revisions) or "nothing"
        yield Finding(f"the tables are at {is_at}, and {store.wanted_revision} is wanted", "forwarder migrate")
        return
    if not any(each.state is SecretState.ACTIVE for each in store.secrets):
        yield Finding("no secret is known: nothing can be sealed", "forwarder migrate")
    elif not store.sealing_keys:
        yield Finding(
            "no key is left that cards can be sealed to", "start a worker, which makes them: forwarder worker"
        )
    yield from _of_processes(store.processes, status.at)
    for account in store.accounts:
        yield from _of_account(account, status.at)
    for name, count in sorted((store.failed_by_class or {}).items()):
        says = f"{count:,} submissions are FAILED, {name}"
        yield Finding(says, f"forwarder dead-letters replay --class {name} --dry-run")
    for endpoint in store.endpoints:
        yield from _of_endpoint(endpoint, status.at)


def _of_processes(processes: "Sequence[RunningProcess]", now: datetime) -> Iterator[Finding]:
    """Roles without a live process: a process that stops cleanly removes itself from the list."""
    last = {each.role: each for each in sorted(processes, key=lambda each: each.seen_at)}
    for role, each in sorted(last.items()):
        if each.silent(now):
            says = f"no {role} runs: the last one, on {each.host}, was killed or lost the store {_for(now - each.seen_at)} ago"
            yield Finding(says, f"read the end of its log, then start it again: forwarder {role}")


def _of_account(account: AccountStatus, now: datetime) -> Iterator[Finding]:
    backlog, name = account.backlog, account.backlog.account_id
    work, state = backlog.work, backlog.state
    if work.in_doubt:
        since = "" if work.oldest_in_doubt_at is None else f", the oldest for {_for(now - work.oldest_in_doubt_at)}"
        says = f"{name}: {work.in_doubt:,} in doubt{since}"
        yield Finding(says, f"forwarder submissions list --status in_doubt --account {name}")
    if state is AccountState.UNKNOWN and work.pending:
        yield Finding(f"{name}: {work.pending:,} wait for an account that is not there", "forwarder account add --id …")
    elif state is AccountState.PAUSED and work.pending:
        yield Finding(f"{name}: paused, and {work.pending:,} wait", f"forwarder account resume {name}")
    elif account.next_try is not None and account.next_try.reason is not None:
        says = f"{name}: {work.pending:,} wait, {account.next_try.reason}"
        yield Finding(says, f"forwarder account probe {name}")
    elif work.oldest_due_at is not None and now - work.oldest_due_at > LATE:
        says = f"{name}: {work.due:,} are due, the oldest for {_for(now - work.oldest_due_at)}, and no worker has them"
        yield Finding(says, "start more: forwarder worker")


def _of_endpoint(endpoint: EndpointStatus, now: datetime) -> Iterator[Finding]:
    if endpoint.disabled_reason is not None:
        says = f"webhook {endpoint.id} was disabled: {endpoint.disabled_reason}"
        yield Finding(says, f"forwarder webhook deliveries {endpoint.id}; forwarder webhook enable {endpoint.id}")
    elif endpoint.work is not None and now - endpoint.work.first_due_at > LATE:
        waits = _for(now - endpoint.work.first_due_at)
        says = f"webhook {endpoint.id}: {endpoint.work.pending:,} deliveries wait, the first has been due for {waits}"
        command = f"forwarder webhook deliveries {endpoint.id} --tried"
        yield Finding(says, f"{command}, which has its answers; where there are none, start more: forwarder notifier")


def _for(span: timedelta) -> str:
    seconds = max(span.total_seconds(), 0.0)
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"

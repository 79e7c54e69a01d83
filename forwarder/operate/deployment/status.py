"""A snapshot of a deployment: its log, its store, its processes and its backlog. `forwarder.operate.deployment.conditions` finds
what is wrong in it. For the command line and the console. If the log or the store is unreachable, shows the other."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from forwarder.assembly.backend import database_of, open_log
from forwarder.operate.command import require_data
from forwarder.operate.deployment.conditions import LATE
from forwarder.oversight.backlog import AccountBacklog, Backlog, Group, GroupLag, read_backlog, read_lag
from forwarder.oversight.losses import TopicCheck, TopicLost
from forwarder.process.clock import Clock, SystemClock
from forwarder.settings import Settings
from forwarder.store.audit_trail import AuditTrail
from forwarder.store.database import NotPermitted
from forwarder.store.deployment import BacklogReader, ProcessRegister, RunningProcess
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.port import EndpointWork, SetAsideMessages, Waiting
from forwarder.store.migrate import HEAD, applied_revisions, is_current
from forwarder.store.submissions.port import Heartbeat, StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Places
from forwarder.tenancy.port import Disabled, TenancyUnavailable
from forwarder.tenancy.sealing import KnownSecret
from forwarder.tenancy.sql.admin import SqlTenancyAdmin
from forwarder.tenancy.sql.endpoints import Endpoints
from forwarder.tenancy.sql.secrets import SqlSecrets, load_sealing_keys
from forwarder.topics.port import Log, LogUnavailable, TopicState

_EXPLAINED: Final = 50
"""For how many accounts, those with the most work, the reasons of pending submissions are read."""

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
    """An account with open work, and what its pending submissions wait for."""

    backlog: AccountBacklog
    waiting: Waiting = field(default_factory=Waiting)


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """A webhook endpoint with waiting deliveries, or one that was not disabled by an operator."""

    id: str
    work: EndpointWork | None
    disabled_reason: str | None


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The store. `revisions`: of its tables; `wanted_revision`: the one that this version needs. The rest is filled in only if the
    tables are current. `work`: the whole backlog; `accounts`: those with open work, those with the most first.
    `write_fault`: why a write was refused, if it was. `unpublished`: results that are late on their topic. `doubles`: submissions
    that their PMS shows twice. `sealing_keys`: the ids of the keys that can seal cards now. `size_bytes`: on disk."""

    revisions: Sequence[str]
    wanted_revision: str
    current: bool
    write_fault: str | None = None
    work: Backlog | None = None
    processes: Sequence[RunningProcess] = ()
    workers: Sequence[Heartbeat] = ()
    accounts: Sequence[AccountStatus] = ()
    failed_by_class: Mapping[str, int] | None = None
    endpoints: Sequence[EndpointStatus] = ()
    set_aside: Sequence[SetAsideMessages] = ()
    unpublished: int = 0
    doubles: int = 0
    keys_ending: int = 0
    secrets: Sequence[KnownSecret] = ()
    sealing_keys: Sequence[str] = ()
    audit_entries: int = 0
    size_bytes: int = 0


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


@dataclass(frozen=True, slots=True)
class StatusReader:
    """Reads a deployment's status: its log, and its store through `engine`, each for `seconds` at most."""

    settings: Settings
    log: Log
    engine: Engine
    clock: Clock
    seconds: float = 20.0

    async def read(self) -> DeploymentStatus:
        """Never raises for an outage: it becomes a finding."""
        (log, log_fault), (store, store_fault) = await asyncio.gather(
            _within(self.seconds, self._log()), _within(self.seconds, self._store())
        )
        lost = None
        if log is not None and store is not None and store.current:
            check = TopicCheck(self.log, self.settings.topics.requests, Places(self.engine), self.clock)
            lost, _ = await _within(self.seconds, check.lost(timed=False))
        return DeploymentStatus(self.clock.now(), log, log_fault, store, store_fault, lost)

    async def _log(self) -> LogStatus:
        wanted = self.settings.topics.all()
        async with self.log.admin() as admin:
            topics = await admin.describe(wanted)
            members = {group.name: await admin.members(group.name) for group in groups_of(self.settings)}
        lags = await read_lag(
            self.log, [group for group in groups_of(self.settings) if group.topic in topics], self.clock
        )
        return LogStatus(topics, [topic for topic in wanted if topic not in topics], lags, members)

    async def _store(self) -> StoreStatus:
        engine, reader, register = self.engine, BacklogReader(self.engine), ProcessRegister(self.engine)
        revisions = await applied_revisions(engine)
        if not await is_current(engine):
            return StoreStatus(revisions, HEAD, current=False)
        work = await read_backlog(reader, SqlTenancyAdmin(engine), self.clock)
        open_work = [each for each in work.accounts if each.work.pending or each.work.in_doubt or each.work.due]
        open_work.sort(key=lambda each: -(each.work.pending + each.work.in_doubt))
        accounts = [AccountStatus(each, await reader.waiting(each.account_id)) for each in open_work[:_EXPLAINED]]
        accounts += [AccountStatus(each) for each in open_work[_EXPLAINED:]]
        pending = {each.endpoint_id: each for each in work.endpoints}
        endpoints = [
            EndpointStatus(each.id, pending.get(each.id), None if each.enabled else each.disabled_reason)
            for each in await Endpoints(engine).of(None)
            if each.id in pending or (not each.enabled and each.disabled_reason != Disabled.BY_HAND)
        ]
        write_fault = None
        try:
            await register.try_write()
        except NotPermitted:
            pass  # this user may not try
        except StoreUnavailable as error:
            write_fault = str(error)
        return StoreStatus(
            revisions,
            HEAD,
            current=True,
            write_fault=write_fault,
            work=work,
            processes=await register.processes(),
            workers=await Recorder(engine).heartbeats(),
            accounts=accounts,
            failed_by_class=work.failed_by_class,
            endpoints=endpoints,
            set_aside=work.set_aside,
            unpublished=await reader.unpublished(before=self.clock.now() - LATE),
            doubles=await reader.doubles(),
            keys_ending=work.keys_ending,
            secrets=await SqlSecrets(engine).known(),
            sealing_keys=await valid_sealing_keys(engine, self.clock.now()),
            audit_entries=await AuditTrail(engine).last(),
            size_bytes=work.size_bytes,
        )


def groups_of(settings: Settings) -> Sequence[Group]:
    """The consumer groups of the workers and of the notifiers."""
    topics = settings.topics
    return [Group(settings.worker.group, topics.requests), Group(settings.notifier.group, topics.results)]


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


async def _within(seconds: float, reading: Coroutine[Any, Any, T]) -> tuple[T | None, str | None]:
    try:
        async with asyncio.timeout(seconds):
            return await reading, None
    except TimeoutError:
        return None, f"no answer within {seconds:.0f} s"
    except (LogUnavailable, StoreUnavailable, TenancyUnavailable) as error:
        return None, str(error)

"""`forwarder status`: a snapshot of a deployment, its log, its store, its processes and its backlog, on one page. `conditions`
finds what is wrong in it. If the log or the store is unreachable, it has the other. The console uses the snapshot too."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

from rich.console import Group as Lines
from rich.filesize import decimal
from rich.live import Live
from rich.text import Text
from typer import Exit, Option

from forwarder.assembly.backend import database_of, open_log
from forwarder.observability.logging import printable
from forwarder.operate.command import require_data, stop_on_signal
from forwarder.operate.deployment.conditions import LATE, findings_of, some, until
from forwarder.operate.output import AsJson, console, picked, plain, show_json, show_lines
from forwarder.oversight.audit import OUTAGES
from forwarder.oversight.backlog import AccountBacklog, Backlog, Group, GroupLag, read_backlog, read_lag
from forwarder.oversight.losses import TopicCheck, TopicLost
from forwarder.process.clock import Clock, SystemClock, iso
from forwarder.process.loops import first_of
from forwarder.settings import Settings, settings_and_logging
from forwarder.store.database import NotPermitted
from forwarder.store.deployment import AuditTrail, BacklogReader, ProcessRegister, RunningProcess
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.port import EndpointWork
from forwarder.store.migrate import HEAD, applied_revisions, is_current
from forwarder.store.submissions.port import Heartbeat, StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Places
from forwarder.tenancy.port import Disabled
from forwarder.tenancy.sealing import KnownSecret
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.endpoints import Endpoints
from forwarder.tenancy.sql.secrets import SqlSecrets, load_sealing_keys
from forwarder.topics.port import Log, TopicState

_EXPLAINED: Final = 50  # for how many accounts, those with the most work, the reasons of pending submissions are read
_UNREAD: Final = Backlog((), (), datetime.min.replace(tzinfo=UTC))

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogStatus:
    """`missing`: topics that do not exist. `members`: the member count of each group; None where the log does not report it."""

    topics: Mapping[str, TopicState]
    missing: Sequence[str]
    lags: Sequence[GroupLag]
    members: Mapping[str, int | None]


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
    that their PMS shows twice. `sealing_keys`: the ids of the keys that can seal cards now."""

    revisions: Sequence[str]
    wanted_revision: str
    current: bool
    write_fault: str | None = None
    work: Backlog = _UNREAD
    processes: Sequence[RunningProcess] = ()
    workers: Sequence[Heartbeat] = ()
    accounts: Sequence[AccountBacklog] = ()
    endpoints: Sequence[EndpointStatus] = ()
    unpublished: int = 0
    doubles: int = 0
    secrets: Sequence[KnownSecret] = ()
    sealing_keys: Sequence[str] = ()
    audit_entries: int = 0


@dataclass(frozen=True, slots=True)
class DeploymentStatus:
    """The whole snapshot. If the log or the store is unreachable, it is None, and its `…_fault` says why; so is `lost`."""

    at: datetime
    log: LogStatus | None
    log_fault: str | None
    store: StoreStatus | None
    store_fault: str | None
    lost: TopicLost | None = None


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
        wanted, groups = self.settings.topics.all(), groups_of(self.settings)
        async with self.log.admin() as admin:
            topics = await admin.describe(wanted)
            members = {group.name: await admin.members(group.name) for group in groups}
        lags = await read_lag(self.log, [each for each in groups if each.topic in topics], self.clock)
        return LogStatus(topics, [topic for topic in wanted if topic not in topics], lags, members)

    async def _store(self) -> StoreStatus:
        engine, reader, register = self.engine, BacklogReader(self.engine), ProcessRegister(self.engine)
        revisions = await applied_revisions(engine)
        if not await is_current(engine):
            return StoreStatus(revisions, HEAD, current=False)
        work = await read_backlog(reader, TenancyAdmin(engine), self.clock)
        open_work = [each for each in work.accounts if each.work.pending or each.work.in_doubt or each.work.due]
        open_work.sort(key=lambda each: -(each.work.pending + each.work.in_doubt))
        explained = [replace(each, waiting=await reader.waiting(each.account_id)) for each in open_work[:_EXPLAINED]]
        pending = {each.endpoint_id: each for each in work.endpoints}
        endpoints = [
            EndpointStatus(each.id, pending.get(each.id), None if each.enabled else each.disabled_reason)
            for each in await Endpoints(engine).of(None)
            if each.id in pending or (not each.enabled and each.disabled_reason != Disabled.BY_HAND)
        ]
        write_fault = None
        try:
            await register.try_write()
        except StoreUnavailable as error:
            write_fault = None if isinstance(error, NotPermitted) else str(error)  # this user may not try
        return StoreStatus(
            revisions,
            HEAD,
            current=True,
            write_fault=write_fault,
            work=work,
            processes=await register.processes(),
            workers=await Recorder(engine).heartbeats(),
            accounts=[*explained, *open_work[_EXPLAINED:]],
            endpoints=endpoints,
            unpublished=await reader.unpublished(before=self.clock.now() - LATE),
            doubles=await reader.doubles(),
            secrets=await SqlSecrets(engine).known(),
            sealing_keys=await valid_sealing_keys(engine, self.clock.now()),
            audit_entries=await AuditTrail(engine).last(),
        )


def groups_of(settings: Settings) -> Sequence[Group]:
    """The consumer groups of the workers and of the notifiers."""
    topics = settings.topics
    return [Group(settings.worker.group, topics.requests), Group(settings.notifier.group, topics.results)]


@asynccontextmanager
async def open_status(settings: Settings) -> AsyncIterator[StatusReader]:
    """The reader of this deployment's status. Creates nothing: raises `Failed` as `require_data`."""
    require_data(settings)
    engine = open_engine(database_of(settings), pool_size=2)
    try:
        async with open_log(settings.backend, partitions=settings.environment.partitions) as log:
            yield StatusReader(settings, log, engine, SystemClock())
    finally:
        await engine.dispose()


async def valid_sealing_keys(engine: Engine, now: datetime) -> Sequence[str]:
    """The ids of the keys that cards can be sealed to now."""
    return [key.key_id for key in await load_sealing_keys(engine, now=now) if key.not_before <= now < key.not_after]


async def _within(seconds: float, reading: Coroutine[Any, Any, T]) -> tuple[T | None, str | None]:
    try:
        async with asyncio.timeout(seconds):
            return await reading, None
    except TimeoutError:
        return None, f"no answer within {seconds:.0f} s"
    except OUTAGES as error:
        return None, str(error)


# --- the page ---


async def status(watch: bool = False, every: Annotated[float, Option(min=0.5)] = 3.0, as_json: AsJson = False) -> None:
    """Show the deployment's state: problems first, most urgent first, each with the command that fixes it.

    Then its log and its store. Exit code 1 if there is a problem. If Kafka or PostgreSQL is unreachable, shows the rest.

    watch: Refresh until Ctrl-C.
    every: With --watch: the interval in seconds."""
    terminal = not as_json and sys.stdout.isatty()

    def page(found: DeploymentStatus) -> Lines:
        return Lines(*(Text(text, style=style) for text, style in lines_of(found, at_most=8)))

    def show(found: DeploymentStatus) -> None:
        if as_json:
            show_json(status_json(found))
            sys.stdout.flush()
        elif terminal:
            console().print(page(found))
        else:
            show_lines(text for text, _ in lines_of(found))

    async with open_status(settings_and_logging("error")) as reader:
        with stop_on_signal() if watch else nullcontext(asyncio.Event()) as stop:

            async def stopped() -> bool:
                await first_of(stop.wait(), asyncio.sleep(every))
                return stop.is_set()

            found = await reader.read()
            if watch and terminal:
                with Live(page(found), console=console(), auto_refresh=False, screen=True) as live:
                    while not await stopped():
                        found = await reader.read()
                        live.update(page(found), refresh=True)
            show(found)
            while watch and not terminal and not await stopped():
                found = await reader.read()
                show(found)
    if findings_of(found):
        raise Exit(1)


def lines_of(found: DeploymentStatus, *, at_most: int | None = None) -> Iterator[tuple[str, str]]:
    """The lines of the page and their styles. `at_most`: how many findings and accounts; a pipe gets all of them."""
    unwell = findings_of(found)
    yield (f"OK  {iso(found.at)}", "bold green") if not unwell else (f"DEGRADED  {iso(found.at)}", "bold red")
    for finding in unwell[:at_most]:
        yield f"! {finding.says}", "red" if finding.urgent else "yellow"
        yield f"    {finding.mend}", "cyan"
    if at_most is not None and len(unwell) > at_most:
        yield f"! and {len(unwell) - at_most} more: forwarder status | less", "red"
    yield "", ""
    if found.log is None:
        yield printable(f"log: away: {found.log_fault}"), "red"
    else:
        for name, topic in found.log.topics.items():
            sync = f"{some(topic.replicas, 'replica')}, {topic.in_sync} in sync"
            yield printable(f"topic {name}: {some(topic.partitions, 'partition')}, {sync}"), ""
        for lag in found.log.lags:
            members = found.log.members.get(lag.group.name)
            behind = f"{some(lag.messages, 'message')}, {lag.seconds:,.0f} s behind"
            who = "" if members is None else f", {some(members, 'member')}"
            yield printable(f"group {lag.group.name}: {behind}{who}"), ""
    if found.store is None:
        yield printable(f"store: away: {found.store_fault}"), "red"
    else:
        yield from _store_lines(found.store, at_most, found.at)


def _store_lines(store: StoreStatus, at_most: int | None, now: datetime) -> Iterator[tuple[str, str]]:
    alike = Counter((each.role, each.version, each.revision, each.silent(now)) for each in store.processes)
    for (role, version, revision, silent), count in sorted(alike.items()):
        state = "silent: killed, or without the store" if silent else "running"
        yield printable(f"role {role}: {count} {state}, version {version}, revision {revision or 'unknown'}"), ""
    size = f"; {decimal(store.work.size_bytes)} on disk" if store.current else ""
    yield f"tables: at {', '.join(store.revisions) or 'nothing'}, this version needs {store.wanted_revision}{size}", ""
    if not store.current:
        return
    yield f"workers: {len(store.workers)} with a lease", ""
    failed = ", ".join(f"{count:,} {name}" for name, count in sorted(store.work.failed_by_class.items()))
    yield f"dead letters: {failed or 'none open'}", ""
    for endpoint in store.endpoints:
        work = endpoint.work
        waits = work and f", {some(work.pending, 'delivery', 'deliveries')} due since {iso(work.first_due_at)}"
        yield printable(f"webhook {endpoint.id}: {endpoint.disabled_reason or 'enabled'}{waits or ''}"), ""
    secrets = ", ".join(f"{each.id} {each.state.value}" for each in store.secrets if each.needed)
    yield f"secrets: {secrets or 'none'}; cards are sealed to {', '.join(store.sealing_keys) or 'nothing'}", ""
    yield f"audit: {some(store.audit_entries, 'entry', 'entries')}", ""
    shown = store.accounts[:at_most]
    for account in shown:
        backlog, waiting = account.work, account.waiting
        parts = [f"account {account.account_id}: {account.state.value}", f"{backlog.pending:,} wait"]
        if backlog.oldest_pending_at is not None:
            parts.append(f"the oldest since {iso(backlog.oldest_pending_at)}")
        if backlog.in_doubt:
            parts.append(f"{backlog.in_doubt:,} in doubt")
        parts += [f"{count:,} after {reason}" for reason, count in waiting.reasons.items() if reason is not None]
        if waiting.due_at is not None:
            parts.append(f"next try {until(waiting.due_at, now)}")
        yield printable(", ".join(parts)), ""
    if len(shown) < len(store.accounts):
        yield f"and {some(len(store.accounts) - len(shown), 'more account')}", ""
    if not store.accounts:
        yield "accounts: nothing waits", ""


def status_json(found: DeploymentStatus) -> dict[str, Any]:
    findings, log, store = findings_of(found), found.log, found.store
    finding = "name=condition.name severity=condition.severity says mend runbook=condition.runbook"
    log_json: dict[str, Any] = {"fault": found.log_fault}
    if log is not None:
        groups = [
            picked(lag, "name=group.name topic=group.topic messages")
            | {"seconds": round(lag.seconds, 3), "members": log.members.get(lag.group.name)}
            for lag in log.lags
        ]
        topics = [{"name": name, **plain(topic)} for name, topic in log.topics.items()]
        log_json = {"topics": topics, "missing": list(log.missing), "groups": groups}
    store_json: dict[str, Any] = {"fault": found.store_fault}
    if store is not None:
        process = "role version revision host startedAt seenAt failing"
        account = "id=account_id state=state pending=work.pending oldestPendingAt=work.oldest_pending_at"
        account += " due=work.due inDoubt=work.in_doubt nextTryAt=waiting.due_at"
        store_json = {
            **picked(store, "revisions wantedRevision current sizeBytes=work.size_bytes"),
            "processes": [picked(each, process) for each in store.processes],
            "setAside": [picked(each, "class=failure_class messages firstAt lastAt") for each in store.work.set_aside],
            "workers": [picked(each, "id=worker_id leaseSeconds") for each in store.workers],
            "accounts": [
                picked(each, account)
                | {"reason": each.waiting.most and each.waiting.most[0]}
                | {"reasons": {name: count for name, count in each.waiting.reasons.items() if name is not None}}
                for each in store.accounts
            ],
            "failed": dict(store.work.failed_by_class),
            "webhooks": [
                picked(each, "id disabled=disabled_reason")
                | {"pending": each.work.pending if each.work else 0, **picked(each, "firstDueAt=work.first_due_at")}
                for each in store.endpoints
            ],
            "secrets": [picked(each, "id state") for each in store.secrets],
            "sealingKeys": list(store.sealing_keys),
            "auditEntries": store.audit_entries,
        }
    shown = {"findings": [picked(each, finding) for each in findings], "log": log_json, "store": store_json}
    return {**picked(found, "at"), "well": not findings, **shown}

"""`forwarder status`: the deployment's state on one page, as far as the log and the store can be reached."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Group as Lines
from rich.filesize import decimal
from rich.live import Live
from rich.text import Text

from forwarder.assembly.start import settings_and_logging
from forwarder.operate.command import stop_on_signal
from forwarder.operate.deployment.conditions import findings_of, until
from forwarder.operate.deployment.status import (
    AccountStatus,
    DeploymentStatus,
    StoreStatus,
    open_status,
)
from forwarder.operate.output import AsJson, console, picked, plain, show_json, show_lines
from forwarder.process.clock import iso
from forwarder.process.printable import printable

_FINDINGS: Final = 8
_ACCOUNTS: Final = 8
"""How many accounts a terminal's page shows; a pipe gets all of them."""

_ACCOUNT: Final = (
    "id=backlog.account_id state=backlog.state pending=backlog.work.pending oldestPendingAt=backlog.work.oldest_pending_at "
    "due=backlog.work.due inDoubt=backlog.work.in_doubt nextTryAt=waiting.due_at"
)

_Line = tuple[str, str]
"""A text and its style."""


async def status(
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.5, help="With --watch: the interval in seconds.")] = 3.0,
    as_json: AsJson = False,
) -> None:
    """Show the deployment's state: problems first, most urgent first, each with the command that fixes it.

    Then its log and its store. Exit code 1 if there is a problem. If Kafka or PostgreSQL is unreachable, shows the rest.
    """
    page = not as_json and sys.stdout.isatty()

    def show(found: DeploymentStatus) -> None:
        if as_json:
            show_json(status_json(found))
            sys.stdout.flush()
        elif page:
            console().print(_page(found))
        else:
            show_lines(text for text, _ in lines_of(found))

    async with open_status(settings_and_logging("error")) as reader:
        with stop_on_signal() if watch else nullcontext(asyncio.Event()) as stop:
            found = await reader.read()
            if watch and page:
                with Live(_page(found), console=console(), auto_refresh=False, screen=True) as live:
                    while not await _stopped(stop, every):
                        found = await reader.read()
                        live.update(_page(found), refresh=True)
            show(found)
            while watch and not page and not await _stopped(stop, every):
                found = await reader.read()
                show(found)
    if findings_of(found):
        raise typer.Exit(1)


async def _stopped(stop: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await stop.wait()
    except TimeoutError:
        return False


def _page(found: DeploymentStatus) -> Lines:
    return Lines(*(Text(text, style=style) for text, style in lines_of(found, findings=_FINDINGS, accounts=_ACCOUNTS)))


def lines_of(found: DeploymentStatus, *, findings: int | None = None, accounts: int | None = None) -> Iterator[_Line]:
    """The lines of the page, with at most this many findings and accounts."""
    unwell = findings_of(found)
    yield (f"OK  {iso(found.at)}", "bold green") if not unwell else (f"DEGRADED  {iso(found.at)}", "bold red")
    for finding in unwell[:findings]:
        yield f"! {finding.says}", "red" if finding.urgent else "yellow"
        yield f"    {finding.mend}", "cyan"
    if findings is not None and len(unwell) > findings:
        yield f"! and {len(unwell) - findings} more: forwarder status | less", "red"
    yield "", ""
    if found.log is None:
        yield printable(f"log: away: {found.log_fault}"), "red"
    else:
        for name, topic in found.log.topics.items():
            sync = f"{topic.replicas} replicas, {topic.in_sync} in sync"
            yield printable(f"topic {name}: {topic.partitions} partitions, {sync}"), ""
        for lag in found.log.lags:
            members = found.log.members.get(lag.group.name)
            who = "" if members is None else f", {members} members"
            yield printable(f"group {lag.group.name}: {lag.messages:,} messages, {lag.seconds:,.0f} s behind{who}"), ""
    if found.store is None:
        yield printable(f"store: away: {found.store_fault}"), "red"
    else:
        yield from _store_lines(found.store, accounts, found.at)


def _store_lines(store: StoreStatus, accounts: int | None, now: datetime) -> Iterator[_Line]:
    alike = Counter((each.role, each.version, each.revision, each.silent(now)) for each in store.processes)
    for (role, version, revision, silent), count in sorted(alike.items()):
        state = "silent: killed, or without the store" if silent else "running"
        yield printable(f"role {role}: {count} {state}, version {version}, revision {revision or 'unknown'}"), ""
    size = f"; {decimal(store.size_bytes)} on disk" if store.current else ""
    yield f"tables: at {', '.join(store.revisions) or 'nothing'}, this version wants {store.wanted_revision}{size}", ""
    if not store.current:
        return
    yield f"workers: {len(store.workers)} hold leases", ""
    failed = ", ".join(f"{count:,} {name}" for name, count in sorted((store.failed_by_class or {}).items()))
    yield f"dead letters: {failed or 'none open'}", ""
    for endpoint in store.endpoints:
        work = endpoint.work
        waits = "" if work is None else f" {work.pending:,} deliveries wait since {iso(work.first_due_at)}"
        yield printable(f"webhook {endpoint.id}: {endpoint.disabled_reason or 'enabled'}{waits}"), ""
    secrets = ", ".join(f"{each.id} {each.state.value}" for each in store.secrets if each.needed)
    yield f"secrets: {secrets or 'none'}; cards are sealed to {', '.join(store.sealing_keys) or 'nothing'}", ""
    yield f"audit: {store.audit_entries:,} entries", ""
    shown = store.accounts[:accounts]
    for account in shown:
        yield printable(_account_line(account, now)), ""
    if len(shown) < len(store.accounts):
        yield f"and {len(store.accounts) - len(shown)} accounts more", ""
    if not store.accounts:
        yield "accounts: nothing waits", ""


def _account_line(account: AccountStatus, now: datetime) -> str:
    backlog, work, waiting = account.backlog, account.backlog.work, account.waiting
    parts = [f"account {backlog.account_id}: {backlog.state.value}", f"{work.pending:,} wait"]
    if work.oldest_pending_at is not None:
        parts.append(f"the oldest since {iso(work.oldest_pending_at)}")
    if work.in_doubt:
        parts.append(f"{work.in_doubt:,} in doubt")
    parts += [f"{count:,} after {reason}" for reason, count in waiting.reasons.items() if reason is not None]
    if waiting.due_at is not None:
        parts.append(f"next try {until(waiting.due_at, now)}")
    return ", ".join(parts)


# --- JSON -----------------------------------------------------------------------------------------------------------------


def status_json(found: DeploymentStatus) -> dict[str, Any]:
    """The same for programs."""
    findings, log, groups = findings_of(found), found.log, []
    for lag in log.lags if log is not None else ():
        members = log and log.members.get(lag.group.name)
        group = picked(lag, "name=group.name topic=group.topic messages") | {"seconds": round(lag.seconds, 3)}
        groups.append(group | {"members": members})
    return {
        **picked(found, "at"),
        "well": not findings,
        "findings": [
            {
                **picked(each, "name=condition.name severity=condition.severity says mend"),
                "runbook": each.condition.runbook,
            }
            for each in findings
        ],
        "log": {"fault": found.log_fault}
        if log is None
        else {
            "topics": [{"name": name, **plain(topic)} for name, topic in log.topics.items()],
            "missing": list(log.missing),
            "groups": groups,
        },
        "store": {"fault": found.store_fault} if found.store is None else _store_json(found.store),
    }


def _store_json(store: StoreStatus) -> dict[str, Any]:
    return {
        **picked(store, "revisions wantedRevision current sizeBytes"),
        "processes": [picked(each, "role version revision host startedAt seenAt failing") for each in store.processes],
        "setAside": [picked(each, "class=failure_class messages firstAt lastAt") for each in store.set_aside],
        "workers": [picked(each, "id=worker_id leaseSeconds") for each in store.workers],
        "accounts": [
            {
                **picked(each, _ACCOUNT),
                "reason": each.waiting.most and each.waiting.most[0],
                "reasons": {name: count for name, count in each.waiting.reasons.items() if name is not None},
            }
            for each in store.accounts
        ],
        "failed": dict(store.failed_by_class or {}),
        "webhooks": [
            {
                **picked(each, "id disabled=disabled_reason"),
                "pending": 0 if each.work is None else each.work.pending,
                "firstDueAt": None if each.work is None else iso(each.work.first_due_at),
            }
            for each in store.endpoints
        ],
        "secrets": [picked(each, "id state") for each in store.secrets],
        "sealingKeys": list(store.sealing_keys),
        "auditEntries": store.audit_entries,
    }

"""The console's routes, and its first page: what is wrong, throughput, and accounts' PMSs; of all that, what can be read."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route

from forwarder.console import records
from forwarder.console.accounts import AccountPages
from forwarder.console.dead_letters import DeadLetterPages
from forwarder.console.guard import SIGN_IN, Guard, View, Visit
from forwarder.console.records import TopicPages
from forwarder.console.responses import HOME, RenderedPage, redirect, static
from forwarder.console.service import AWAY_SECONDS, ConsoleParts, Recent
from forwarder.console.submissions import SubmissionPages
from forwarder.http.messages import Response, Routes
from forwarder.operate.deployment.conditions import findings_of
from forwarder.operate.deployment.status import DeploymentStatus
from forwarder.operate.deployment.throughput import AccountOutcomes, Flow, FlowNow, PmsState, pms_states
from forwarder.oversight.backlog import AccountBacklog
from forwarder.store.deployment import RunningProcess
from forwarder.tenancy.port import NotKnown
from forwarder.topics.port import LogUnavailable


def console_routes(parts: ConsoleParts) -> Routes:
    guard, submissions = Guard(parts), SubmissionPages(parts)
    letters, accounts = DeadLetterPages(parts), AccountPages(parts)
    views: Sequence[tuple[str, str, View]] = (
        ("GET", "", OverviewPage(parts).show),
        ("GET", "/submissions", submissions.search),
        ("GET", "/submissions/{request_id}", submissions.show),
        ("POST", "/submissions/{request_id}", submissions.act),
        ("GET", "/bulk", submissions.preview),
        ("POST", "/bulk", submissions.run_bulk),
        ("GET", "/in-doubt", submissions.in_doubt),
        ("GET", "/dead-letters", letters.groups),
        ("GET", "/dead-letters/replay", letters.preview),
        ("POST", "/dead-letters/replay", letters.replay),
        ("GET", "/dead-letters/replays/{id}", letters.progress),
        ("POST", "/dead-letters/replays/{id}", letters.stop),
        ("GET", "/accounts", accounts.list),
        ("GET", "/accounts/{id}", accounts.show),
        ("POST", "/accounts/{id}", accounts.act),
        ("GET", "/topics", TopicPages(parts).list),
        ("GET", "/topics/{name}", records.topic_messages),
        ("GET", "/webhooks", records.webhooks),
        ("GET", "/webhooks/{id}", records.webhook),
        ("POST", "/webhooks/{id}", records.change_webhook),
        ("GET", "/audit", records.audit),
        ("POST", "/sign-out", guard.sign_out),
    )

    async def home(_request: Request) -> Response:
        return redirect(HOME)

    async def unknown(_visit: Visit) -> RenderedPage:
        raise NotKnown("The console has no page at this address.")

    return [
        Route(HOME + "/static/{name}", static),
        Route(HOME + "/", home),
        Route(HOME + SIGN_IN, guard.sign_in_page),
        Route(HOME + SIGN_IN, guard.sign_in, methods=["POST"]),
        *(Route(HOME + path, guard.view(view), methods=[method]) for method, path, view in views),
        Route(HOME + "/{path:path}", guard.view(unknown)),
    ]


_NAMED: Final = 20
_ROWS: Final = 50


@dataclass(frozen=True, slots=True)
class _AccountRow:
    backlog: AccountBacklog
    outcomes: AccountOutcomes
    pms: PmsState | None

    @property
    def failed(self) -> int:
        return sum(each.count for each in self.backlog.failed)

    @property
    def rank(self) -> tuple[bool, int, int, int]:
        """The sort key: accounts with the most urgent problems have the highest."""
        work, left_alone = self.backlog.work, self.pms is not None and self.pms.left_alone > 0
        return (left_alone, work.in_doubt + self.failed, work.pending, self.outcomes.kinds.total())


class OverviewPage:
    """The overview. Without Kafka it has no throughput and lag; without the database no backlog, accounts and processes."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._parts, backend = parts, parts.backend
        self._flow = Flow(backend.log, backend.settings.topics, backend.clock)
        self._recent = Recent(self._read, backend.clock)

    async def show(self, _visit: Visit) -> RenderedPage:
        status, flow = await self._recent.get()
        rows, store, processes = list[_AccountRow](), status.store, list[Mapping[str, Any]]()
        if store is not None:
            processes, pms = _runs(store.processes, status.at), pms_states(store.processes, status.at)
            outcomes: Mapping[str, AccountOutcomes] = {} if flow is None else flow.outcomes
            for each in store.work.accounts:
                latest = outcomes.get(each.account_id, AccountOutcomes())
                rows.append(_AccountRow(each, latest, pms.get(each.account_id)))
            rows.sort(key=lambda row: row.rank, reverse=True)
        attention, work = findings_of(status), [row.backlog.work for row in rows]
        oldest = min((at for each in work if (at := each.oldest_pending_at)), default=None)
        pending, in_doubt = sum(each.pending for each in work), sum(each.in_doubt for each in work)
        values: dict[str, Any] = {"flow": flow, "log": status.log, "now": status.at, "processes": processes}
        values |= {"accounts": rows[:_ROWS], "more_accounts": max(len(rows) - _ROWS, 0)}
        values |= {"attention": attention[:_NAMED], "unnamed": max(len(attention) - _NAMED, 0)}
        values |= {"work": store.work if store is not None and store.current else None}
        values |= {"pending": pending, "in_doubt": in_doubt, "oldest": oldest}
        values["grafana"] = self._parts.backend.settings.environment.grafana_url
        return RenderedPage("overview.html", values)

    async def _read(self) -> tuple[DeploymentStatus, FlowNow | None]:
        async def flow() -> FlowNow | None:
            try:
                async with asyncio.timeout(AWAY_SECONDS):
                    return await self._flow.read()
            except (LogUnavailable, TimeoutError):
                return None

        return await asyncio.gather(self._parts.status.read(), flow())


def _runs(processes: Sequence[RunningProcess], now: datetime) -> list[Mapping[str, Any]]:
    groups: dict[tuple[str, str, str], list[RunningProcess]] = {}
    for each in processes:
        groups.setdefault((each.role, each.version, each.revision), []).append(each)
    return [
        dict(
            zip(("role", "version", "revision"), run, strict=True),
            count=len(them),
            silent=sum(each.silent(now) for each in them),
            since=min(each.started_at for each in them),
            hosts=sorted({each.host for each in them}),
        )
        for run, them in sorted(groups.items())
    ]

"""The first page: problems, throughput, and the state of each account's PMS."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from forwarder.console.guard import Visit
from forwarder.console.recent import Recent
from forwarder.console.responses import Page, address
from forwarder.console.service import ConsoleParts
from forwarder.operate.deployment.throughput import AccountOutcomes, Flow, FlowNow, PmsState, pms_states
from forwarder.oversight.backlog import (
    AccountBacklog,
    AccountState,
    Backlog,
    GroupLag,
    read_backlog,
    read_lag,
)
from forwarder.tenancy.port import Endpoint

if TYPE_CHECKING:
    from forwarder.store.deployment import RunningProcess

_LAG_SECONDS: Final = 60.0
_OLD_SECONDS: Final = 300.0
_SLOW_SECONDS: Final = 30.0
_NAMED: Final = 20
_ROWS: Final = 50


@dataclass(frozen=True, slots=True)
class Attention:
    """A problem, with the page to open. `bad`: urgent."""

    who: str
    what: str
    where: str
    bad: bool = True


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
        work = self.backlog.work
        left_alone = self.pms is not None and self.pms.left_alone > 0
        return (left_alone, work.in_doubt + self.failed, work.pending, self.outcomes.kinds.total())


@dataclass(frozen=True, slots=True)
class _Seen:
    flow: FlowNow
    lags: Sequence[GroupLag]
    work: Backlog
    endpoints: Sequence[Endpoint]
    processes: "Sequence[RunningProcess]"

    @property
    def pms(self) -> Mapping[str, PmsState]:
        """How workers throttle each account's PMS."""
        return pms_states(self.processes, self.work.at)


class OverviewPage:
    """The overview."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._parts = parts
        self._flow = Flow(parts.log, parts.topics, parts.clock)
        self._recent = Recent(self._read, parts.clock)

    async def show(self, _visit: Visit) -> Page:
        seen = await self._recent.get()
        outcomes = seen.flow.outcomes
        pms = seen.pms
        rows = [
            _AccountRow(each, outcomes.get(each.account_id, AccountOutcomes()), pms.get(each.account_id))
            for each in seen.work.accounts
        ]
        rows.sort(key=lambda row: row.rank, reverse=True)
        attention = [*_attention(seen, rows)]
        values = {"flow": seen.flow, "lags": seen.lags, "work": seen.work, "accounts": rows[:_ROWS]}
        others = {"more_accounts": max(len(rows) - _ROWS, 0), "now": seen.work.at, "processes": _runs(seen)}
        return Page(
            "overview.html",
            {
                **values,
                **others,
                "attention": attention[:_NAMED],
                "unnamed": max(len(attention) - _NAMED, 0),
                "pending": sum(row.backlog.work.pending for row in rows),
                "in_doubt": sum(row.backlog.work.in_doubt for row in rows),
                "oldest": min((at for row in rows if (at := row.backlog.work.oldest_pending_at)), default=None),
            },
        )

    async def _read(self) -> _Seen:
        parts = self._parts
        return _Seen(
            *await asyncio.gather(
                self._flow.read(),
                read_lag(parts.log, parts.groups, parts.clock),
                read_backlog(parts.standing, parts.tenancy, parts.clock),
                parts.webhooks.endpoints(None),
                parts.processes.processes(),
            )
        )


def _attention(seen: _Seen, rows: Sequence[_AccountRow]) -> Iterator[Attention]:
    """Problems, most urgent first."""
    yield from _of_flow(seen)
    yield from _of_pms(rows)
    for row in rows:
        yield from _waiting(row, seen.work.at)
    yield from _of_webhooks(seen)


def _of_flow(seen: _Seen) -> Iterator[Attention]:
    for each in seen.lags:
        if each.seconds > _LAG_SECONDS:
            what = f"is {each.messages:,} messages and {each.seconds:,.0f} s behind"
            yield Attention(each.group.name, what, address("/topics"))
    for role, running, silent in _by_role(seen):
        if silent and not running:
            what = (
                "does not run: the last one was killed, or lost the store. Read the end of its log, then start it again"
            )
            yield Attention(role, what, "#processes")


def _of_pms(rows: Sequence[_AccountRow]) -> Iterator[Attention]:
    for row in rows:
        if row.pms is not None and row.pms.left_alone:
            where = address(f"/accounts/{row.backlog.account_id}")
            what = f"is left alone, its PMS fails: {row.pms.reason or 'unknown'}; {row.backlog.work.pending:,} wait. Probe it"
            yield Attention(row.backlog.account_id, what, where, bad=row.backlog.work.pending > 0)
    for row in rows:
        if row.backlog.work.in_doubt:
            where = address("/in-doubt", account=row.backlog.account_id)
            yield Attention(row.backlog.account_id, f"{row.backlog.work.in_doubt:,} in doubt", where)
    for row in rows:
        for failed in row.backlog.failed:
            where = address("/dead-letters", account=failed.account_id, **{"class": failed.failure_class})
            yield Attention(failed.account_id, f"{failed.count:,} failed: {failed.failure_class}", where)


def _of_webhooks(seen: _Seen) -> Iterator[Attention]:
    known = {endpoint.id: endpoint for endpoint in seen.endpoints}
    for due in seen.work.endpoints:
        late = (seen.work.at - due.first_due_at).total_seconds()
        if late > _LAG_SECONDS and due.endpoint_id in known:
            what = f"{due.pending:,} deliveries wait, the first {late:,.0f} s too long"
            yield Attention(due.endpoint_id, what, address(f"/webhooks/{due.endpoint_id}"), bad=False)
    for endpoint in seen.endpoints:
        if not endpoint.enabled:
            what = f"is disabled ({endpoint.disabled_reason or 'by hand'})"
            yield Attention(endpoint.id, what, address(f"/webhooks/{endpoint.id}"), bad=False)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Processes of one role and version."""

    role: str
    version: str
    revision: str
    count: int
    silent: int
    since: datetime
    hosts: Sequence[str]


def _by_role(seen: _Seen) -> Sequence[tuple[str, int, int]]:
    """For each role the numbers of running and silent processes."""
    silent = Counter(each.role for each in seen.processes if each.silent(seen.work.at))
    every = Counter(each.role for each in seen.processes)
    return [(role, count - silent[role], silent[role]) for role, count in sorted(every.items())]


def _runs(seen: _Seen) -> Sequence[_Runs]:
    groups: dict[tuple[str, str, str], list[RunningProcess]] = {}
    for each in seen.processes:
        groups.setdefault((each.role, each.version, each.revision), []).append(each)
    return [
        _Runs(
            *key,
            count=len(them),
            silent=sum(each.silent(seen.work.at) for each in them),
            since=min(each.started_at for each in them),
            hosts=sorted({each.host for each in them}),
        )
        for key, them in sorted(groups.items())
    ]


def _waiting(row: _AccountRow, now: datetime) -> Iterator[Attention]:
    """Problems of one account before anything has failed."""
    account, work = row.backlog.account_id, row.backlog.work
    where = address(f"/accounts/{account}")
    if row.backlog.state is AccountState.PAUSED:
        yield Attention(account, f"is paused; {work.pending:,} wait", where, bad=False)
    elif row.backlog.state is AccountState.UNKNOWN and work.pending:
        yield Attention(account, f"is no longer an account; {work.pending:,} wait", where)
    elif work.oldest_pending_at is not None and (now - work.oldest_pending_at).total_seconds() > _OLD_SECONDS:
        age = (now - work.oldest_pending_at).total_seconds() / 60
        where = address("/submissions", account=account, status="PENDING")
        yield Attention(account, f"{work.pending:,} pending, the oldest for {age:,.0f} min", where, bad=False)
    typical = row.outcomes.typical_seconds
    if typical is not None and typical > _SLOW_SECONDS:
        yield Attention(account, f"is slow: typically {typical:,.0f} s to its outcome", where, bad=False)

"""The metrics of the deployment's backlog.

Each process that reports them reports the whole deployment: where several run, queries take the maximum over them, not the sum.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from forwarder.observability import metrics
from forwarder.observability.snapshots import SnapshotGauge
from forwarder.oversight.backlog import (
    AccountBacklog,
    Accounts,
    AccountState,
    Backlog,
    Group,
    read_backlog,
    read_lag,
)
from forwarder.process.clock import Clock
from forwarder.topics.port import Log

if TYPE_CHECKING:
    from forwarder.store.deployment import BacklogReader

LOOK_SECONDS: Final = 10.0
_KNOWN_SECONDS: Final = 120.0
_SHARE: Final = 20
_MAX_PAUSE_SECONDS: Final = 90.0
"""At most one part in `_SHARE` of the time is spent on reading the backlog, unless that needs a pause longer than this."""

_OTHER: Final = "other"
_WORK_GAUGES: Final = (
    metrics.PENDING,
    metrics.OLDEST_PENDING_SECONDS,
    metrics.DUE,
    metrics.OLDEST_DUE_SECONDS,
    metrics.IN_DOUBT,
    metrics.OLDEST_IN_DOUBT_SECONDS,
    metrics.OPEN_DEAD_LETTERS,
    metrics.ACCOUNTS,
    metrics.SET_ASIDE,
    metrics.KEYS_ENDING,
    metrics.STORE_BYTES,
    metrics.WEBHOOKS_PENDING,
    metrics.WEBHOOKS_OLDEST_DUE_SECONDS,
)
_LAG_GAUGES: Final = (metrics.LAG_MESSAGES, metrics.LAG_SECONDS, metrics.RETENTION_SECONDS)


@dataclass(frozen=True, slots=True)
class BacklogSources:
    """Where to read the backlog. `groups`: by their names in metrics. `max_accounts`: how many accounts have metrics of their
    own."""

    store: "BacklogReader"
    accounts: Accounts
    groups: Mapping[str, Group]
    max_accounts: int


class BacklogMetrics:
    """The backlog metrics of one process. `read_backlog` and `read_lag` are steps of loops."""

    def __init__(self, parts: BacklogSources, log: Log, clock: Clock) -> None:
        self._parts = parts
        self._log = log
        self._clock = clock
        self._next_work = float("-inf")
        self._read_at: dict[str, tuple[float, datetime]] = {}

    async def read_backlog(self) -> None:
        """Reports the backlog in the store; then waits. Raises `StoreUnavailable`, `TenancyUnavailable`."""
        self._clear_stale()
        started = self._clock.monotonic()
        if started >= self._next_work:
            work = await read_backlog(self._parts.store, self._parts.accounts, self._clock)
            show_work(work, self._parts.max_accounts)
            self._note("work", work.at)
            took = self._clock.monotonic() - started
            self._next_work = started + min(_SHARE * took, _MAX_PAUSE_SECONDS)
        await self._clock.sleep(LOOK_SECONDS)

    async def read_lag(self) -> None:
        """Reports the groups' lag; then waits. Raises `LogUnavailable`."""
        self._clear_stale()
        lags = await read_lag(self._log, list(self._parts.groups.values()), self._clock)
        named = {(name,): lag for name, lag in zip(self._parts.groups, lags, strict=True)}
        metrics.LAG_MESSAGES.replace({name: lag.messages for name, lag in named.items()})
        metrics.LAG_SECONDS.replace({name: lag.seconds for name, lag in named.items()})
        metrics.RETENTION_SECONDS.replace(
            {name: lag.kept.total_seconds() for name, lag in named.items() if lag.kept is not None}
        )
        self._note("lag", lags[0].at)
        await self._clock.sleep(LOOK_SECONDS)

    def clear(self) -> None:
        """Clears the metrics."""
        self._read_at.clear()
        for gauge in (*_WORK_GAUGES, *_LAG_GAUGES, metrics.STANDING_READ_AT):
            gauge.replace({})

    def _note(self, what: str, at: datetime) -> None:
        self._read_at[what] = (self._clock.monotonic(), at)
        self._set_read_times()

    def _clear_stale(self) -> None:
        """Clears metrics that could not be refreshed for long: a stale number looks as if all were well."""
        oldest = self._clock.monotonic() - _KNOWN_SECONDS
        for what, gauges in (("work", _WORK_GAUGES), ("lag", _LAG_GAUGES)):
            if what in self._read_at and self._read_at[what][0] < oldest:
                del self._read_at[what]
                for gauge in gauges:
                    gauge.replace({})
                self._set_read_times()

    def _set_read_times(self) -> None:
        metrics.STANDING_READ_AT.replace({(what,): at.timestamp() for what, (_, at) in self._read_at.items()})


def show_work(work: Backlog, max_accounts: int) -> None:
    """Sets the backlog in the store; accounts and endpoints with the most have their own labels."""
    by_backlog = sorted(work.accounts, key=_urgency, reverse=True)
    names = {each.account_id: each.account_id for each in by_backlog[:max_accounts]}

    def age(moment: datetime | None) -> float:
        return 0.0 if moment is None else max((work.at - moment).total_seconds(), 0.0)

    def with_state(each: AccountBacklog) -> tuple[str, ...]:
        return names.get(each.account_id, _OTHER), each.state.value

    def named(each: AccountBacklog) -> tuple[str, ...]:
        return (names.get(each.account_id, _OTHER),)

    accounts = work.accounts
    _sum(metrics.PENDING, ((with_state(each), each.work.pending) for each in accounts))
    _highest(
        metrics.OLDEST_PENDING_SECONDS, ((with_state(each), age(each.work.oldest_pending_at)) for each in accounts)
    )
    _sum(metrics.DUE, ((with_state(each), each.work.due) for each in accounts))
    _highest(metrics.OLDEST_DUE_SECONDS, ((with_state(each), age(each.work.oldest_due_at)) for each in accounts))
    real = [each for each in accounts if each.state is not AccountState.TEST]
    _sum(metrics.IN_DOUBT, ((named(each), each.work.in_doubt) for each in real))
    _highest(metrics.OLDEST_IN_DOUBT_SECONDS, ((named(each), age(each.work.oldest_in_doubt_at)) for each in real))
    metrics.OPEN_DEAD_LETTERS.replace({(name,): count for name, count in work.failed_by_class.items()})
    metrics.SET_ASIDE.replace({(each.failure_class,): each.messages for each in work.set_aside})
    metrics.KEYS_ENDING.replace({(): work.keys_ending})
    metrics.STORE_BYTES.replace({(): work.size_bytes})
    every_state = [((state.value,), 0.0) for state in AccountState]
    _sum(metrics.ACCOUNTS, [*every_state, *(((each.state.value,), 1.0) for each in accounts)])

    most = sorted(work.endpoints, key=lambda each: each.pending, reverse=True)
    endpoints = [(((each.endpoint_id if place < max_accounts else _OTHER),), each) for place, each in enumerate(most)]
    _sum(metrics.WEBHOOKS_PENDING, ((name, each.pending) for name, each in endpoints))
    _highest(metrics.WEBHOOKS_OLDEST_DUE_SECONDS, ((name, age(each.first_due_at)) for name, each in endpoints))


def _urgency(account: AccountBacklog) -> tuple[bool, int]:
    work = account.work
    return work.in_doubt > 0, work.pending + work.due + work.in_doubt


def _sum(gauge: SnapshotGauge, numbers: Iterable[tuple[tuple[str, ...], float]]) -> None:
    sums: dict[tuple[str, ...], float] = {}
    for labels, number in numbers:
        sums[labels] = sums.get(labels, 0.0) + number
    gauge.replace(sums)


def _highest(gauge: SnapshotGauge, numbers: Iterable[tuple[tuple[str, ...], float]]) -> None:
    highest: dict[tuple[str, ...], float] = {}
    for labels, number in numbers:
        highest[labels] = max(highest.get(labels, 0.0), number)
    gauge.replace(highest)

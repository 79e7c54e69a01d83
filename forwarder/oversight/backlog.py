"""The current backlog: consumer lag, and pending, in-doubt and failed work. Metrics and operators' views share these numbers."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from forwarder.process.clock import Clock
from forwarder.reservation.submission import live_account_id
from forwarder.store.lists.port import AccountWork, EndpointWork, FailedWork
from forwarder.tenancy.port import Account
from forwarder.topics.port import Lag, Log

if TYPE_CHECKING:
    from forwarder.store.deployment import BacklogReader


class AccountState(StrEnum):
    """Whether the account's submissions are pushed."""

    ACTIVE = "active"
    PAUSED = "paused"
    UNKNOWN = "unknown"
    """Submissions name an account that does not exist: they cannot be pushed."""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, and the topic that it reads."""

    name: str
    topic: str


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind in each partition, read at `at`."""

    group: Group
    partitions: Sequence[Lag]
    at: datetime

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.partitions)

    @property
    def seconds(self) -> float:
        """The age of the oldest uncommitted message in seconds; 0 if there is none."""
        oldest = min((each.oldest_at for each in self.partitions if each.oldest_at is not None), default=self.at)
        return max((self.at - oldest).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True)
class AccountBacklog:
    """An account and its backlog. `account` is None if it does not exist. A shadow has its own id and its account's settings,
    but is never paused with it."""

    account_id: str
    account: Account | None
    state: AccountState
    work: AccountWork
    failed: Sequence[FailedWork]


@dataclass(frozen=True, slots=True)
class Backlog:
    """The store's backlog, read at `at`. Includes every account, even those without work."""

    accounts: Sequence[AccountBacklog]
    endpoints: Sequence[EndpointWork]
    at: datetime

    @property
    def failed_by_class(self) -> Mapping[str, int]:
        """Submissions that are FAILED, by the class of their dead letters."""
        count: Counter[str] = Counter()
        for account in self.accounts:
            for each in account.failed:
                count[each.failure_class] += each.count
        return count


class Accounts(Protocol):
    """All accounts; `TenancyAdmin` implements it."""

    async def accounts(self) -> Sequence[Account]: ...


async def read_lag(log: Log, groups: Sequence[Group], clock: Clock) -> Sequence[GroupLag]:
    """The lag of each group, whether or not it has members. Raises `LogUnavailable`."""
    async with log.admin() as admin:

        async def lag_of(group: Group) -> GroupLag:
            return GroupLag(group, await admin.lag(group.topic, group=group.name), clock.now())

        return await asyncio.gather(*map(lag_of, groups))


async def read_backlog(store: "BacklogReader", tenancy: Accounts, clock: Clock) -> Backlog:
    """Raises `StoreUnavailable` and `TenancyUnavailable`."""
    now = clock.now()
    known = {account.id: account for account in await tenancy.accounts()}
    works = {work.account_id: work for work in await store.accounts(now=now)}
    failed: dict[str, list[FailedWork]] = {}
    for each in await store.failed():
        failed.setdefault(each.account_id, []).append(each)
    accounts = [
        _backlog_of(account_id, known, works.get(account_id) or _no_work(account_id), failed.get(account_id, ()))
        for account_id in sorted({*known, *works})
    ]
    return Backlog(accounts, await store.endpoints(), now)


def _backlog_of(
    account_id: str, known: Mapping[str, Account], work: AccountWork, failed: Sequence[FailedWork]
) -> AccountBacklog:
    account = known.get(live_account_id(account_id))
    if account is None:
        state = AccountState.UNKNOWN
    else:
        state = AccountState.PAUSED if account.paused and account_id == account.id else AccountState.ACTIVE
    return AccountBacklog(account_id, account, state, work, failed)


def _no_work(account_id: str) -> AccountWork:
    return AccountWork(account_id, 0, None, 0, None, 0, None)

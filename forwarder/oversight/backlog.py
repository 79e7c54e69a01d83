"""The current backlog: consumer lag, and pending, in-doubt and failed work. Metrics and operators' views share these numbers."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from forwarder.process.certificates import ENDS_SOON, ends_soon
from forwarder.process.clock import Clock
from forwarder.reservation.submission import is_test, live_account_id
from forwarder.store.lists.port import AccountWork, EndpointWork, FailedWork, SetAsideMessages, Waiting
from forwarder.tenancy.port import Account
from forwarder.topics.port import Lag, Log

if TYPE_CHECKING:
    from forwarder.store.deployment import BacklogReader
    from forwarder.tenancy.sql.admin import TenancyAdmin


class AccountState(StrEnum):
    """Whether the account's submissions are pushed."""

    ACTIVE = "active"
    PAUSED = "paused"
    UNKNOWN = "unknown"  # submissions name an account that does not exist: they cannot be pushed
    TEST = "test"
    """The shadow of an account, which test keys use: what fails there is a test, and no trouble of the deployment."""


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    topic: str


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group's lag in each partition, read at `at`. `kept`: how long its topic keeps a message; None for forever or unknown."""

    group: Group
    partitions: Sequence[Lag]
    at: datetime
    kept: timedelta | None = None

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.partitions)

    @property
    def seconds(self) -> float:
        """The age of the oldest uncommitted message in seconds; 0 if there is none."""
        oldest = min((each.oldest_at for each in self.partitions if each.oldest_at is not None), default=self.at)
        return max((self.at - oldest).total_seconds(), 0.0)

    @property
    def deleted_in(self) -> timedelta | None:
        """When the oldest uncommitted message is deleted, if more than a quarter of the time to read it has passed."""
        if self.kept is None or self.seconds <= self.kept.total_seconds() / 4:
            return None
        return max(self.kept - timedelta(seconds=self.seconds), timedelta())


@dataclass(frozen=True, slots=True)
class AccountBacklog:
    """`account`: None if it does not exist; a shadow has its account's. `waiting`: for what submissions wait, if that was read."""

    account_id: str
    account: Account | None
    state: AccountState
    work: AccountWork
    failed: Sequence[FailedWork]
    waiting: Waiting = field(default_factory=Waiting)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The store's backlog, read at `at`. Includes every account, even those without work. `set_aside`: messages set aside as dead
    letters and not acknowledged. `keys_ending`: API keys that expire within `ENDS_SOON`; `certificates_ending`: accounts whose
    client certificate for their PMS does, or has. `size_bytes`: of the database."""

    accounts: Sequence[AccountBacklog]
    endpoints: Sequence[EndpointWork]
    at: datetime
    set_aside: Sequence[SetAsideMessages] = ()
    keys_ending: int = 0
    certificates_ending: Sequence[str] = ()
    size_bytes: int = 0

    @property
    def failed_by_class(self) -> Mapping[str, int]:
        """Submissions that are FAILED, by the class of their dead letters, without those of test keys."""
        count: Counter[str] = Counter()
        for each in chain(*(account.failed for account in self.accounts if account.state is not AccountState.TEST)):
            count[each.failure_class] += each.count
        return count


async def read_lag(log: Log, groups: Sequence[Group], clock: Clock) -> Sequence[GroupLag]:
    """The lag of each group, whether or not it has members. Raises `LogUnavailable`."""
    async with log.admin() as admin:

        async def lag_of(group: Group) -> GroupLag:
            lag, kept = await admin.lag(group.topic, group=group.name), await admin.retention(group.topic)
            return GroupLag(group, lag, clock.now(), kept)

        return await asyncio.gather(*map(lag_of, groups))


async def read_backlog(store: "BacklogReader", tenancy: "TenancyAdmin", clock: Clock) -> Backlog:
    """Raises `StoreUnavailable` and `TenancyUnavailable`."""
    now = clock.now()
    known = {account.id: account for account in await tenancy.accounts()}
    works = {work.account_id: work for work in await store.accounts(now=now)}
    failed: dict[str, list[FailedWork]] = {}
    for each in await store.failed():
        failed.setdefault(each.account_id, []).append(each)
    accounts = []
    for account_id in sorted({*known, *works}):
        account = known.get(live_account_id(account_id))
        state = AccountState.PAUSED if account and account.paused else AccountState.ACTIVE
        if account is None or is_test(account_id):
            state = AccountState.TEST if is_test(account_id) else AccountState.UNKNOWN
        work = works.get(account_id) or AccountWork(account_id, 0, None, 0, None, 0, None)
        accounts.append(AccountBacklog(account_id, account, state, work, failed.get(account_id, ())))
    keys = await tenancy.keys_ending(after=now, before=now + ENDS_SOON)
    own = {each.id: each.client_certificate for each in known.values() if each.client_certificate is not None}
    ending = [account_id for account_id, certificate in own.items() if ends_soon(certificate, now)]
    return Backlog(accounts, await store.endpoints(), now, await store.set_aside(), keys, ending, await store.size())

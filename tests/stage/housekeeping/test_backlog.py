"""The metrics of the backlog: of how many accounts by name, and for how long after they were read."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from forwarder.housekeeping.service import LOOK_SECONDS, BacklogMetrics
from forwarder.observability.metrics import SnapshotGauge, registry
from forwarder.oversight.backlog import Group
from forwarder.reservation.submission import shadow_id
from forwarder.store.deployment import BacklogReader
from forwarder.store.lists.port import AccountWork, EndpointWork, FailedWork, SetAsideMessages
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import Account
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.topics.embedded.log import EmbeddedLog
from tests.support.log.messages import ignore_partitions, numbered, take
from tests.support.memory.clock import ManualClock
from tests.support.worker.works import NOW, account

TOPIC = "requests"


class Store:
    """The backlog as a test says; away where it says so."""

    def __init__(self) -> None:
        self.work: Sequence[AccountWork] = ()
        self.away = False
        self.failures = [FailedWork("a1", "unreachable", 2), FailedWork("a2", "unreachable", 3)]

    async def accounts(self, *, now: object) -> Sequence[AccountWork]:
        if self.away:
            raise StoreUnavailable("away")
        return self.work

    async def failed(self) -> Sequence[FailedWork]:
        return self.failures

    async def endpoints(self) -> Sequence[EndpointWork]:
        return [EndpointWork("e1", 1, NOW), EndpointWork("e2", 5, NOW)]

    async def set_aside(self) -> Sequence[SetAsideMessages]:
        return [SetAsideMessages("forged", 3, NOW, NOW)]

    async def size(self) -> int:
        return 4096


class Tenancy(TenancyAdmin):
    def __init__(self) -> None: ...

    async def accounts(self, workspace_id: str | None = None) -> Sequence[Account]:
        return [account("a1"), account("a2", paused=True), account("a3", client_certificate="of no form")]

    async def keys_ending(self, *, after: object, before: object) -> int:
        return 2


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    for gauge in SnapshotGauge.every.values():
        gauge.replace({})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def log(tmp_path: Path, clock: ManualClock) -> AsyncIterator[EmbeddedLog]:
    log = EmbeddedLog(tmp_path / "log.sqlite3", partitions=2, clock=clock)
    async with log.admin():
        yield log


def teller(store: Store, log: EmbeddedLog, clock: ManualClock, *, max_accounts: int = 10) -> BacklogMetrics:
    groups = {"worker": Group("workers", TOPIC), "notifier": Group("notifiers", "results")}
    return BacklogMetrics(cast("BacklogReader", store), Tenancy(), log, clock, groups, max_accounts)


async def look(one: BacklogMetrics, clock: ManualClock) -> None:
    """One look at the store, which ends when the next is due."""
    looking = asyncio.ensure_future(one.read_backlog())
    while not looking.done():
        await asyncio.sleep(0)
        await clock.advance(LOOK_SECONDS)
    looking.result()


def value(name: str, **labels: str) -> float | None:
    return registry("housekeeping").get_sample_value(name, labels)


def pending(account_id: str, state: str) -> float | None:
    return value("forwarder_pending_reservations", account=account_id, state=state)


def of(account_id: str, count: int, *, in_doubt: int = 0) -> AccountWork:
    return AccountWork(account_id, count, NOW, 1, NOW, in_doubt, NOW if in_doubt else None)


async def test_of_many_accounts_those_with_the_most_are_named_and_the_others_are_one(
    store: Store, log: EmbeddedLog, clock: ManualClock
) -> None:
    store.work = [of("a1", 5), of("a2", 7), of("a3", 0), of("gone", 1, in_doubt=1)]
    await clock.advance(100.0)
    await look(teller(store, log, clock, max_accounts=2), clock)
    assert (pending("a2", "paused"), pending("gone", "unknown")) == (7, 1)
    assert (pending("a1", "active"), pending("other", "active")) == (None, 5)
    assert value("forwarder_oldest_pending_seconds", account="other", state="active") == 100.0
    assert value("forwarder_in_doubt_reservations", account="gone") == 1
    assert value("forwarder_oldest_in_doubt_seconds", account="gone") == 100.0
    assert value("forwarder_open_dead_letters", **{"class": "unreachable"}) == 5
    assert [value("forwarder_accounts", state=state) for state in ("active", "paused", "unknown")] == [2, 1, 1]
    assert value("forwarder_set_aside_messages", **{"class": "forged"}) == 3
    assert (value("forwarder_api_keys_ending"), value("forwarder_store_bytes")) == (2, 4096)
    assert value("forwarder_pms_certificates_ending") == 1
    await look(teller(store, log, clock, max_accounts=1), clock)
    assert value("forwarder_webhooks_pending", endpoint="e2") == 5
    assert value("forwarder_webhooks_pending", endpoint="other") == 1


async def test_trouble_with_test_keys_is_in_no_number_that_an_alert_reads(
    store: Store, log: EmbeddedLog, clock: ManualClock
) -> None:
    shadow = shadow_id("a1")
    store.work = [of(shadow, 4, in_doubt=3)]
    store.failures = [FailedWork(shadow, "unavailable", 2)]
    await look(teller(store, log, clock), clock)
    assert (pending(shadow, "test"), pending(shadow, "active")) == (4, None)
    assert value("forwarder_in_doubt_reservations", account=shadow) is None
    assert value("forwarder_open_dead_letters", **{"class": "unavailable"}) is None


async def test_how_far_the_groups_are_behind_is_told_while_the_store_is_away_and_what_is_old_is_not(
    store: Store, log: EmbeddedLog, clock: ManualClock
) -> None:
    one = teller(store, log, clock)
    store.work = [of("a1", 5)]
    async with (
        log.publisher() as publisher,
        log.consumer(TOPIC, group="workers", on_partitions=ignore_partitions) as consumer,
    ):
        await publisher.publish(TOPIC, numbered(10))
        await look(one, clock)
        store.away = True
        await read_lag(one, clock)
        assert value("forwarder_lag_messages", group="worker") == 10
        assert value("forwarder_lag_seconds", group="worker") == pytest.approx(LOOK_SECONDS, abs=1.0)
        await consumer.commit(await take(consumer, 10))
        await publisher.publish(TOPIC, numbered(3))
        await read_lag(one, clock)
        assert value("forwarder_lag_messages", group="worker") == 3
        assert value("forwarder_lag_messages", group="notifier") == 0
        assert pending("a1", "active") == 5
        await clock.advance(180.0)
        with pytest.raises(StoreUnavailable):
            await one.read_backlog()
        assert pending("a1", "active") is None
        assert value("forwarder_pms_certificates_ending") is None
        one.clear()
    assert value("forwarder_lag_messages", group="worker") is None


async def read_lag(one: BacklogMetrics, clock: ManualClock) -> None:
    looking = asyncio.ensure_future(one.read_lag())
    while not looking.done():
        await asyncio.sleep(0.001)  # it reads in a thread
        await clock.advance(LOOK_SECONDS / 100)
    looking.result()

"""What every store says of the work that stands."""

from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.oversight.backlog import AccountBacklog, AccountState, read_backlog
from forwarder.reservation.failures import FAILURE_CLASS
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import shadow_id
from forwarder.store.deliveries import NewDelivery
from forwarder.store.delivery_queue import SqlDeliveryQueue
from forwarder.store.deployment import BacklogReader
from forwarder.store.lists.overview import Overview
from forwarder.store.lists.port import AccountWork, EndpointWork, FailedWork
from forwarder.store.submissions.port import DeadLetter, Ended, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.port import Account
from tests.support.memory.clock import ManualClock
from tests.support.store.stored import LATER, arrivals, final, lease, postponed
from tests.support.worker.works import NOW, account


def failed(work: Work, failure_class: str) -> Ended:
    letter = DeadLetter("k", "{}", {FAILURE_CLASS: failure_class})
    return replace(final(work, status=Status.FAILED), dead_letter=letter)


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    opened = Recorder(engine)
    assert await lease(opened, "w1")
    return opened


async def test_what_stands_is_counted_by_account_whether_it_is_held_waits_or_is_due(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    standing = BacklogReader(engine)
    assert (await standing.accounts(now=NOW), await standing.failed(), await standing.endpoints()) == ([], [], [])
    held, backing_off, doubtful, done, first, second, other = await recorder.ingest(
        "w1", arrivals(range(1, 8)), now=NOW
    )
    await recorder.ingest("w1", arrivals([8], held=False), now=NOW)
    await recorder.ingest("w1", arrivals([9], account="quiet"), now=NOW)
    ends = [
        final(doubtful, status=Status.IN_DOUBT),
        final(done),
        failed(first, "unreachable"),
        failed(second, "unreachable"),
        failed(other, "expired"),
    ]
    await recorder.record("w1", ends, [postponed(backing_off, due_at=LATER)])

    accepted = held.submission.accepted_at
    busy = AccountWork("acc", 3, accepted, 1, NOW, 1, accepted)
    assert await standing.accounts(now=NOW) == [busy, AccountWork("quiet", 1, accepted, 0, None, 0, None)]
    (busy, _) = await standing.accounts(now=LATER)
    assert (busy.pending, busy.due, busy.oldest_due_at) == (3, 2, NOW)
    by_class = {(each.account_id, each.failure_class): each.count for each in await standing.failed()}
    assert by_class == {("acc", "unreachable"): 2, ("acc", "expired"): 1}


async def test_the_deliveries_of_each_endpoint_stand_until_they_are_made(engine: AsyncEngine) -> None:
    queue = SqlDeliveryQueue(engine)
    await queue.queue([NewDelivery("one", f"e{each}", "t", "{}") for each in range(3)], now=NOW)
    await queue.queue([NewDelivery("two", "e1", "t", "{}")], now=LATER)
    await queue.stop("two", now=LATER)
    assert await BacklogReader(engine).endpoints() == [EndpointWork("one", 3, NOW)]


class FewAccounts:
    """Those that there are."""

    def __init__(self, *accounts: Account) -> None:
        self._accounts = accounts

    async def accounts(self) -> list[Account]:
        return [*self._accounts]


async def test_paused_accounts_are_told_apart_from_active_and_unknown_ones(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    for number, name in enumerate(("acc", "paused", "gone", shadow_id("paused"))):
        works = await recorder.ingest("w1", arrivals([number], account=name), now=NOW)
        await recorder.record("w1", [failed(each, "expired") for each in works if name == "acc"], [])
    clock = ManualClock()
    active, paused, idle = account("acc"), account("paused", paused=True), account("idle")
    read = await read_backlog(BacklogReader(engine), FewAccounts(active, paused, idle), clock)

    def told(standing: AccountBacklog) -> tuple[str, AccountState, int]:
        return standing.account_id, standing.state, standing.work.pending

    assert [told(each) for each in read.accounts] == [
        ("acc", AccountState.ACTIVE, 0),
        ("gone", AccountState.UNKNOWN, 1),
        ("idle", AccountState.ACTIVE, 0),
        ("paused", AccountState.PAUSED, 1),
        (shadow_id("paused"), AccountState.ACTIVE, 1),
    ]
    assert read.failed_by_class == {"expired": 1}
    assert read.accounts[0].failed == [FailedWork("acc", "expired", 1)]


async def test_what_the_database_takes_on_disk_is_told(engine: AsyncEngine) -> None:
    assert await Overview(engine).size() > 50_000

"""What every store says of the work that stands."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.oversight.backlog import AccountBacklog, AccountState, read_backlog
from forwarder.reservation.outcome import FAILURE_CLASS, Status
from forwarder.reservation.submission import shadow_id
from forwarder.store.deliveries import NewDelivery
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.deployment import BacklogReader, ProcessRegister, RunningProcess
from forwarder.store.lists.port import AccountWork, EndpointWork, FailedWork, SetAsideMessages, Waiting
from forwarder.store.submissions.port import Attempt, DeadLetter, Ended, Postponed, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Repairs
from forwarder.tenancy.port import Account
from forwarder.tenancy.sql.admin import TenancyAdmin
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


async def test_the_reasons_of_pending_submissions_are_counted_and_the_first_unheld_one_is_next(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    works = await recorder.ingest("w1", arrivals(range(1, 8)), now=NOW)

    def tried(work: Work, *reasons: str) -> Postponed:
        attempts = tuple(Attempt(n, "create", "", 1, "deferred", each) for n, each in enumerate(reasons))
        return replace(postponed(work, due_at=LATER), attempts=attempts)

    once, twice = tried(works[0], "pms_unavailable"), tried(works[1], "push_timed_out", "pms_unavailable")
    await recorder.record("w1", [final(works[3])], [once, twice, tried(works[2], "push_timed_out")])
    reader = BacklogReader(engine)
    waiting = await reader.waiting("acc")
    assert waiting == Waiting(LATER, {"pms_unavailable": 2, "push_timed_out": 1, None: 3})
    assert (waiting.most, waiting.sampled) == (("pms_unavailable", 2), 6)
    nothing = await reader.waiting("nobody")
    assert (nothing, nothing.most) == (Waiting(), None)


async def test_what_an_account_waits_with_is_made_due_after_its_settings_changed(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    """At a time at which workers know the new settings; what a worker holds, or is due before, stays as it is."""
    works = await recorder.ingest("w1", arrivals(range(1, 5)), now=NOW)
    soon, others = NOW + timedelta(seconds=10), arrivals([9], account="other")
    await recorder.record("w1", [], [postponed(each, due_at=LATER) for each in works[:2]])
    await recorder.record("w1", [], [postponed(works[2], due_at=NOW)])
    await recorder.record("w1", [], [postponed((await recorder.ingest("w1", others, now=NOW))[0], due_at=LATER)])
    assert await Repairs(engine).hasten("acc", at=soon) == 2
    partitions = range(100)
    assert len(await recorder.claim("w1", "acc", frozenset(partitions), now=NOW, limit=10)) == 1
    assert len(await recorder.claim("w1", "acc", frozenset(partitions), now=soon, limit=10)) == 2
    assert await recorder.claim("w1", "other", frozenset(partitions), now=soon, limit=10) == []


async def test_messages_set_aside_are_counted_until_they_are_acknowledged(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    reader, repairs = BacklogReader(engine), Repairs(engine)
    assert await reader.set_aside() == []
    for name, count, now in (("forged", 2, NOW), ("forged", 3, LATER), ("undecodable", 1, NOW)):
        await recorder.note_set_aside(name, count, now=now)
    undecodable = SetAsideMessages("undecodable", 1, NOW, NOW)
    assert await reader.set_aside() == [SetAsideMessages("forged", 5, NOW, LATER), undecodable]
    assert await repairs.acknowledge("forged") == 5
    assert await repairs.acknowledge("forged") == 0
    assert await reader.set_aside() == [undecodable]


async def test_a_process_reports_the_checks_that_it_fails(engine: AsyncEngine) -> None:
    register = ProcessRegister(engine)
    worker = RunningProcess("p1", "worker", "1", "", "host", NOW, NOW, failing=("log", "store_writes"))
    await register.report(worker)
    (shown,) = await register.processes()
    assert shown.failing == ["log", "store_writes"]
    await register.report(replace(worker, seen_at=LATER, failing=()))
    await register.try_write()
    (shown,) = await register.processes()
    assert (shown.id, shown.failing) == ("p1", [])


async def test_results_that_are_not_published_and_doubles_are_counted(recorder: Recorder, engine: AsyncEngine) -> None:
    reader = BacklogReader(engine)
    doubled, single = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    await recorder.record("w1", [replace(final(doubled), doubles=("other",)), final(single)], [])
    assert (await reader.unpublished(before=datetime.max.replace(tzinfo=UTC)), await reader.doubles()) == (2, 1)
    assert await reader.unpublished(before=NOW - timedelta(days=3650)) == 0


async def test_the_deliveries_of_each_endpoint_stand_until_they_are_made(engine: AsyncEngine) -> None:
    queue = Deliveries(engine)
    await queue.queue([NewDelivery("one", f"e{each}", "t", "{}") for each in range(3)], now=NOW)
    await queue.queue([NewDelivery("two", "e1", "t", "{}")], now=LATER)
    await queue.stop("two", now=LATER)
    assert await BacklogReader(engine).endpoints() == [EndpointWork("one", 3, NOW)]


class FewAccounts(TenancyAdmin):
    """Those that there are."""

    def __init__(self, *accounts: Account) -> None:
        self._accounts = accounts

    async def accounts(self, workspace_id: str | None = None) -> list[Account]:
        return [*self._accounts]

    async def keys_ending(self, *, after: datetime, before: datetime) -> int:
        return 0


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
        (shadow_id("paused"), AccountState.TEST, 1),
    ]
    assert read.failed_by_class == {"expired": 1}
    assert read.accounts[0].failed == [FailedWork("acc", "expired", 1)]


async def test_what_the_database_takes_on_disk_is_told(engine: AsyncEngine) -> None:
    assert await BacklogReader(engine).size() > 50_000

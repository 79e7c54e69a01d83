"""The sweep: rows that this worker is given are delivered by it, or given back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forwarder.store.engine import Engine, open_engine
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease
from forwarder.worker.parts import WorkerSettings
from forwarder.worker.service import Sweep
from tests.support.memory.clock import ManualClock
from tests.support.store.stored import arrivals, row, take_over
from tests.support.worker.pushes import Pushes
from tests.support.worker.queue_site import parts_of
from tests.support.worker.works import NOW, account


class _Accounts:
    """A directory of one account."""

    async def key(self, token: str) -> None:
        raise AssertionError("a worker authenticates nobody")

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        return account() if account_id == "acc" else None


class _Worker:
    """The parts of a worker that fetch rows, and a store for them."""

    def __init__(self, engine: Engine, max_held: int = 100) -> None:
        self.clock = ManualClock(NOW)
        self.recorder = Recorder(engine)
        self.pushes = Pushes()
        self.dispatcher = Dispatcher(self.clock, self.pushes.run, max_held=max_held)
        self.lease = Lease(self.recorder, self.clock, 45.0)
        self.dispatcher.partitions = frozenset({0})
        parts = parts_of(self.recorder, _Accounts(), self.clock, WorkerSettings(sweep_seconds=0.0))
        self._sweep = Sweep(parts, self.dispatcher, self.lease, self.dispatcher.budget.works.keys)

    async def sweep(self) -> None:
        await self._sweep.all_accounts()
        await asyncio.sleep(0)

    async def refill(self) -> None:
        self.dispatcher.refill_wanted.set()
        await self._sweep.queues_running_low()


@pytest.fixture
async def engine(data_dir: Path) -> AsyncIterator[Engine]:
    opened = open_engine(data_dir / "store.sqlite3")
    yield opened
    await opened.dispose()


async def test_a_row_that_comes_back_during_its_delivery_under_a_lost_lease_is_not_held_for_ever(
    engine: Engine,
) -> None:
    worker = _Worker(engine)
    await worker.lease.renew()
    await worker.recorder.ingest(worker.lease.worker_id, arrivals([1], held=False), now=NOW)
    await worker.sweep()
    (work_id,) = worker.pushes.started
    await take_over(worker.recorder, worker.lease.worker_id, now=NOW)
    assert not await worker.lease.keep()
    await worker.lease.renew()

    await worker.sweep()
    assert worker.pushes.started == [work_id], "one push at a time"
    assert (await row(engine, work_id))["leased_by"] == worker.lease.worker_id

    await worker.pushes.answer()
    await worker.sweep()
    assert worker.pushes.started == [work_id, work_id]
    assert (await row(engine, work_id))["leased_by"] == worker.lease.worker_id
    await worker.pushes.answer()


async def test_a_row_that_cannot_be_delivered_yet_is_free_for_others(engine: Engine) -> None:
    worker, other = _Worker(engine), _Worker(engine)
    await worker.lease.renew()
    await worker.recorder.ingest(worker.lease.worker_id, arrivals([1], held=False), now=NOW)
    await worker.sweep()
    await take_over(worker.recorder, worker.lease.worker_id, now=NOW)
    await worker.lease.renew()
    await worker.lease.renew()
    await worker.sweep()

    await worker.lease.give_back_unpushed()
    await other.lease.renew()
    await other.sweep()
    assert len(other.pushes.started) == 1
    await worker.pushes.answer()
    await other.pushes.answer()


async def test_two_claims_at_once_do_not_hold_more_than_may_be_held(engine: Engine) -> None:
    worker = _Worker(engine, max_held=10)
    await worker.lease.renew()
    await worker.recorder.ingest(worker.lease.worker_id, arrivals(range(1, 41), held=False), now=NOW)
    worker.dispatcher.note_more(account())
    await asyncio.gather(worker.refill(), worker.refill())
    assert worker.dispatcher.held == 10
    while worker.pushes.under_way:
        await worker.pushes.answer()

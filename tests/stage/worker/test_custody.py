"""What a worker holds, through everything by which rows come to it and go: it, the store and the others never disagree for long."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from forwarder.process.clock import SystemClock
from forwarder.reservation.evidence import Target, read_evidence
from forwarder.store.submissions.port import Arrival, CancellationArrival, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import reservations
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.port import Consumer, GapFound, PartitionsChanged
from forwarder.worker.service import Worker
from tests.support.store.stored import lease, take_over
from tests.support.worker.worker_bench import PATIENCE_SECONDS, SETTINGS, Bench, cancellation, fresh, open_bench
from tests.support.worker.works import submission

TARGET = Target("pms", key=True)


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(data_dir) as opened:
        opened.accounts.one = replace(opened.accounts.one, concurrency=1)
        yield opened


async def _when(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


async def _rows(bench: Bench) -> dict[str, Any]:
    async with bench.engine.connect() as connection:
        found = await connection.execute(select(reservations))
        return {row.request_id: row for row in found}


async def _row(bench: Bench, number: int, condition: Callable[[Any], bool]) -> Any:
    """The row of the `number`-th submission, once it is so."""
    wanted = submission(number).request_id
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            row = (await _rows(bench)).get(wanted)
            if row is not None and condition(row):
                return row
            await asyncio.sleep(0.005)


# --- partitions -----------------------------------------------------------------------------------------------------------


class _Rebalancing:
    """The log of a bench, whose consumer can be told at any time what it owns."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self.own: PartitionsChanged

    def consumer(
        self, topic: str, *, group: str, on_partitions: PartitionsChanged, on_gap: GapFound | None = None
    ) -> AbstractAsyncContextManager[Consumer]:
        self.own = on_partitions
        return self._log.consumer(topic, group=group, on_partitions=on_partitions, on_gap=on_gap)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


async def test_a_worker_that_is_left_without_partitions_gives_back_what_it_has_not_started(bench: Bench) -> None:
    log = bench.log = _Rebalancing(bench.log)  # type: ignore[assignment]
    bench.pms.answering.clear()
    async with bench.worker() as worker:
        await bench.submit(fresh(1))
        await _when(lambda: bench.pms.asked)
        await bench.submit(fresh(2), fresh(3))
        await _row(bench, 3, lambda row: row.leased_by is not None)
        await log.own(frozenset())
        rows = await _rows(bench)
        assert [rows[submission(number).request_id].leased_by is None for number in (1, 2, 3)] == [False, True, True]
        # Whoever has the partition now takes in the cancellation of what was not sent. It never is.
        other, now = Recorder(bench.engine), SystemClock().now()
        await lease(other, "other")
        await other.request_cancellations([CancellationArrival(cancellation(3), now)], now=now)
        await other.claim("other", "acc", range(16), now=SystemClock().now(), limit=10)
        bench.pms.answering.set()
        await bench.rows("CONFIRMED", 1)
        await _nothing_held(worker)
    assert bench.pms.asked == [submission(1).request_id]


async def _nothing_held(worker: Worker) -> None:
    await _when(lambda: not worker.holds())


class _TakesItsTime(Recorder):
    """Its answers to intake and claims come as late as the test likes, when all is committed."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.engine)
        self.answering = asyncio.Event()
        self.answering.set()
        self.committed = asyncio.Event()

    async def ingest(self, worker_id: str, arrivals: Sequence[Arrival], **how: Any) -> Sequence[Work]:
        return await self._late(await super().ingest(worker_id, arrivals, **how))

    async def claim(self, worker_id: str, account_id: str, partitions: Collection[int], **how: Any) -> Sequence[Work]:
        return await self._late(await super().claim(worker_id, account_id, partitions, **how))

    async def _late(self, works: Sequence[Work]) -> Sequence[Work]:
        if works and not self.answering.is_set():
            self.committed.set()
            await self.answering.wait()
        return works


async def test_what_was_taken_in_from_a_partition_that_is_lost_meanwhile_is_not_held(bench: Bench) -> None:
    log = bench.log = _Rebalancing(bench.log)  # type: ignore[assignment]
    recorder = _TakesItsTime(bench)
    async with bench.worker(recorder=recorder):
        recorder.answering.clear()
        await bench.submit(fresh(1))
        await recorder.committed.wait()
        lost = asyncio.ensure_future(log.own(frozenset()))
        recorder.answering.set()
        await lost
        await _row(bench, 1, lambda row: row.leased_by is None)
    assert bench.pms.asked == []


async def test_what_waits_in_a_lost_partition_does_not_start_though_a_claim_is_under_way(bench: Bench) -> None:
    log = bench.log = _Rebalancing(bench.log)  # type: ignore[assignment]
    recorder = _TakesItsTime(bench)
    bench.pms.answering.clear()
    async with bench.worker(recorder=recorder):
        await bench.submit(fresh(1))
        await _when(lambda: bench.pms.asked)
        await bench.submit(fresh(2))
        await _row(bench, 2, lambda row: row.leased_by is not None)
        recorder.answering.clear()
        await bench.submit(fresh(3))
        await recorder.committed.wait()
        lost = asyncio.ensure_future(log.own(frozenset()))
        await asyncio.sleep(0)
        bench.pms.answering.set()
        await bench.rows("CONFIRMED", 1)
        recorder.answering.set()
        await lost
        await _row(bench, 2, lambda row: row.leased_by is None)
    assert bench.pms.asked == [submission(1).request_id]


# --- a cancellation, and a claim whose answer is under way --------------------------------------------------------------------


@pytest.mark.parametrize("busy", [True, False])
async def test_what_was_claimed_while_its_cancellation_came_is_not_sent(bench: Bench, busy: bool) -> None:
    """Neither where it would wait for its turn, nor where it would start at once."""
    bench.pms.answering.clear()
    recorder = _TakesItsTime(bench)
    async with bench.worker(recorder=recorder):
        if busy:
            await bench.submit(fresh(1))
            await _when(lambda: bench.pms.asked)
        recorder.answering.clear()
        waiting = Arrival(fresh(2), 0, SystemClock().now().replace(year=2100), held=False)
        await Recorder(bench.engine).ingest("nobody", [waiting], now=SystemClock().now())
        await recorder.committed.wait()
        await bench.cancel(cancellation(2))
        await _row(bench, 2, lambda row: row.cancel_requested_at is not None)
        recorder.answering.set()
        await bench.rows("CANCELLED", 1)
        bench.pms.answering.set()
        await bench.rows("CONFIRMED", int(busy))
    assert bench.pms.asked == [submission(1).request_id] * busy


# --- a lease that was lost ------------------------------------------------------------------------------------------------


async def test_what_waits_under_a_lease_is_withdrawn_where_a_push_notices_that_it_is_lost(bench: Bench) -> None:
    bench.accounts.add("other")
    bench.pms.answering.clear()
    recorder = Recorder(bench.engine)
    async with bench.worker(recorder=recorder) as worker:
        await bench.submit(fresh(1))
        await _when(lambda: bench.pms.asked)
        await bench.submit(fresh(2), fresh(3))
        sent = await _row(bench, 1, lambda row: row.leased_by is not None)
        await _row(bench, 3, lambda row: row.leased_by is not None)
        await take_over(recorder, worker.lease.worker_id)
        recorder.identity.changes += 1  # as after a failover
        await bench.submit(fresh(4, account="other"))
        await _when(lambda: worker.holds().keys() == {sent.id})
        bench.pms.answering.set()
    assert bench.pms.asked == [submission(1).request_id]


# --- rows that nobody has -------------------------------------------------------------------------------------------------


async def test_a_row_that_the_store_has_for_a_worker_that_knows_nothing_of_it_is_found(bench: Bench) -> None:
    """The commit of a claim whose answer was given up comes through later: nothing else would ever free it."""
    bench.settings = replace(SETTINGS, lease_seconds=0.6)
    async with bench.worker() as worker:
        await bench.submit(fresh(1))
        await bench.rows("CONFIRMED", 1)
        waiting = Arrival(fresh(2), 0, SystemClock().now().replace(year=2100), held=True, target=TARGET.text)
        await Recorder(bench.engine).ingest(worker.lease.worker_id, [waiting], now=SystemClock().now())
        row = await _row(bench, 2, lambda row: row.takeovers == 1)
    assert [push.to for push in read_evidence(row.evidence).open] == [TARGET]


async def test_a_row_that_is_held_for_long_is_not_taken_for_a_stray(bench: Bench) -> None:
    bench.settings = replace(SETTINGS, lease_seconds=0.3)
    bench.pms.answering.clear()
    recorder = _Looks(bench.engine)
    async with bench.worker(recorder=recorder):
        await bench.submit(fresh(1), fresh(2))
        await _row(bench, 2, lambda row: row.leased_by is not None)
        looks = recorder.looks
        await _when(lambda: recorder.looks > looks + 2)
        assert [row.takeovers for row in (await _rows(bench)).values()] == [0, 0]
        bench.pms.answering.set()
        await bench.rows("CONFIRMED", 2)
    assert len(bench.pms.asked) == 2


class _Looks(Recorder):
    looks = 0

    async def leased_ids(self, worker_id: str) -> Collection[int]:
        self.looks += 1
        return await super().leased_ids(worker_id)

"""Deadlines kept by the worker: what was not made by then is ended, whatever its account, its queue or its due time say."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from forwarder.reservation.outcome import FAILURE_CLASS, Status
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.lists.port import SubmissionQuery
from forwarder.store.submissions.port import Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.port import Account, TenancyUnavailable
from forwarder.topics.codec import EVENT_ID, header, subject
from forwarder.topics.port import Message, Topics
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.recorder import OutboxPublisher, OutcomeRecorder
from forwarder.worker.parts import WorkerSettings
from forwarder.worker.service import DeadlineKeeper
from tests.support.log.signers import SIGNER
from tests.support.memory.clock import ManualClock, settle
from tests.support.memory.log import MemoryLog
from tests.support.store.stored import DEADLINE, arrival, arrivals, postponed, row
from tests.support.worker.cards import memory_vault
from tests.support.worker.pushes import Pushes
from tests.support.worker.queue_site import parts_of
from tests.support.worker.works import NOW, account

TOPICS = Topics()
ALL = range(16)
QUIET_SECONDS = 30.0
SETTINGS = WorkerSettings(pause_seconds=0.0, sweep_seconds=0.0, push_seconds=QUIET_SECONDS)
IN_TIME_SECONDS = (DEADLINE - NOW).total_seconds() - 1.0


class _Accounts:
    """A directory of one account."""

    one: Account | None = account()

    async def key(self, token: str) -> None:
        raise AssertionError("a worker authenticates nobody")

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        return self.one if account_id == "acc" else None


class _Worker:
    """The parts of a worker that keep deadlines, and a store and a log for them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.clock = ManualClock(NOW)
        self.log = MemoryLog(self.clock)
        self.recorder = Recorder(engine)
        self.accounts = _Accounts()
        self.pushes = Pushes()
        self.dispatcher = Dispatcher(self.clock, self.pushes.run, max_held=1000)
        self.lease = Lease(self.recorder, self.clock, 7 * 24 * 3600.0)
        others = {"publisher": self.log, "signer": SIGNER, "topics": TOPICS}
        parts = parts_of(self.recorder, self.accounts, self.clock, SETTINGS, **others)
        self.publisher = OutboxPublisher(parts)
        outcomes = OutcomeRecorder(parts, self.publisher, self.lease, memory_vault())
        self.sure = True
        self._deadlines = DeadlineKeeper(parts, self.dispatcher, self.lease, outcomes, self._sure)

    async def _sure(self) -> bool:
        return self.sure

    async def end_expired(self, partitions: range = ALL) -> None:
        await self._deadlines.end_expired(partitions)
        await self.publisher.drain()

    async def due_later(self, *numbers: int, partition: int = 0, possibly_sent: bool = False) -> list[Work]:
        """Rows that were tried, and are due again long after their deadline."""
        later = DEADLINE + timedelta(days=1)
        works = await self.recorder.ingest(self.lease.worker_id, arrivals(numbers, partition=partition), now=NOW)
        tried = [postponed(work, due_at=later, possibly_sent=possibly_sent) for work in works]
        await self.recorder.record(self.lease.worker_id, [], tried)
        return list(works)

    async def statuses(self) -> list[str]:
        rows = (await Overview(self.engine).search(SubmissionQuery(["acc"]), limit=1000))[0]
        return sorted(summary.status.value for summary in rows)


@pytest.fixture
async def worker(data_dir: Path) -> AsyncIterator[_Worker]:
    engine = open_engine(data_dir / "store.sqlite3")
    worker = _Worker(engine)
    await worker.lease.renew()
    yield worker
    await engine.dispose()


async def test_what_was_not_made_by_its_deadline_failed_with_a_letter_and_an_event(worker: _Worker) -> None:
    (work,) = await worker.due_later(1)
    await worker.clock.advance(IN_TIME_SECONDS)
    await worker.end_expired()
    assert await worker.statuses() == ["PENDING"]
    await worker.clock.advance(1.0)
    await worker.end_expired()
    kept = await row(worker.engine, work.id)
    assert (kept["status"], kept["due_at"], kept["card"], kept["leased_by"]) == ("FAILED", None, None, None)
    (letter,) = worker.log.topics[TOPICS.dead_letters]
    (event,) = worker.log.topics[TOPICS.results]
    event_id = header(event.headers, "ce_id")
    assert event_id == f"{work.submission.request_id}.1"
    assert header(event.headers, "ce_type") == "reservation.failed.v1"
    assert header(letter.headers, EVENT_ID) == event_id
    await worker.end_expired()
    assert len(worker.log.topics[TOPICS.results]) == 1


async def test_nothing_ends_while_the_store_may_lack_its_outcome(worker: _Worker) -> None:
    await worker.due_later(1)
    await worker.clock.advance(IN_TIME_SECONDS + 1.0)
    worker.sure = False
    waiting = asyncio.create_task(worker.end_expired())
    await worker.clock.advance(SETTINGS.sweep_seconds)
    await waiting
    assert await worker.statuses() == ["PENDING"]
    worker.sure = True
    await worker.end_expired()
    assert await worker.statuses() == ["FAILED"]


async def test_why_it_failed_is_what_went_wrong_last(worker: _Worker) -> None:
    await worker.recorder.ingest(worker.lease.worker_id, [arrival(2, held=False)], now=NOW)
    await worker.due_later(1)
    await worker.clock.advance(IN_TIME_SECONDS + 1.0)
    await worker.end_expired()
    classes = {subject(each.headers): header(each.headers, FAILURE_CLASS) for each in _letters(worker)}
    tried, untried = (arrival(number).submission.request_id for number in (1, 2))
    assert classes == {tried: "other", untried: "expired"}


def _letters(worker: _Worker) -> list[Message]:
    return worker.log.topics[TOPICS.dead_letters]


@pytest.mark.parametrize("one", [replace(account(), paused=True), None])
async def test_no_account_keeps_it_waiting(worker: _Worker, one: Account | None) -> None:
    worker.accounts.one = one
    await worker.recorder.ingest(worker.lease.worker_id, [arrival(1, held=False)], now=NOW)
    await worker.clock.advance(IN_TIME_SECONDS + 1.0)
    await worker.end_expired()
    assert await worker.statuses() == ["FAILED"]


async def test_a_directory_that_is_away_keeps_nothing_waiting(worker: _Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_account_id: str) -> None:
        raise TenancyUnavailable("away")

    monkeypatch.setattr(worker.accounts, "account", away)
    await worker.recorder.ingest(worker.lease.worker_id, [arrival(1, held=False)], now=NOW)
    await worker.clock.advance(IN_TIME_SECONDS + 1.0)
    await worker.end_expired()
    assert await worker.statuses() == ["FAILED"]


async def test_what_may_have_been_made_is_in_doubt_and_looked_for(worker: _Worker) -> None:
    (work,) = await worker.due_later(1, possibly_sent=True)
    await worker.clock.advance(IN_TIME_SECONDS + 1.0)
    await worker.end_expired()
    kept = await row(worker.engine, work.id)
    assert (kept["status"], kept["possibly_sent"]) == ("IN_DOUBT", True)
    assert kept["due_at"] >= DEADLINE
    assert kept["card"] is not None
    assert _letters(worker) == []
    assert [header(each.headers, "ce_type") for each in worker.log.topics[TOPICS.results]] == [
        "reservation.in_doubt.v1"
    ]


async def test_what_waits_in_a_queue_is_ended_and_what_is_being_pushed_is_left_to_its_push(worker: _Worker) -> None:
    works = await worker.recorder.ingest(worker.lease.worker_id, arrivals([1, 2, 3]), now=NOW)
    worker.dispatcher.offer(account(concurrency=1), works)
    await settle()
    assert worker.pushes.started == [works[0].id]
    await worker.clock.advance(IN_TIME_SECONDS + 1.0)
    await worker.end_expired()
    assert await worker.statuses() == ["FAILED", "FAILED", "PENDING"]
    assert (await row(worker.engine, works[0].id))["leased_by"] == worker.lease.worker_id
    await worker.pushes.answer()
    assert worker.pushes.started == [works[0].id]
    assert worker.dispatcher.held == 0


async def test_what_waits_in_a_queue_before_its_deadline_goes_on_waiting(worker: _Worker) -> None:
    works = await worker.recorder.ingest(worker.lease.worker_id, arrivals([1, 2]), now=NOW)
    worker.dispatcher.offer(account(concurrency=1), works)
    await settle()
    await worker.clock.advance(IN_TIME_SECONDS)
    await worker.end_expired()
    await worker.pushes.answer()
    assert worker.pushes.started == [work.id for work in works]
    await worker.pushes.answer()


async def test_only_rows_of_ones_own_partitions_are_ended(worker: _Worker) -> None:
    await worker.due_later(1, partition=1)
    await worker.due_later(2, partition=2)
    await worker.clock.advance(IN_TIME_SECONDS + 1.0)
    await worker.end_expired(range(2, 3))
    assert await worker.statuses() == ["FAILED", "PENDING"]


async def test_of_very_many_a_batch_is_ended_at_a_time_without_a_pause(worker: _Worker) -> None:
    await worker.due_later(*range(1, 601))
    await worker.clock.advance(IN_TIME_SECONDS + 1.0)
    before = worker.clock.monotonic()
    for ended in (250, 500, 600):
        await worker.end_expired()
        assert (await worker.statuses()).count(Status.FAILED) == ended
    assert worker.clock.monotonic() == before
    ids = [header(each.headers, EVENT_ID) for each in _letters(worker)]
    assert len(set(ids)) == 600

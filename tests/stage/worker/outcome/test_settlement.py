"""What is handed in to be recorded is told of once, whatever becomes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest
from structlog.testing import capture_logs

from forwarder.operations.dead_letter_messages import DeadLetterWriter
from forwarder.store.submissions.port import Recorder
from forwarder.store.submissions.work import Ended, OutboxEvent, Postponed
from forwarder.topics.port import Topics
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.outbox_publisher import OutboxPublisher
from forwarder.worker.outcome.recorder import DecidedOutcome, OutcomeRecorder
from forwarder.worker.settings import WorkerSettings
from tests.support.memory.clock import ManualClock
from tests.support.memory.log import MemoryLog
from tests.support.worker.works import NOW, work


class _Store:
    """Records whatever it is given; where `bug` is set, raises it."""

    def __init__(self) -> None:
        self.recorded: list[int] = []
        self.bug: Exception | None = None

    async def record(
        self, _worker_id: str, _finals: Sequence[Ended], postponed: Sequence[Postponed]
    ) -> Mapping[int, OutboxEvent]:
        if self.bug is not None:
            raise self.bug
        self.recorded += [each.work_id for each in postponed]
        return {}


class _Site:
    def __init__(self) -> None:
        clock, topics, self.store = ManualClock(), Topics(), _Store()
        recorder, settings = cast("Recorder", self.store), WorkerSettings(pause_seconds=0.0)
        self.lease = Lease(recorder, clock, 30.0)
        announcer = OutboxPublisher(recorder, MemoryLog(clock), topics, clock, settings)
        letters = DeadLetterWriter(topics, "workers")
        self.settlement = OutcomeRecorder(recorder, announcer, letters, self.lease, clock, settings)
        self.told: list[tuple[int, bool]] = []

    def settled(self, number: int, *, held_by: str | None = None) -> DecidedOutcome:
        row = replace(work(number), leased_by=self.lease.worker_id if held_by is None else held_by)
        later = Postponed(row.id, (), NOW, NOW, possibly_sent=False)
        return DecidedOutcome(row, "generic", later, lambda recorded: self.told.append((number, recorded)))


async def test_each_is_told_whether_it_was_recorded() -> None:
    site = _Site()
    for settled in (site.settled(1), site.settled(2, held_by="before")):
        site.settlement.hand_in(settled)
    assert site.told == []
    await site.settlement.drain()
    assert site.told == [(1, True), (2, False)]
    assert site.store.recorded == [1]


async def test_who_waits_learns_the_same() -> None:
    site = _Site()
    assert await site.settlement.record(site.settled(1))
    assert not await site.settlement.record(site.settled(2, held_by="before"))


async def test_a_bug_is_told_logged_and_raised_to_who_waits() -> None:
    site = _Site()
    site.store.bug = RuntimeError("a bug")
    with capture_logs() as logs:
        site.settlement.hand_in(site.settled(1))
        with pytest.raises(RuntimeError):
            await site.settlement.record(site.settled(2))
    assert site.told == [(1, False), (2, False)]
    assert [entry["event"] for entry in logs] == ["settlement.failed"]
    site.store.bug = None
    assert await site.settlement.record(site.settled(3))

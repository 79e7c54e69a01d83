"""A cancellation that another worker ingests than the one that has the row: it is passed on, once, and stops what was not sent."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import CancellationRequest
from forwarder.store.submissions.recorder import Recorder
from forwarder.topics.codec import decode_cancellation, encode_cancellation
from forwarder.topics.port import ConsumedMessage, Message, Topics
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.intake import Intake
from forwarder.worker.lease import Lease
from forwarder.worker.parts import WorkerParts, WorkerSettings
from forwarder.worker.push.run import NOT_ATTEMPTED, HealthSignal, PushContext
from tests.support.memory.clock import ManualClock
from tests.support.store.stored import arrival
from tests.support.worker.worker_bench import Accounts
from tests.support.worker.works import NOW, submission


@dataclass
class _Log:
    published: list[Message] = field(default_factory=list)

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        assert topic == Topics().requests
        self.published += messages


@dataclass
class _Parts:
    recorder: Recorder
    publisher: _Log
    directory: Accounts = field(default_factory=Accounts)
    topics: Topics = field(default_factory=Topics)
    clock: ManualClock = field(default_factory=ManualClock)
    settings: WorkerSettings = field(default_factory=WorkerSettings)


class _Worker:
    """One that has `partition`, and whose PMS never answers."""

    def __init__(self, engine: AsyncEngine, partition: int) -> None:
        self.parts = _Parts(Recorder(engine), _Log())
        self.partition = partition
        self.pushing: list[PushContext] = []
        self.dispatcher = Dispatcher(self.parts.clock, self._push, max_held=100)
        self.dispatcher.partitions = frozenset({partition})
        self.lease = Lease(self.parts.recorder, self.parts.clock, 30.0)
        self.intake = Intake(cast("WorkerParts", self.parts), self.dispatcher, self.lease, *cast("Any", (None,) * 3))

    async def _push(self, pushes: Sequence[PushContext]) -> HealthSignal:
        self.pushing += pushes
        return NOT_ATTEMPTED

    async def ingest(self, number: int) -> None:
        works = await self.lease.claim(
            lambda worker: self.parts.recorder.ingest(worker, [arrival(number, partition=self.partition)], now=NOW)
        )
        self.dispatcher.offer(self.parts.directory.one, works)

    async def cancel(self, message: Message) -> None:
        consumed = ConsumedMessage(Topics().requests, self.partition, 0, 0, message)
        await self.intake.ingest_cancellations([(consumed, decode_cancellation(message))])


@pytest.fixture
async def workers(engine: AsyncEngine) -> AsyncIterator[tuple[_Worker, _Worker]]:
    both = _Worker(engine, 0), _Worker(engine, 1)
    for each in both:
        await each.lease.renew()
    yield both
    for each in both:
        await each.dispatcher.stop(0.0)


def _message(number: int, **fields: Any) -> Message:
    request_id = submission(number).request_id
    return encode_cancellation(replace(CancellationRequest(request_id, "acc", f"acc:{request_id}", NOW), **fields))


async def test_it_is_passed_on_to_the_worker_that_has_the_row_and_no_further(workers: tuple[_Worker, _Worker]) -> None:
    holder, other = workers
    await holder.ingest(1)
    await other.cancel(_message(1))
    (passed_on,) = other.parts.publisher.published
    assert (passed_on.partition, passed_on.value) == (0, _message(1).value)
    await holder.cancel(passed_on)
    await other.cancel(passed_on)  # wherever it leads
    assert (holder.parts.publisher.published, other.parts.publisher.published) == ([], [passed_on])


async def test_what_was_started_and_not_sent_is_not_sent_any_more(workers: tuple[_Worker, _Worker]) -> None:
    holder, _ = workers
    await holder.ingest(1)
    while not holder.pushing:
        await holder.parts.clock.advance(0)
    work = holder.pushing[0].work
    assert not holder.dispatcher.is_cancelled(work)
    await holder.cancel(_message(1))
    assert holder.dispatcher.is_cancelled(work)
    assert holder.parts.publisher.published == []


async def test_what_nobody_has_is_not_passed_on(workers: tuple[_Worker, _Worker]) -> None:
    _, other = workers
    await other.cancel(_message(7))
    assert other.parts.publisher.published == []

"""How events get from the outbox to the results topic: in their turn, and then out of the outbox, many by one statement."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from forwarder.observability.metrics import registry
from forwarder.process.clock import Clock, SystemClock
from forwarder.reservation import problems as catalogue
from forwarder.reservation.outcome import FAILURE_CLASS
from forwarder.reservation.record import ResultEvent
from forwarder.store.engine import Engine, open_engine
from forwarder.store.submissions.port import DeadLetter, OutboxEvent
from forwarder.store.submissions.recorder import Recorder
from forwarder.topics.port import MAX_MESSAGE_BYTES, Topics
from forwarder.worker.outcome.recorder import OutboxPublisher
from forwarder.worker.parts import WorkerSettings
from tests.support.log.signers import SIGNER
from tests.support.memory.clock import ManualClock
from tests.support.memory.log import MemoryLog
from tests.support.store.stored import arrivals, final, lease, unpublished
from tests.support.worker.queue_site import parts_of
from tests.support.worker.works import NOW

RESULTS = Topics().results


class _Slow(Recorder):
    """Deletes events once it may, and notes how many it was told of at a time."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.may_delete = asyncio.Event()
        self.told: list[int] = []

    async def published(self, outbox_ids: Collection[int]) -> None:
        self.told.append(len(outbox_ids))
        await self.may_delete.wait()
        await super().published(outbox_ids)


@pytest.fixture
async def recorder(data_dir: Path) -> AsyncIterator[_Slow]:
    engine = open_engine(data_dir / "store.sqlite3")
    recorder = _Slow(engine)
    await lease(recorder, "w1")
    yield recorder
    await engine.dispose()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(SystemClock())


def publisher_of(
    recorder: Recorder, log: MemoryLog, public_url: str = "", clock: Clock | None = None
) -> OutboxPublisher:
    settings = WorkerSettings(public_url=public_url)
    ports = {"publisher": log, "signer": SIGNER, "topics": Topics()}
    return OutboxPublisher(parts_of(recorder, cast("Any", None), clock or SystemClock(), settings, **ports))


async def recorded(recorder: Recorder, count: int) -> list[OutboxEvent]:
    works = await recorder.ingest("w1", arrivals(range(1, count + 1)), now=NOW)
    return list((await recorder.record("w1", [final(work) for work in works], [])).values())


def after(entry: OutboxEvent) -> OutboxEvent:
    """The next event of the same submission, recorded while that one was still in the outbox."""
    event: ResultEvent = replace(entry.event, revision=entry.event.revision + 1)
    return OutboxEvent(entry.id + 1000, event)


def too_large(entry: OutboxEvent, faults: int = 0) -> OutboxEvent:
    """The log takes it never."""
    data = {**entry.event.data, "reservation": {"notes": "n" * MAX_MESSAGE_BYTES}}
    return OutboxEvent(entry.id, replace(entry.event, data=data), faults=faults)


def ids(log: MemoryLog) -> list[str]:
    return [dict(message.headers)["ce_id"].decode() for message in log.topics[RESULTS]]


async def test_what_is_published_while_others_are_deleted_is_deleted_together(recorder: _Slow, log: MemoryLog) -> None:
    entries = await recorded(recorder, 9)
    publishing = publisher_of(recorder, log)
    for entry in entries:
        publishing.publish_soon([entry])
        await log.holds(RESULTS, len(ids(log)) + 1)
    recorder.may_delete.set()
    await publishing.drain()
    assert ids(log) == [entry.event.event_id for entry in entries]
    assert sum(recorder.told) == len(entries)
    assert len(recorder.told) == 2  # the first alone, and all that came while that was under way
    assert await unpublished(recorder) == []


@pytest.mark.parametrize("public_url", ["", "https://book.example"])
async def test_links_of_problems_begin_with_the_public_url(recorder: _Slow, log: MemoryLog, public_url: str) -> None:
    (entry,) = await recorded(recorder, 1)
    problem = catalogue.ROOM_UNAVAILABLE.problem("Taken.").as_json()
    event = replace(entry.event, data={**entry.event.data, "reservation": {"problem": problem}})
    publishing = publisher_of(recorder, log, public_url)
    publishing.publish_soon([OutboxEvent(entry.id, event)])
    await log.holds(RESULTS, 1)
    published = json.loads(log.topics[RESULTS][0].value)["reservation"]["problem"]
    assert published == {**problem, "type": f"{public_url}/problems/room_unavailable"}
    recorder.may_delete.set()
    await publishing.drain()


async def test_a_later_event_follows_the_one_before_it_though_that_is_in_the_outbox_still(
    recorder: _Slow, log: MemoryLog
) -> None:
    (entry,) = await recorded(recorder, 1)
    publishing = publisher_of(recorder, log)
    publishing.publish_soon([entry])
    await log.holds(RESULTS, 1)
    publishing.publish_soon([after(entry), after(after(entry))])
    await log.holds(RESULTS, 2)
    assert ids(log) == [entry.event.event_id, after(entry).event.event_id]
    recorder.may_delete.set()
    await publishing.drain()


async def test_a_later_event_waits_where_it_is_not_known_what_became_of_the_one_before(
    recorder: _Slow, log: MemoryLog
) -> None:
    (entry,) = await recorded(recorder, 1)
    log.away = True
    recorder.may_delete.set()
    publishing = publisher_of(recorder, log)
    publishing.publish_soon([entry])
    await log.attempted(1)
    log.away = False
    publishing.publish_soon([after(entry)])
    await publishing.drain()
    assert ids(log) == []
    assert [each.id for each in await unpublished(recorder)] == [entry.id]


@pytest.mark.parametrize(("faults", "seconds"), [(0, 12), (1, 24), (2, 48), (30, 3600)])
async def test_an_event_that_cannot_be_published_rests_longer_each_time(
    recorder: _Slow, log: MemoryLog, faults: int, seconds: int
) -> None:
    (entry,) = await recorded(recorder, 1)
    publishing = publisher_of(recorder, log, clock=ManualClock(NOW))
    publishing.publish_soon([too_large(entry, faults)])
    await publishing.drain()
    until = NOW + timedelta(seconds=seconds)
    assert await unpublished(recorder, before=until) == []
    assert [each.id for each in await unpublished(recorder, before=until + timedelta(milliseconds=1))] == [entry.id]


async def test_only_so_many_events_are_kept_in_memory_and_those_set_aside_do_not_count(
    recorder: _Slow, log: MemoryLog
) -> None:
    (entry,) = await recorded(recorder, 1)
    recorder.may_delete.set()
    publishing = publisher_of(recorder, log)
    publishing.publish_soon([too_large(entry)])
    await publishing.drain()
    for _ in range(2):
        publishing.publish_soon([entry] * 20_001)
        await publishing.drain()
    assert len(log.topics[RESULTS]) == 2 * 20_000


class _Noting(ManualClock):
    """Notes for how long is slept."""

    def __init__(self) -> None:
        super().__init__(NOW + timedelta(hours=1))
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_the_outbox_is_read_twice_in_the_time_after_which_an_event_counts_as_left_behind(
    recorder: _Slow, log: MemoryLog
) -> None:
    (entry,) = await recorded(recorder, 1)
    recorder.may_delete.set()
    clock = _Noting()
    await publisher_of(recorder, log, clock=clock).republish()
    assert clock.slept == [WorkerSettings().republish_seconds / 2]
    assert ids(log) == [entry.event.event_id]
    assert await unpublished(recorder) == []


async def test_dead_letters_are_published_with_their_events_and_counted_by_class(
    recorder: _Slow, log: MemoryLog
) -> None:
    def counted() -> float:
        return registry().get_sample_value("forwarder_dead_letters_total", {"class": "unavailable"}) or 0.0

    entries = await recorded(recorder, 3)
    letter = DeadLetter("key", "{}", {FAILURE_CLASS: "unavailable"})
    recorder.may_delete.set()
    publishing, before = publisher_of(recorder, log), counted()
    publishing.publish_soon([*(OutboxEvent(each.id, each.event, letter) for each in entries[:2]), entries[2]])
    await publishing.drain()
    assert (len(log.topics[Topics().dead_letters]), len(ids(log)), counted() - before) == (2, 3, 2.0)

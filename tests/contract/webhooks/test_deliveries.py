"""Deliveries of webhooks, on every backend: queued once, claimed by one, kept until they end, read by their endpoint."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import iso
from forwarder.store.deliveries import (
    DeliveryAttempt,
    DeliveryEntry,
    DeliveryStatus,
    DueDelivery,
    NewDelivery,
    TriedDelivery,
)
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.deployment import BacklogReader
from forwarder.store.engine import open_engine
from forwarder.store.lists.port import EndpointWork
from forwarder.store.retention import GuestStore
from forwarder.store.submissions.port import StoreUnavailable
from tests.support.store.stored import NOBODY_LISTENS
from tests.support.worker.works import NOW

UNTIL = NOW + timedelta(seconds=30)
LATER = NOW + timedelta(minutes=5)


@pytest.fixture
def queue(engine: AsyncEngine) -> Deliveries:
    return Deliveries(engine)


@pytest.fixture
def log(engine: AsyncEngine) -> Deliveries:
    return Deliveries(engine)


@pytest.fixture
async def other(migrated_url: str) -> AsyncIterator[Deliveries]:
    """The queue as another process has it."""
    opened = open_engine(migrated_url)
    yield Deliveries(opened)
    await opened.dispose()


def new(number: int, endpoint: str = "whk_1") -> NewDelivery:
    return NewDelivery(endpoint, f"event-{number}", "reservation.confirmed.v1", f'{{"number":{number},"é":"\\u0000"}}')


async def claimed(queue: Deliveries, endpoint: str = "whk_1", limit: int = 10) -> list[DueDelivery]:
    return list(await queue.claim(endpoint, now=NOW, until=UNTIL, limit=limit))


def tried(
    delivery: DueDelivery, status: DeliveryStatus = DeliveryStatus.DELIVERED, *, answer: int = 200, number: int = 1
) -> TriedDelivery:
    attempt = DeliveryAttempt(iso(NOW), number, status=answer)
    return TriedDelivery(delivery, status, attempt, NOW, LATER if status is DeliveryStatus.PENDING else None)


async def entries(log: Deliveries, endpoint: str = "whk_1") -> list[DeliveryEntry]:
    return list(await log.entries(endpoint, status=None, before=None, limit=100))


async def test_an_event_is_queued_once_for_each_endpoint(queue: Deliveries, log: Deliveries) -> None:
    await queue.queue([new(1), new(1), new(1, "whk_2")], now=NOW)
    await queue.queue([new(2), new(1)], now=LATER)
    await queue.queue([], now=NOW)
    assert [(one.event_id, one.created_at) for one in await entries(log)] == [("event-2", LATER), ("event-1", NOW)]
    assert [one.event_id for one in await entries(log, "whk_2")] == ["event-1"]
    assert sorted(await queue.endpoints_due(now=LATER)) == ["whk_1", "whk_2"]


async def test_what_is_posted_is_what_was_queued(queue: Deliveries) -> None:
    await queue.queue([replace(new(1), trace="of who asked")], now=NOW)
    (delivery,) = await claimed(queue)
    assert delivery.trace == "of who asked"
    assert (delivery.body, delivery.type, delivery.retrying_since) == (new(1).body, new(1).type, NOW)


async def test_a_claim_is_one_process_s_until_it_runs_out(queue: Deliveries, other: Deliveries) -> None:
    await queue.queue([new(number) for number in range(20)], now=NOW)
    ours, theirs = await asyncio.gather(claimed(queue), claimed(other))
    assert len({one.id for one in (*ours, *theirs)}) == 20
    assert await queue.endpoints_due(now=NOW) == []
    again = await other.claim("whk_1", now=UNTIL, until=LATER, limit=100)
    assert {one.id for one in again} == {one.id for one in (*ours, *theirs)}


async def test_what_is_due_for_the_longest_comes_first(queue: Deliveries) -> None:
    await queue.queue([new(2)], now=NOW - timedelta(seconds=1))
    await queue.queue([new(1)], now=NOW - timedelta(seconds=2))
    assert [one.event_id for one in await claimed(queue, limit=1)] == ["event-1"]
    assert [one.event_id for one in await claimed(queue)] == ["event-2"]


async def test_a_delivery_that_was_made_is_due_no_more(queue: Deliveries, log: Deliveries) -> None:
    await queue.queue([new(1)], now=NOW)
    (delivery,) = await claimed(queue)
    await queue.record([tried(delivery)])
    (entry,) = await entries(log)
    assert (entry.status, entry.due_at, entry.ended_at, entry.tries) == (DeliveryStatus.DELIVERED, None, NOW, 1)
    assert entry.attempts == (DeliveryAttempt(iso(NOW), 1, status=200),)
    assert await queue.endpoints_due(now=LATER) == []
    assert await queue.delivered_since("whk_1", NOW)
    assert not await queue.delivered_since("whk_1", LATER)


async def test_one_that_failed_is_due_again_with_what_was_tried(queue: Deliveries, log: Deliveries) -> None:
    await queue.queue([new(1)], now=NOW)
    for number in range(25):
        now = LATER if number else NOW
        (delivery,) = await queue.claim("whk_1", now=now, until=LATER, limit=1)
        await queue.record([tried(delivery, DeliveryStatus.PENDING, answer=500, number=number)])
    (entry,) = await entries(log)
    assert (entry.status, entry.due_at, entry.tries) == (DeliveryStatus.PENDING, LATER, 25)
    assert [attempt.ms for attempt in entry.attempts] == list(range(5, 25))
    assert await queue.endpoints_due(now=NOW) == []
    assert await queue.endpoints_due(now=LATER) == ["whk_1"]


async def test_from_when_on_it_is_tried_is_kept(queue: Deliveries) -> None:
    await queue.queue([new(1)], now=NOW)
    (delivery,) = await claimed(queue)
    await queue.record([tried(replace(delivery, retrying_since=LATER), DeliveryStatus.PENDING)])
    (again,) = await queue.claim("whk_1", now=LATER, until=LATER, limit=1)
    assert (again.retrying_since, again.tries) == (LATER, 1)


async def test_what_was_claimed_again_is_not_recorded_by_the_first(queue: Deliveries, log: Deliveries) -> None:
    await queue.queue([new(1)], now=NOW)
    (first,) = await claimed(queue)
    (second,) = await queue.claim("whk_1", now=UNTIL, until=LATER, limit=1)
    await queue.record([tried(first, DeliveryStatus.FAILED)])
    await queue.release([first], now=NOW)
    assert [(one.status, one.due_at) for one in await entries(log)] == [(DeliveryStatus.PENDING, LATER)]
    await queue.record([tried(second)])
    assert [one.status for one in await entries(log)] == [DeliveryStatus.DELIVERED]


async def test_what_was_given_back_is_due_at_once(queue: Deliveries) -> None:
    await queue.queue([new(1)], now=NOW)
    await queue.release(await claimed(queue), now=NOW)
    assert await queue.endpoints_due(now=NOW) == ["whk_1"]
    await queue.release([], now=NOW)


async def test_a_stopped_endpoint_s_deliveries_end(queue: Deliveries, log: Deliveries) -> None:
    await queue.queue([new(1), new(2), new(3), new(1, "whk_2")], now=NOW)
    delivered, failed, _ = await claimed(queue)
    assert await queue.stop("whk_1", now=LATER) == 3
    assert await log.stop("whk_1", now=LATER) == 0
    await queue.record([tried(delivered), tried(failed, DeliveryStatus.PENDING)])
    standing = {one.event_id: (one.status, one.due_at) for one in await entries(log)}
    assert standing == {
        "event-1": (DeliveryStatus.DELIVERED, None),
        "event-2": (DeliveryStatus.STOPPED, None),
        "event-3": (DeliveryStatus.STOPPED, None),
    }
    assert await queue.endpoints_due(now=LATER) == ["whk_2"]


async def test_what_stands_is_what_is_to_come(queue: Deliveries, engine: AsyncEngine) -> None:
    standing = BacklogReader(engine)
    assert list(await standing.endpoints()) == []
    await queue.queue([new(1), new(2)], now=NOW)
    (delivery,) = await claimed(queue, limit=1)
    await queue.record([tried(delivery)])
    assert list(await standing.endpoints()) == [EndpointWork("whk_1", 1, NOW)]


async def forgotten(engine: AsyncEngine, before: datetime) -> int:
    """How many deliveries that ended before then are deleted, two at a time."""
    guests, count, after = GuestStore(engine), 0, 0
    while True:
        last, deleted = await guests.delete_deliveries("whk_1", ended_before=before, after=after, limit=2)
        count += deleted
        if last is None:
            return count
        after = last


async def test_what_ended_is_forgotten(queue: Deliveries, log: Deliveries, engine: AsyncEngine) -> None:
    await queue.queue([new(1), new(2), new(3)], now=NOW)
    await queue.stop("whk_1", now=NOW)
    await queue.queue([new(4)], now=LATER)
    await queue.stop("whk_1", now=LATER)
    assert await forgotten(engine, NOW) == 0
    assert await forgotten(engine, LATER) == 3
    assert [one.event_id for one in await entries(log)] == ["event-4"]


async def test_what_is_pending_is_not_forgotten_however_old_it_is(
    queue: Deliveries, log: Deliveries, engine: AsyncEngine
) -> None:
    await queue.queue([new(1), new(2), new(3)], now=NOW)
    _, resent, _ = failed = await claimed(queue)
    await queue.record([tried(one, DeliveryStatus.FAILED) for one in failed])
    await log.put_back("whk_1", [resent.id], now=LATER)
    assert await log.put_back_ended("whk_1", since=NOW, now=LATER) == 2
    month = LATER + timedelta(days=30)
    assert await forgotten(engine, month) == 0
    assert [one.status for one in await entries(log)] == [DeliveryStatus.PENDING] * 3
    (delivery, *_) = await queue.claim("whk_1", now=month, until=month, limit=10)
    await queue.record([tried(delivery)])
    assert await forgotten(engine, month) == 1


async def test_what_ended_late_is_kept_from_then_on(queue: Deliveries, engine: AsyncEngine) -> None:
    await queue.queue([new(1)], now=NOW)
    await queue.stop("whk_1", now=LATER)
    assert await forgotten(engine, LATER) == 0
    assert await forgotten(engine, LATER + timedelta(milliseconds=1)) == 1


async def test_what_is_kept_is_in_nobody_s_way(queue: Deliveries, log: Deliveries, engine: AsyncEngine) -> None:
    """However many of the endpoint's oldest are still to be delivered."""
    ids = await queue.queue([new(number) for number in range(10)], now=NOW)
    await queue.stop("whk_1", now=NOW)
    await log.put_back("whk_1", ids[:5], now=LATER)
    assert await forgotten(engine, LATER) == 5
    assert len(await entries(log)) == 5


async def test_the_log_is_read_in_pages_and_by_status(queue: Deliveries, log: Deliveries) -> None:
    await queue.queue([new(number) for number in range(5)], now=NOW)
    (delivery,) = await claimed(queue, limit=1)
    await queue.record([tried(delivery)])
    first = await log.entries("whk_1", status=None, before=None, limit=2)
    second = await log.entries("whk_1", status=None, before=first[-1].id, limit=10)
    assert [one.event_id for one in (*first, *second)] == [f"event-{number}" for number in (4, 3, 2, 1, 0)]
    found = await log.entries("whk_1", status=DeliveryStatus.DELIVERED, before=None, limit=10)
    assert [one.id for one in found] == [delivery.id]
    assert await log.entries("whk_1", status=None, before=None, limit=10, tried=True) == found
    assert await log.entry("whk_1", delivery.id) == found[0]
    assert await log.entry("whk_2", delivery.id) is None


async def test_what_is_put_back_begins_anew(queue: Deliveries, log: Deliveries) -> None:
    await queue.queue([new(1), new(2)], now=NOW)
    first, second = await claimed(queue)
    await queue.record([tried(first, DeliveryStatus.FAILED, answer=500)])
    assert await log.put_back("whk_1", [first.id, second.id], now=LATER) == 2
    assert await log.put_back("whk_2", [first.id], now=LATER) == 0
    await queue.record([tried(second, DeliveryStatus.FAILED)])
    again = {one.id: one for one in await queue.claim("whk_1", now=LATER, until=LATER, limit=10)}
    assert set(again) == {first.id, second.id}
    assert (again[first.id].tries, again[first.id].retrying_since, len(again[first.id].attempts)) == (0, LATER, 1)


async def test_all_that_ended_undelivered_can_be_put_back(queue: Deliveries, log: Deliveries) -> None:
    await queue.queue([new(1)], now=NOW - timedelta(days=1))
    await queue.queue([new(2), new(3), new(4)], now=NOW)
    old, failed, delivered, _stopped = await claimed(queue)
    await queue.record([tried(old, DeliveryStatus.FAILED), tried(failed, DeliveryStatus.FAILED), tried(delivered)])
    await queue.stop("whk_1", now=NOW)
    assert await log.put_back_ended("whk_1", since=NOW, now=LATER) == 2
    assert {one.event_id for one in await entries(log) if one.due_at} == {"event-2", "event-4"}


async def test_one_that_no_event_brought_is_due_at_once(queue: Deliveries, log: Deliveries) -> None:
    [delivery_id] = await log.queue([new(7)], now=NOW)
    assert [one.id for one in await claimed(queue)] == [delivery_id]


async def test_a_database_that_is_away_is_an_outage() -> None:
    away = open_engine(NOBODY_LISTENS)
    try:
        with pytest.raises(StoreUnavailable):
            await Deliveries(away).queue([new(1)], now=NOW)
        with pytest.raises(StoreUnavailable):
            await Deliveries(away).entry("whk_1", 1)
    finally:
        await away.dispose()

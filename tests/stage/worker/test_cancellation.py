"""Cancellations through a whole worker: from the topic to record and event, in order after what they cancel."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic_core import from_json

from forwarder.reservation.outcome import CancellationStatus, Cancelled, Deferred, Rejected, Status
from forwarder.reservation.problems import Problem
from forwarder.store.lists.port import StoredSubmission
from forwarder.topics.codec import decode_data, header
from forwarder.topics.port import Message
from tests.support.worker.worker_bench import PATIENCE_SECONDS, TOPICS, Bench, cancellation, fresh, open_bench

NO = Rejected(Problem("cancellation_refused", "Too late", 409, "The guest has arrived."))
REFERENCE = fresh(1).request_id


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(data_dir) as opened:
        yield opened


async def told(bench: Bench, count: int) -> list[tuple[str | None, str | None]]:
    """The first different events: ids and types. On a slow machine one may be published twice."""
    events: list[tuple[str | None, str | None]] = []
    read = count
    while len(events) < count:
        messages = [event.message for event in await bench.read(TOPICS.results, read)]
        events = list(dict.fromkeys((header(m.headers, "ce_id"), header(m.headers, "ce_type")) for m in messages))
        read += 1
    return events


async def standing(bench: Bench, wanted: CancellationStatus, *, revision: int = 0) -> StoredSubmission:
    """The first submission, once its cancellation stands so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            stored = await bench.stored()
            asked = stored.cancellation
            if asked is not None and asked.status is wanted and stored.revision >= revision:
                return stored
            await asyncio.sleep(0.01)


async def test_what_was_made_is_cancelled_and_told_in_order(bench: Bench) -> None:
    await bench.submit(fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        await bench.cancel(cancellation(revision=1))
        await bench.rows("CANCELLED", 1)
        events = await told(bench, 2)
    assert events == [
        (f"{REFERENCE}.1", "reservation.confirmed.v1"),
        (f"{REFERENCE}.2", "reservation.cancelled.v1"),
    ]
    assert (bench.pms.asked, bench.pms.to_cancel) == ([REFERENCE], [f"pms-{REFERENCE}"])
    stored = await bench.stored()
    record = from_json(stored.record)
    assert (record["status"], record["pmsReservationId"]) == ("CANCELLED", f"pms-{REFERENCE}")
    assert record["cancelledAt"] == record["updatedAt"] == stored.updated_at
    assert [attempt.action for attempt in stored.attempts] == ["create", "cancel"]


@pytest.mark.parametrize("key", [None, f"acc:{REFERENCE}"])
async def test_what_waits_to_be_sent_is_not_sent_whatever_way_its_cancellation_comes(
    bench: Bench, key: str | None
) -> None:
    """Before it, behind it in its partition, or in another one; and though its account is paused."""
    bench.accounts.one = replace(bench.accounts.one, paused=True)
    await bench.cancel(cancellation(key=key))
    await bench.submit(fresh(1), fresh(2))
    await bench.cancel(cancellation(2))
    async with bench.worker():
        await bench.rows("CANCELLED", 2)
        events = await told(bench, 2)
    assert {kind for _, kind in events} == {"reservation.cancelled.v1"}
    assert (bench.pms.asked, bench.pms.to_cancel) == ([], [])


async def test_what_waits_in_a_queue_is_not_sent(bench: Bench) -> None:
    bench.accounts.one = replace(bench.accounts.one, concurrency=1)
    bench.pms.answering.clear()
    await bench.submit(fresh(1), fresh(2))
    async with bench.worker():
        await _asked(bench, 1)
        waiting = 2 if bench.pms.asked == [REFERENCE] else 1
        await bench.cancel(cancellation(waiting))
        await bench.rows("CANCELLED", 1)
        bench.pms.answering.set()
        await bench.rows("CONFIRMED", 1)
    assert len(bench.pms.asked) == 1
    assert (await bench.stored(waiting)).status is Status.CANCELLED


async def test_a_push_under_way_is_cancelled_when_it_is_through(bench: Bench) -> None:
    bench.pms.answering.clear()
    await bench.submit(fresh(1))
    async with bench.worker():
        await _asked(bench, 1)
        await bench.cancel(cancellation())
        await standing(bench, CancellationStatus.REQUESTED)
        assert bench.pms.to_cancel == []
        bench.pms.answering.set()
        await bench.rows("CANCELLED", 1)
        events = await told(bench, 2)
    assert [kind for _, kind in events] == ["reservation.confirmed.v1", "reservation.cancelled.v1"]
    assert (len(bench.pms.asked), len(bench.pms.to_cancel)) == (1, 1)


async def test_a_push_under_way_that_is_put_off_is_not_made_again(bench: Bench) -> None:
    bench.pms.answering.clear()
    bench.pms.putting_off = True
    await bench.submit(fresh(1))
    async with bench.worker():
        await _asked(bench, 1)
        await bench.cancel(cancellation())
        await standing(bench, CancellationStatus.REQUESTED)
        bench.pms.answering.set()
        await bench.rows("CANCELLED", 1)
    assert (len(bench.pms.asked), bench.pms.to_cancel) == (1, [])


async def _asked(bench: Bench, count: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(bench.pms.asked) < count:
            await asyncio.sleep(0.01)


async def test_a_refusal_is_told_and_may_be_asked_about_again(bench: Bench) -> None:
    bench.pms.cancels = NO
    await bench.submit(fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        await bench.cancel(cancellation(revision=1))
        refused = await standing(bench, CancellationStatus.REFUSED)
        assert (refused.status, refused.revision) == (Status.CONFIRMED, 2)
        assert refused.cancellation is not None
        assert refused.cancellation.problem is not None
        assert refused.cancellation.problem["code"] == "cancellation_refused"
        await bench.cancel(cancellation(revision=1))  # delivered again
        await bench.cancel(cancellation(revision=2))
        again = await standing(bench, CancellationStatus.REFUSED, revision=3)
        bench.pms.cancels = Cancelled()
        await bench.cancel(cancellation(revision=again.revision))
        await bench.rows("CANCELLED", 1)
        events = await told(bench, 4)
    assert [kind for _, kind in events] == [
        "reservation.confirmed.v1",
        "reservation.cancellation_refused.v1",
        "reservation.cancellation_refused.v1",
        "reservation.cancelled.v1",
    ]
    assert len(bench.pms.to_cancel) == 3


async def test_what_cannot_be_carried_out_in_time_is_told_and_stays_confirmed(bench: Bench) -> None:
    bench.pms.cancels = Deferred("pms_unavailable", "Down.")
    await bench.submit(fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)  # for which a second may be too short
        bench.accounts.one = replace(bench.accounts.one, deadline_seconds=1)
        await bench.cancel(cancellation(revision=1))
        failed = await standing(bench, CancellationStatus.FAILED)
        (_, event) = await bench.read(TOPICS.results, 2)
    assert failed.status is Status.CONFIRMED
    assert header(event.message.headers, "ce_type") == "reservation.cancellation_failed.v1"
    data = decode_data(event.message)
    assert (data["status"], data["reservation"]["status"]) == ("CONFIRMED", "CONFIRMED")
    assert data["cancellation"]["problem"]["code"] == "cancellation_failed"


async def test_a_paused_account_keeps_no_cancellation_waiting_past_its_deadline(bench: Bench) -> None:
    await bench.submit(fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        bench.accounts.one = replace(bench.accounts.one, paused=True, deadline_seconds=1)
        await bench.cancel(cancellation(revision=1))
        await standing(bench, CancellationStatus.FAILED)
    assert bench.pms.to_cancel == []


async def test_everything_delivered_again_neither_revives_nor_cancels_again(bench: Bench) -> None:
    await bench.submit(fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        await bench.cancel(cancellation(revision=1))
        await bench.rows("CANCELLED", 1)
        await bench.submit(fresh(1))
        await bench.cancel(cancellation(), cancellation(revision=1), cancellation(revision=2))
        await bench.submit(fresh(2))
        await bench.rows("CONFIRMED", 1)
    assert (await bench.stored()).status is Status.CANCELLED
    assert (bench.pms.asked.count(REFERENCE), len(bench.pms.to_cancel)) == (1, 1)


@pytest.mark.parametrize("value", [b"{}", b"[]", b"\xff", b'{"requestId": 5}'])
async def test_one_that_cannot_be_read_is_set_aside_and_stops_nothing(bench: Bench, value: bytes) -> None:
    about = (("ce_type", b"reservation.cancellation_requested.v1"),)
    await bench.publisher.publish(TOPICS.requests, [Message(b"acc:1001", value, about)])
    await bench.submit(fresh(1))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        (dead,) = await bench.read(TOPICS.dead_letters, 1)
    assert (dead.message.value, header(dead.message.headers, "dlt-failure-class")) == (value, "undecodable")

"""What every store does, on every backend: how rows come in, are leased, and change hands."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic_core import to_json
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import Status
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from tests.support.store.stored import CARD, DEADLINE, LATER, arrival, arrivals, final, lease, row, take_over
from tests.support.worker.works import NOW

ALL = range(16)


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    """A store with the worker "w1" holding its lease."""
    opened = Recorder(engine)
    assert await lease(opened, "w1")
    return opened


async def test_what_arrives_is_pending_leased_and_handed_back_in_order(recorder: Recorder, engine: AsyncEngine) -> None:
    works = await recorder.ingest("w1", arrivals([3, 1, 2]), now=NOW)
    assert [work.submission for work in works] == [each.submission for each in arrivals([3, 1, 2])]
    assert [work.id for work in works] == sorted(work.id for work in works)
    first = works[0]
    assert (first.created_at, first.deadline_at, first.attempts) == ("2027-01-01T00:00:00.000Z", DEADLINE, ())
    assert (first.revision, first.possibly_sent, first.pushing) == (0, False, False)
    kept = await row(engine, first.id)
    assert (kept["status"], kept["leased_by"], kept["account_id"]) == ("PENDING", "w1", "acc")
    assert (kept["property_id"], kept["room_id"], kept["partition"]) == ("1003", "A", 0)
    assert (kept["arrival_date"].isoformat(), kept["departure_date"].isoformat()) == ("2027-03-01", "2027-03-04")


async def test_what_is_known_is_not_taken_in_again(recorder: Recorder) -> None:
    await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    again = await recorder.ingest("w1", arrivals([2, 3, 1]), now=NOW)
    assert [work.submission.request_id for work in again] == [arrival(3).submission.request_id]
    assert await recorder.ingest("w1", [], now=NOW) == ()


async def test_one_submission_twice_in_a_batch_is_taken_in_once(recorder: Recorder) -> None:
    works = await recorder.ingest("w1", [arrival(1, notes="first"), arrival(1, held=False, notes="second")], now=NOW)
    assert [work.submission.reservation["notes"] for work in works] == ["first"]
    assert await recorder.count_due(now=NOW) == 0


async def test_what_is_not_held_waits_in_the_store_due_at_once(recorder: Recorder) -> None:
    works = await recorder.ingest("w1", [arrival(1, held=False), arrival(2), arrival(3, held=False)], now=NOW)
    assert [work.submission.request_id for work in works] == [arrival(2).submission.request_id]
    assert await recorder.count_due(now=NOW) == 2
    claimed = await recorder.claim("w1", "acc", ALL, now=NOW, limit=10)
    assert [work.submission for work in claimed] == [arrival(1).submission, arrival(3).submission]
    assert claimed[0].submission.card == CARD
    assert await recorder.count_due(now=NOW) == 0


async def test_what_is_leased_tells_how_large_it_is(recorder: Recorder) -> None:
    arrived = [replace(arrival(1), size=1500), arrival(2, held=False, notes="x" * 2000)]
    (held,) = await recorder.ingest("w1", arrived, now=NOW)
    assert held.size == 1500
    (claimed,) = await recorder.claim("w1", "acc", [0], now=NOW, limit=10)
    texts = len(to_json(claimed.submission.reservation)) + len(CARD.sealed)
    assert texts <= claimed.size <= texts + 100


async def test_a_worker_without_a_lease_is_given_nothing(recorder: Recorder) -> None:
    assert await recorder.ingest("stranger", arrivals([1]), now=NOW) == []
    assert await recorder.claim("stranger", "acc", ALL, now=NOW, limit=10) == []
    assert len(await recorder.claim("w1", "acc", ALL, now=NOW, limit=10)) == 1


async def test_the_oldest_due_is_claimed_first_and_no_more_than_asked_for(recorder: Recorder) -> None:
    for number, minutes in ((1, 3), (2, 1), (3, 2), (4, 9)):
        await recorder.ingest("w1", [arrival(number, held=False)], now=NOW + timedelta(minutes=minutes))
    claimed = await recorder.claim("w1", "acc", ALL, now=LATER, limit=2)
    assert [work.submission.request_id[-1] for work in claimed] == ["2", "3"]
    claimed = await recorder.claim("w1", "acc", ALL, now=LATER, limit=10)
    assert [work.submission.request_id[-1] for work in claimed] == ["1"]


async def test_only_the_accounts_rows_of_the_partitions_are_claimed(recorder: Recorder) -> None:
    await recorder.ingest("w1", arrivals([1], held=False, partition=1), now=NOW)
    await recorder.ingest("w1", arrivals([2], held=False, partition=2), now=NOW)
    await recorder.ingest("w1", arrivals([3], held=False, partition=2, account="other"), now=NOW)
    assert await recorder.claim("w1", "acc", [], now=NOW, limit=10) == []
    claimed = await recorder.claim("w1", "acc", [2, 3], now=NOW, limit=10)
    assert [(work.submission.request_id[-1], work.partition) for work in claimed] == [("2", 2)]


async def test_no_row_is_ever_claimed_twice(engine: AsyncEngine) -> None:
    recorders = [Recorder(engine) for _ in range(6)]
    for number, each in enumerate(recorders):
        await lease(each, f"w{number}")
    await recorders[0].ingest("w0", arrivals(range(1, 401), held=False), now=NOW)

    async def claim_all(number: int) -> list[int]:
        mine: list[int] = []
        while works := await recorders[number].claim(f"w{number}", "acc", ALL, now=NOW, limit=17):
            mine += [work.id for work in works]
        return mine

    claimed = await asyncio.gather(*(claim_all(number) for number in range(6)))
    ids = [work_id for mine in claimed for work_id in mine]
    assert len(ids) == len(set(ids))
    ids += [work.id for work in await recorders[0].claim("w0", "acc", ALL, now=NOW, limit=400)]
    assert len(set(ids)) == 400


async def test_the_accounts_with_due_rows_are_those_in_ones_partitions(recorder: Recorder) -> None:
    await recorder.ingest("w1", arrivals([1, 2], held=False, partition=1, account="b"), now=NOW)
    await recorder.ingest("w1", arrivals([3], held=False, partition=2, account="a"), now=NOW)
    await recorder.ingest("w1", arrivals([4], held=False, partition=1, account="later"), now=LATER)
    await recorder.ingest("w1", arrivals([5], held=True, partition=1, account="held"), now=NOW)
    assert sorted(await recorder.accounts_due([1, 2], now=NOW)) == ["a", "b"]
    assert await recorder.accounts_due([2], now=NOW) == ["a"]
    assert await recorder.accounts_due([], now=NOW) == []
    assert sorted(await recorder.accounts_due([1], now=LATER)) == ["b", "later"]


async def test_a_lease_that_ran_out_is_taken_over_as_doubtful_and_due(recorder: Recorder) -> None:
    works = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    assert await take_over(recorder, now=LATER) == 0
    assert await take_over(recorder, "w1", now=LATER) == 2
    assert await take_over(recorder, "w1", now=LATER) == 0
    assert await recorder.count_due(now=LATER) == 2
    await lease(recorder, "w2")
    claimed = await recorder.claim("w2", "acc", ALL, now=LATER, limit=10)
    assert [(work.id, work.possibly_sent, work.pushing) for work in claimed] == [
        (each.id, True, False) for each in works
    ]


async def test_a_lease_that_is_renewed_is_not_taken_over(recorder: Recorder) -> None:
    """Not even by who saw its beat before the renewal, and takes it for dead since."""
    await recorder.ingest("w1", arrivals([1]), now=NOW)
    seen = await recorder.heartbeats()
    assert [(heartbeat.worker_id, heartbeat.lease_seconds) for heartbeat in seen] == [("w1", 30.0)]
    assert await lease(recorder, "w1")
    assert await recorder.take_over(seen, now=LATER) == 0
    assert await recorder.take_over(await recorder.heartbeats(), now=LATER) == 1


async def test_who_leaves_is_no_longer_seen_and_what_it_held_is_freed(recorder: Recorder) -> None:
    await recorder.ingest("w1", arrivals([1]), now=NOW)
    await recorder.end_lease("w1")
    assert await recorder.heartbeats() == []
    assert await recorder.take_over([], now=LATER) == 1
    assert not await lease(recorder, "w1")


async def test_who_was_taken_over_learns_of_it_and_is_given_nothing_more(recorder: Recorder) -> None:
    await take_over(recorder, "w1")
    assert not await lease(recorder, "w1")
    assert not await lease(recorder, "w1")
    assert await recorder.ingest("w1", arrivals([1]), now=LATER) == []
    assert await lease(recorder, "w1-anew")
    assert len(await recorder.claim("w1-anew", "acc", ALL, now=LATER, limit=10)) == 1


async def test_rows_of_a_holder_that_is_no_worker_are_freed(recorder: Recorder, engine: AsyncEngine) -> None:
    (work,) = await recorder.ingest("w1", arrivals([1]), now=NOW)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE reservations SET leased_by = 'gone'")
    assert await take_over(recorder) == 1
    assert (await row(engine, work.id))["leased_by"] is None


async def test_a_row_that_a_worker_with_a_fast_clock_gives_back_is_due_by_every_clock(recorder: Recorder) -> None:
    works = await recorder.ingest("w1", arrivals([1, 2]), now=NOW + timedelta(hours=1))
    await lease(recorder, "w2")
    await recorder.release("w1", [work.id for work in works])
    assert len(await recorder.claim("w2", "acc", ALL, now=NOW, limit=10)) == 2


async def test_released_rows_are_due_at_once_and_not_doubtful(recorder: Recorder) -> None:
    works = await recorder.ingest("w1", arrivals([1, 2, 3]), now=NOW)
    await lease(recorder, "w2")
    await recorder.mark_pushing("w1", [works[0].id])
    await recorder.release("w2", [work.id for work in works])
    await recorder.release("w1", [])
    assert await recorder.count_due(now=NOW) == 0
    await recorder.release("w1", [work.id for work in works[:2]])
    claimed = await recorder.claim("w2", "acc", ALL, now=NOW, limit=10)
    assert [(work.id, work.possibly_sent, work.pushing) for work in claimed] == [
        (work.id, False, False) for work in works[:2]
    ]


async def test_an_intent_to_push_outlives_its_holder(recorder: Recorder) -> None:
    works = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    await lease(recorder, "w2")
    assert await recorder.mark_pushing("w2", [works[0].id]) == set()
    assert await recorder.mark_pushing("w1", [works[0].id, 999]) == {works[0].id}
    await take_over(recorder, "w1", now=NOW + timedelta(seconds=30))
    await lease(recorder, "w3")
    first, second = await recorder.claim("w3", "acc", ALL, now=LATER, limit=10)
    assert (first.possibly_sent, first.pushing, second.possibly_sent, second.pushing) == (True, True, True, False)
    await recorder.release("w3", [first.id])
    (first,) = await recorder.claim("w3", "acc", ALL, now=LATER, limit=10)
    assert (first.possibly_sent, first.pushing) == (True, True)


async def test_a_request_comes_out_as_it_went_in(recorder: Recorder) -> None:
    fields: dict[str, Any] = {
        "propertyId": "00123",
        "roomId": 123,
        "totalPrice": 300.5,
        "paymentProviderId": 9007199254740993,
        "departureEstimatedTime": 11.25,
        "notes": 'Zoë\'s "room" \\ \N{GRINNING FACE} \u2028 $1 %s :name {x}',
        "comments": None,
        "guest": {"name": "", "address": {"line1": "a\nb\tc"}},
    }
    await recorder.ingest("w1", [arrival(1, held=False, **fields)], now=NOW)
    (work,) = await recorder.claim("w1", "acc", ALL, now=NOW, limit=1)
    assert work.submission == arrival(1, **fields).submission
    assert list(work.submission.reservation) == list(arrival(1, **fields).submission.reservation)


async def test_nothing_is_ingested_or_replayed_in_a_database_that_was_not_checked(recorder: Recorder) -> None:
    """As if another database had answered between the check and the transaction."""
    (work,) = await recorder.ingest("w1", arrivals([1]), now=NOW, changes=recorder.identity.changes)
    await recorder.record("w1", [final(work, status=Status.FAILED)], [])
    for each in (arrival(2), replace(arrival(1), replay_of=1)):
        with pytest.raises(StoreUnavailable, match="not been checked"):
            await recorder.ingest("w1", [each], now=LATER, changes=recorder.identity.changes - 1)
    assert await recorder.count_due(now=LATER) == 0
    assert len(await recorder.ingest("w1", [arrival(2)], now=LATER, changes=recorder.identity.changes)) == 1


async def test_large_batches_go_in_and_out_whole(recorder: Recorder) -> None:
    works = await recorder.ingest("w1", arrivals(range(1, 2001)), now=NOW)
    assert [work.submission.request_id for work in works] == [
        each.submission.request_id for each in arrivals(range(1, 2001))
    ]
    await recorder.release("w1", [work.id for work in works])
    assert len(await recorder.claim("w1", "acc", ALL, now=NOW, limit=2000)) == 2000

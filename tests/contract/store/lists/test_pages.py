"""What readers of every store see, on every backend: records, and whole pages of them while workers write."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from pydantic_core import from_json
from sqlalchemy import Executable, text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import Status
from forwarder.reservation.record import SubmissionState, compose_record
from forwarder.store.database import Database, Lookup
from forwarder.store.lists.port import MAX_PAGE_BYTES, Filters, Order, Page
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.intake import ingest
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.rows import arrival_batch
from tests.support.backends import only
from tests.support.store.stored import LATER, arrival, arrivals, final, lease, polled
from tests.support.worker.works import NOW

EVERY_STATUS = Filters(frozenset(Status))


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    """A store with the worker "w1" holding its lease."""
    opened = Recorder(engine)
    await lease(opened, "w1")
    return opened


@pytest.fixture
def reader(engine: AsyncEngine) -> Reader:
    return Reader(engine)


def shown(page: Page) -> list[int]:
    return [from_json(record)["id"] for record in page.records]


async def test_a_submission_is_found_by_either_id_by_its_own_account(recorder: Recorder, reader: Reader) -> None:
    (work,) = await recorder.ingest("w1", arrivals([1]), now=LATER)
    request_id = work.submission.request_id
    stored = await reader.submission("acc", request_id)
    assert stored == await reader.reservation("acc", work.record_id)
    assert stored is not None
    assert (stored.id, stored.request_id, stored.status) == (work.record_id, request_id, Status.PENDING)
    assert (stored.accepted_at, stored.updated_at) == ("2027-01-01T00:00:00.000Z", "2027-01-01T00:05:00.000Z")
    assert (stored.fingerprint, stored.attempts, stored.problem) == (work.submission.fingerprint, (), None)
    assert await reader.submission("other", request_id) is None
    assert await reader.reservation("other", work.record_id) is None
    assert await reader.submission("acc", "rsv_unknown") is None
    assert await reader.reservation("acc", 2**63 - 1) is None


async def test_what_has_no_outcome_yet_has_a_record_of_what_is_known(recorder: Recorder, reader: Reader) -> None:
    (work,) = await recorder.ingest("w1", [arrival(1, propertyId="00123", totalPrice=300.5, notes='é "x"')], now=NOW)
    standing = SubmissionState(
        work.record_id, work.submission.request_id, Status.PENDING, work.created_at, work.created_at
    )
    stored = await reader.reservation("acc", work.record_id)
    assert stored is not None
    record = from_json(stored.record)
    assert record == compose_record(work.submission.reservation, standing)
    assert (record["propertyId"], record["totalPrice"], record["status"]) == ("00123", 300.5, "PENDING")


async def test_pages_of_one_account(recorder: Recorder, reader: Reader) -> None:
    ids, records = [], []
    for number in range(1, 8):
        works = await recorder.ingest("w1", [*arrivals([number]), *arrivals([100 + number], account="b")], now=NOW)
        ids.append(works[0].id)
        records.append(works[0].record_id)
    first = await reader.page("acc", cursor=1, limit=3)
    assert (shown(first), first.current, first.previous, first.next) == (records[:3], 1, None, ids[3])
    second = await reader.page("acc", cursor=ids[3], limit=3)
    assert (shown(second), second.current, second.previous, second.next) == (records[3:6], ids[3], 1, ids[6])
    third = await reader.page("acc", cursor=ids[6], limit=3)
    assert (shown(third), third.current, third.previous, third.next) == (records[6:], ids[6], ids[3], None)
    assert await reader.page("acc", cursor=1, limit=200) == Page(
        [*first.records, *second.records, *third.records], 1, None, None
    )
    assert await reader.page("c", cursor=1, limit=3) == Page([], 1, None, None)
    assert await reader.page("acc", cursor=2**62, limit=7) == Page([], 2**62, 1, None)


async def test_a_page_of_all_statuses_shows_each_as_it_is(recorder: Recorder, reader: Reader) -> None:
    works = await recorder.ingest("w1", arrivals(range(1, 4)), now=NOW)
    outcomes = [final(works[0]), final(works[1], status=Status.REJECTED)]
    await recorder.record("w1", outcomes, [])
    page = await reader.page("acc", cursor=1, limit=10, filters=EVERY_STATUS)
    records = [from_json(record) for record in page.records]
    assert [record["status"] for record in records] == ["CONFIRMED", "REJECTED", "PENDING"]
    assert records[:2] == [outcome.event.data["reservation"] for outcome in outcomes]


async def test_unless_asked_for_what_ended_without_a_reservation_is_not_listed(
    recorder: Recorder, reader: Reader
) -> None:
    works = await recorder.ingest("w1", arrivals(range(1, 7)), now=NOW)
    ends = [Status.CONFIRMED, Status.REJECTED, Status.FAILED, Status.IN_DOUBT, Status.CANCELLED]
    await recorder.record("w1", [final(work, status=status) for work, status in zip(works, ends, strict=False)], [])
    listed = [works[each].record_id for each in (0, 3, 4, 5)]
    assert shown(await reader.page("acc", cursor=1, limit=10)) == listed
    assert shown(await reader.page("acc", cursor=1, limit=10, order="desc")) == listed[::-1]
    unmade = Filters(frozenset({Status.REJECTED, Status.FAILED}))
    assert shown(await reader.page("acc", cursor=1, limit=10, filters=unmade)) == [
        works[1].record_id,
        works[2].record_id,
    ]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_what_is_refused_between_two_pages_is_not_there_and_moves_nothing(
    recorder: Recorder, reader: Reader, order: Order
) -> None:
    """Refused ahead of the reader: where the next page begins, and within it. Refused behind: what was read stays read."""
    works = await recorder.ingest("w1", arrivals(range(1, 13)), now=NOW)
    inwards = works if order == "asc" else works[::-1]
    first = await reader.page("acc", cursor=1, limit=4, order=order)
    refused = [inwards[1], inwards[4], inwards[6]]
    await recorder.record("w1", [final(work, status=Status.REJECTED) for work in refused], [])
    seen, cursor = shown(first), first.next
    while cursor is not None:
        page = await reader.page("acc", cursor=cursor, limit=4, order=order)
        seen += shown(page)
        cursor = page.next
    assert seen == [work.record_id for number, work in enumerate(inwards) if number not in {4, 6}]


async def test_a_failure_that_is_put_back_is_behind_the_poller_of_the_default_list_not_of_every_status(
    recorder: Recorder, reader: Reader
) -> None:
    """It is PENDING again under its old id, which a cursor may have passed: docs/guides/read-lists.md says what to poll then."""
    failed, other = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    await recorder.record("w1", [final(failed, status=Status.FAILED)], [])
    assert shown(await reader.page("acc", cursor=1, limit=10)) == [other.record_id]
    assert shown(await reader.page("acc", cursor=1, limit=10, filters=EVERY_STATUS)) == [
        failed.record_id,
        other.record_id,
    ]
    again = replace(arrival(1), replay_of=1)
    await recorder.ingest("w1", [again], now=LATER)
    assert shown(await reader.page("acc", cursor=other.id + 1, limit=10)) == []
    assert shown(await reader.page("acc", cursor=1, limit=10)) == [failed.record_id, other.record_id]
    changed = Filters(updated_since=LATER)
    assert shown(await reader.page("acc", cursor=1, limit=10, filters=changed)) == [failed.record_id]


async def test_ready_tells_whether_it_can_be_read(reader: Reader, engine: AsyncEngine) -> None:
    assert await reader.ready()
    async with engine.begin() as connection:
        await connection.execute(text("DROP TABLE reservations"))
    assert not await reader.ready()


async def test_a_poller_that_keeps_its_cursor_misses_none_while_workers_write(
    engine: AsyncEngine, reader: Reader
) -> None:
    numbers = count(1)
    writers = 4

    async def write(worker_id: str) -> list[tuple[int, int]]:
        recorder = Recorder(engine)
        await lease(recorder, worker_id)
        mine: list[tuple[int, int]] = []
        for _ in range(25):
            batch = arrivals([next(numbers) for _ in range(7)])
            mine += [(work.id, work.record_id) for work in await recorder.ingest(worker_id, batch, now=NOW)]
        return mine

    writing = asyncio.gather(*(write(f"w{number}") for number in range(writers)))
    seen = await polled(reader, writing.done, EVERY_STATUS)
    written = [each for mine in await writing for each in mine]
    assert len(written) == writers * 25 * 7
    assert seen == [record_id for _, record_id in sorted(written)]


async def test_a_poller_of_the_default_list_misses_none_that_is_made_while_others_are_refused(
    engine: AsyncEngine, reader: Reader
) -> None:
    """Every third is refused as soon as it was taken in: the poller may have seen it by then, or not."""
    numbers = count(1)

    async def write(worker_id: str) -> tuple[list[tuple[int, int]], list[int]]:
        recorder = Recorder(engine)
        await lease(recorder, worker_id)
        kept: list[tuple[int, int]] = []
        refused: list[int] = []
        for _ in range(15):
            works = await recorder.ingest(worker_id, arrivals([next(numbers) for _ in range(3)]), now=NOW)
            ends = [final(works[0]), final(works[1], status=Status.REJECTED)]
            await recorder.record(worker_id, ends, [])
            kept += [(works[each].id, works[each].record_id) for each in (0, 2)]
            refused.append(works[1].record_id)
        return kept, refused

    writing = asyncio.gather(*(write(f"w{number}") for number in range(3)))
    seen = await polled(reader, writing.done)
    written = await writing
    kept = [record_id for _, record_id in sorted(each for mine, _ in written for each in mine)]
    refused = {each for _, mine in written for each in mine}
    assert len(kept) == 90
    assert [each for each in seen if each not in refused] == kept
    assert len(set(seen)) == len(seen)
    whole = await reader.page("acc", cursor=1, limit=200)
    assert shown(whole) == kept


@only("distributed")
async def test_ids_become_visible_in_their_order(engine: AsyncEngine, reader: Reader) -> None:
    first, second = Recorder(engine), Recorder(engine)
    await lease(first, "w1")
    await lease(second, "w2")
    async with engine.begin() as slow:
        batch = arrival_batch("postgresql", [arrival(1)])
        await slow.execute(ingest("postgresql"), {"worker_id": "w1", "now": NOW, **batch})
        overtaking = asyncio.create_task(second.ingest("w2", arrivals([2]), now=NOW))
        await _waits_for_its_turn(engine)
        assert (await reader.page("acc", cursor=1, limit=10)).records == []
    (later,) = await overtaking
    page = await reader.page("acc", cursor=1, limit=10)
    assert len(page.records) == 2
    assert shown(page)[1] == later.record_id


async def _waits_for_its_turn(engine: AsyncEngine) -> None:
    waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    async with engine.connect() as connection, asyncio.timeout(90):
        while (await connection.execute(waiting)).scalar_one() == 0:
            pass


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("unsettled", [False, True])
async def test_a_page_of_large_records_ends_early_and_following_next_shows_each_once(
    recorder: Recorder,
    reader: Reader,
    order: Order,
    unsettled: bool,
) -> None:
    """Whatever their sizes: 300 KB, among small ones, and one of more than a page alone. The previous page is `limit` earlier."""
    sizes = [300_000, 10, 300_000, 10, 10, 300_000, 300_000, 10, 1_200_000, 10, 300_000, 10]
    notes = [("é" if number % 2 else "n") * (size // (1 + number % 2)) for number, size in enumerate(sizes)]
    works = await recorder.ingest("w1", [arrival(number, notes=each) for number, each in enumerate(notes)], now=NOW)
    if not unsettled:
        await recorder.record("w1", [final(work) for work in works], [])
    seen: list[int] = []
    cursor, pages = 1, 0
    while True:
        page = await reader.page("acc", cursor=cursor, limit=8, order=order)
        assert page.records
        assert len(page.records) == 1 or sum(len(each.encode()) for each in page.records) <= MAX_PAGE_BYTES
        seen += shown(page)
        pages += 1
        if page.next is None:
            break
        cursor = page.next
    expected = [work.record_id for work in works]
    assert seen == (expected if order == "asc" else expected[::-1])
    assert 3 < pages < len(works)


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_what_is_refused_while_a_page_of_large_records_is_read_hides_nothing_after_it(
    recorder: Recorder, reader: Reader, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = await recorder.ingest(
        "w1", [arrival(number, notes="n" * 300_000 * (number in {0, 8})) for number in range(9)], now=NOW
    )
    inwards = works if order == "asc" else works[::-1]
    lookup, refused = Database.lookup, [final(inwards[1], status=Status.REJECTED)]

    def refusing_before_the_second(database: Database, statement: Executable) -> Lookup:
        read, reads = lookup(database, statement), count(1)

        async def moved(parameters: Mapping[str, Any]) -> Sequence[Any]:
            if next(reads) == 2:
                await recorder.record("w1", refused, [])
            return await read(parameters)

        return moved

    monkeypatch.setattr(Database, "lookup", refusing_before_the_second)
    page = await reader.page("acc", cursor=1, limit=4, order=order)
    seen = shown(page)
    while page.next is not None:
        page = await reader.page("acc", cursor=page.next, limit=4, order=order)
        seen += shown(page)
    assert seen == [work.record_id for number, work in enumerate(inwards) if number != 1]


async def test_of_many_large_records_that_are_read_at_once_the_largest_are_left_out(
    recorder: Recorder, reader: Reader
) -> None:
    notes = ["n" * 900_000, "n"]
    works = await recorder.ingest("w1", [arrival(number, notes=each) for number, each in enumerate(notes)], now=NOW)
    ids = [work.submission.request_id for work in works]
    both = await reader.submissions("acc", ids)
    assert [both[each].record == "" for each in ids] == [True, False]
    (alone,) = (await reader.submissions("acc", ids[:1])).values()
    assert len(alone.record) > 900_000

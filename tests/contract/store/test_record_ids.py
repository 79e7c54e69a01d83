"""The `id` of a record, in every store: derived from the request id, so that it counts nothing and no restore changes it."""

import pytest
from pydantic_core import from_json
from sqlalchemy import delete, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.record import record_id_of
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import reservations
from tests.support.store.stored import LATER, arrivals, lease
from tests.support.worker.works import NOW, submission


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    """A store with the worker "w1" holding its lease."""
    opened = Recorder(engine)
    await lease(opened, "w1")
    return opened


async def shown_ids(engine: AsyncEngine) -> dict[str, int]:
    """By request id, as readers of "acc" see them."""
    page = await Reader(engine).page("acc", cursor=1, limit=100)
    records = [from_json(record) for record in page.records]
    return {record["requestId"]: record["id"] for record in records}


async def test_it_is_the_same_whatever_others_submit_and_whatever_was_restored(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    await recorder.ingest("w1", arrivals([1]), now=NOW)
    await recorder.ingest("w1", arrivals(range(100, 130), account="other"), now=NOW)
    await recorder.ingest("w1", arrivals([2]), now=NOW)
    before = await shown_ids(engine)
    async with engine.begin() as connection:  # as a restore to an empty store would
        await connection.execute(delete(reservations))
    await recorder.ingest("w1", arrivals([2, 3, 1]), now=LATER)
    after = await shown_ids(engine)
    assert list(after) == [submission(number).request_id for number in (2, 3, 1)]
    assert {each: after[each] for each in before} == before
    assert len(set(after.values())) == 3
    assert all(0 < each < 2**53 for each in after.values())


async def test_where_anothers_record_has_it_the_next_is_taken_and_stays(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    wanted = record_id_of(submission(2).request_id)
    await recorder.ingest("w1", arrivals([1]), now=NOW)
    async with engine.begin() as connection:
        await connection.execute(update(reservations).values(record_id=wanted))
    works = await recorder.ingest("w1", arrivals([2, 3]), now=NOW)
    assert await recorder.ingest("w1", arrivals([3, 2]), now=LATER) == []
    second, third = (submission(number).request_id for number in (2, 3))
    ids = {second: record_id_of(second, taken=1), third: record_id_of(third)}
    assert {work.submission.request_id: work.record_id for work in works} == ids
    assert await shown_ids(engine) == {submission(1).request_id: wanted} | ids
    for request_id, record_id in ids.items():
        stored = await Reader(engine).reservation("acc", record_id)
        assert stored is not None
        assert stored.request_id == request_id

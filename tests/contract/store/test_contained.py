"""What is set aside in the store: events that cannot be published, rows that cannot be read, rows over which workers end."""

from datetime import timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from forwarder.store.submissions.recorder import Recorder
from forwarder.store.tables import outbox, reservations
from tests.support.store.stored import LATER, arrivals, final, lease, row, take_over
from tests.support.worker.works import NOW

MUCH_LATER = LATER + timedelta(days=1)
REST = timedelta(hours=2)


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    opened = Recorder(engine)
    await lease(opened, "w1")
    return opened


async def test_an_event_that_is_kept_rests_and_holds_up_no_other(recorder: Recorder) -> None:
    works = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    first, second = (await recorder.record("w1", [final(each) for each in works], [])).values()
    await recorder.keep_event(first.id, until=MUCH_LATER + REST, error_id="err_1")
    assert [each.id for each in await recorder.republish(before=MUCH_LATER, now=MUCH_LATER, limit=9)] == [second.id]
    await recorder.published([second.id])
    assert await recorder.kept_events() == 1
    again = MUCH_LATER + 2 * REST
    [kept] = await recorder.republish(before=again, now=again, limit=9)
    assert (kept.id, kept.faults) == (first.id, 1)
    await recorder.published([kept.id])
    assert await recorder.kept_events() == 0


async def test_an_event_that_cannot_be_read_rests_and_holds_up_no_other(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    works = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    first, second = (await recorder.record("w1", [final(each) for each in works], [])).values()
    async with engine.begin() as connection:
        await connection.execute(update(outbox).where(outbox.c.id == first.id).values(data="{"))
    with capture_logs() as logs:
        found = await recorder.republish(before=MUCH_LATER, now=MUCH_LATER, limit=9)
    assert [each.id for each in found] == [second.id]
    assert [each["where"] for each in logs if each["event"] == "fault.contained"] == ["outbox"]
    assert await recorder.kept_events() == 1


async def test_a_row_that_cannot_be_read_rests_and_holds_up_no_other(recorder: Recorder, engine: AsyncEngine) -> None:
    works = await recorder.ingest("w1", arrivals([1, 2, 3]), now=NOW)
    await recorder.release("w1", [each.id for each in works])
    async with engine.begin() as connection:
        broken = update(reservations).where(reservations.c.id == works[1].id)
        await connection.execute(broken.values(request="{"))
    with capture_logs():
        claimed = await recorder.claim("w1", "acc", [0], now=LATER, limit=9)
    assert {each.id for each in claimed} == {works[0].id, works[2].id}
    kept = await row(engine, works[1].id)
    assert (kept["status"], kept["leased_by"]) == ("PENDING", None)
    assert "internal_error" in kept["attempts"]
    assert await recorder.claim("w1", "acc", [0], now=LATER, limit=9) == []


async def test_workers_that_ended_over_a_row_are_counted(recorder: Recorder) -> None:
    [work, other] = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    assert await recorder.suspect("w1", work.id) == 0
    assert await recorder.suspect("w1", work.id) == 0, "it is still this one's"
    await take_over(recorder, "w1")
    assert await recorder.suspect("w2", work.id) == 1
    assert await recorder.suspect("w3", work.id) == 2
    assert await recorder.suspect("w3", other.id) == 0
    await recorder.clear_suspects([work.id])
    assert await recorder.suspect("w4", work.id) == 0

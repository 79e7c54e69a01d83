"""What every store does, on every backend: outcomes and their events are recorded together, by who holds the row, and not lost."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from pydantic_core import from_json
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import Submission
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.port import StoreUnavailable, Work
from forwarder.store.submissions.recorder import Recorder
from tests.support.store.stored import (
    CARD,
    DEADLINE,
    LATER,
    arrival,
    arrivals,
    attempt,
    final,
    lease,
    postponed,
    row,
    take_over,
    unpublished,
)
from tests.support.worker.works import NOW

ALL = range(16)


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    """A store with the worker "w1" holding its lease."""
    opened = Recorder(engine)
    await lease(opened, "w1")
    return opened


@pytest.fixture
async def works(recorder: Recorder) -> list[Work]:
    """Three rows that "w1" holds."""
    return list(await recorder.ingest("w1", arrivals([1, 2, 3]), now=NOW))


async def test_an_outcome_is_recorded_with_its_event(
    recorder: Recorder, works: list[Work], engine: AsyncEngine
) -> None:
    outcome = final(works[0], source='Ünï "quoted"', totalPrice=300.5)
    events = await recorder.record("w1", [outcome], [])
    assert {work_id: entry.event for work_id, entry in events.items()} == {works[0].id: outcome.event}
    kept = await row(engine, works[0].id)
    assert (kept["status"], kept["leased_by"], kept["due_at"], kept["pushing"]) == ("CONFIRMED", None, None, False)
    assert (kept["pms_reservation_id"], kept["problem"], kept["revision"]) == ("pms-1", None, 1)
    stored = await Reader(engine).reservation("acc", works[0].record_id)
    assert stored is not None
    assert from_json(stored.record) == outcome.event.data["reservation"]
    assert list(from_json(stored.record)) == list(outcome.event.data["reservation"])
    assert (stored.status, stored.attempts, stored.updated_at) == (
        Status.CONFIRMED,
        (attempt(),),
        "2027-01-01T00:05:00.000Z",
    )


async def test_a_final_outcome_leaves_no_card(recorder: Recorder, works: list[Work], engine: AsyncEngine) -> None:
    assert CARD.sealed in (await row(engine, works[0].id))["card"]
    await recorder.record("w1", [final(works[0], status=Status.REJECTED)], [postponed(works[1])])
    assert (await row(engine, works[0].id))["card"] is None
    assert CARD.sealed in (await row(engine, works[1].id))["card"]


@pytest.mark.parametrize("status", [Status.REJECTED, Status.FAILED, Status.IN_DOUBT])
async def test_a_problem_is_kept(recorder: Recorder, works: list[Work], engine: AsyncEngine, status: Status) -> None:
    outcome = final(works[0], status=status)
    await recorder.record("w1", [outcome], [])
    stored = await Reader(engine).submission("acc", works[0].submission.request_id)
    assert stored is not None
    assert (stored.status, stored.problem) == (status, outcome.problem)


async def test_an_event_waits_until_it_is_known_to_be_published(recorder: Recorder, works: list[Work]) -> None:
    outcomes = [final(work, at=NOW + timedelta(minutes=minute)) for minute, work in enumerate(works)]
    events = await recorder.record("w1", outcomes, [])
    assert len(await unpublished(recorder, before=NOW + timedelta(minutes=1))) == 1
    waiting = await unpublished(recorder)
    assert waiting == sorted(events.values(), key=lambda entry: entry.id)
    assert [entry.event for entry in waiting] == [outcome.event for outcome in outcomes]
    assert await unpublished(recorder, limit=2) == waiting[:2]
    await recorder.published([waiting[0].id, waiting[2].id])
    await recorder.published([])
    assert await unpublished(recorder) == waiting[1:2]


async def test_what_is_not_held_is_left_as_it_is(recorder: Recorder, works: list[Work], engine: AsyncEngine) -> None:
    await recorder.release("w1", [works[1].id])
    outcomes = [final(work) for work in works[:2]]
    assert await recorder.record("stranger", outcomes, [postponed(works[2])]) == {}
    events = await recorder.record("w1", outcomes, [])
    assert set(events) == {works[0].id}
    assert [entry.event.request_id for entry in await unpublished(recorder)] == [works[0].submission.request_id]
    assert (await row(engine, works[1].id))["status"] == "PENDING"
    assert (await row(engine, works[2].id))["leased_by"] == "w1"


async def test_what_others_did_since_is_not_overwritten_by_a_try_whose_response_was_lost(
    recorder: Recorder, works: list[Work], engine: AsyncEngine
) -> None:
    """Its worker holds the row once more when it records the try again."""
    await recorder.record("w1", [], [postponed(works[0])])
    await lease(recorder, "w2")
    (theirs,) = await recorder.claim("w2", "acc", ALL, now=LATER, limit=10)
    await recorder.record("w2", [], [postponed(theirs, possibly_sent=True)])
    assert await recorder.claim("w1", "acc", ALL, now=LATER, limit=10)
    await recorder.record("w1", [], [postponed(works[0])])
    kept = await row(engine, works[0].id)
    assert (kept["possibly_sent"], kept["tries"], kept["leased_by"]) == (True, 2, "w1")


async def test_who_was_taken_over_records_nothing(recorder: Recorder, works: list[Work]) -> None:
    await take_over(recorder, "w1")
    assert await recorder.record("w1", [final(works[0])], [postponed(works[1])]) == {}
    assert await unpublished(recorder) == []
    assert await recorder.count_due(now=LATER) == 3


async def test_an_outcome_is_recorded_once(recorder: Recorder, works: list[Work]) -> None:
    await recorder.record("w1", [final(works[0])], [])
    assert await recorder.record("w1", [final(works[0], status=Status.FAILED)], []) == {}
    assert len(await unpublished(recorder)) == 1
    assert await recorder.ingest("w1", arrivals([1]), now=NOW) == []


async def test_what_is_postponed_is_given_up_until_it_is_due(recorder: Recorder, works: list[Work]) -> None:
    await recorder.mark_pushing("w1", [work.id for work in works])
    sure, unsure = postponed(works[0]), postponed(works[1], possibly_sent=True)
    assert await recorder.record("w1", [], [sure, unsure]) == {}
    just_before = LATER - timedelta(milliseconds=1)
    assert await recorder.claim("w1", "acc", ALL, now=just_before, limit=10) == []
    assert await recorder.accounts_due(ALL, now=just_before) == []
    claimed = await recorder.claim("w1", "acc", ALL, now=LATER, limit=10)
    assert [(work.id, work.possibly_sent, work.pushing) for work in claimed] == [
        (works[0].id, False, False),
        (works[1].id, True, True),
    ]
    assert [work.attempts for work in claimed] == [tuple(sure.attempts), tuple(unsure.attempts)]
    assert (claimed[0].created_at, claimed[0].deadline_at) == (works[0].created_at, DEADLINE)


async def test_outcome_and_event_are_recorded_both_or_neither(
    recorder: Recorder, works: list[Work], engine: AsyncEngine
) -> None:
    async with engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE outbox RENAME TO elsewhere")
    for others in ([], [postponed(works[1])]):
        with pytest.raises(StoreUnavailable):
            await recorder.record("w1", [final(works[0])], others)
    for work in works:
        assert (await row(engine, work.id))["leased_by"] == "w1"


async def test_what_json_or_the_database_has_no_way_to_write_spoils_no_batch(
    recorder: Recorder, works: list[Work]
) -> None:
    odd = final(works[0], notes="a\0b \\u0000 \\\0")
    odd.event.data["reservation"]["finances"]["oddity"] = float("nan")
    assert len(await recorder.record("w1", [odd, final(works[1])], [])) == 2
    first, _ = await unpublished(recorder, limit=2)
    assert first.event.data["reservation"]["finances"]["oddity"] is None
    assert first.event.data["reservation"]["notes"] == "a\N{REPLACEMENT CHARACTER}b \\u0000 \\\N{REPLACEMENT CHARACTER}"


async def test_large_batches_are_recorded_whole(recorder: Recorder, engine: AsyncEngine) -> None:
    works = await recorder.ingest("w1", arrivals(range(1, 2001)), now=NOW)
    outcomes = [final(work) for work in works[:1900]]
    events = await recorder.record("w1", outcomes, [postponed(work) for work in works[1900:]])
    assert [events[outcome.work_id].event for outcome in outcomes] == [outcome.event for outcome in outcomes]
    ids = [events[outcome.work_id].id for outcome in outcomes]
    assert ids == sorted(ids)
    await recorder.published(ids)
    assert await unpublished(recorder) == []
    assert await recorder.count_due(now=LATER) == 100


# --- when the answer to a commit is lost ----------------------------------------------------------------------------------


@pytest.fixture
def lose_the_next_answer(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the next transaction, or lone statement, raise after it was committed, as when the connection breaks just then."""
    database = recorder._database  # noqa: SLF001
    whole: Callable[[], AbstractAsyncContextManager[AsyncConnection]] = database.transaction
    alone: Callable[..., Awaitable[Any]] = database.run

    def keep_the_following() -> None:
        monkeypatch.setattr(database, "transaction", whole)
        monkeypatch.setattr(database, "run", alone)

    @asynccontextmanager
    async def commit_and_fail() -> AsyncIterator[AsyncConnection]:
        keep_the_following()
        async with whole() as connection:
            yield connection
        raise StoreUnavailable("the connection broke")

    async def run_and_fail(*arguments: Any) -> Any:
        keep_the_following()
        await alone(*arguments)
        raise StoreUnavailable("the connection broke")

    def lose() -> None:
        monkeypatch.setattr(database, "transaction", commit_and_fail)
        monkeypatch.setattr(database, "run", run_and_fail)

    return lose


def _requests(works: list[Work]) -> list[Submission]:
    return [work.submission for work in works]


async def test_rows_leased_without_the_worker_knowing_are_given_back(
    recorder: Recorder, lose_the_next_answer: Callable[[], None]
) -> None:
    held = await recorder.ingest("w1", arrivals([1]), now=NOW)
    lose_the_next_answer()
    with pytest.raises(StoreUnavailable):
        await recorder.ingest("w1", arrivals([1, 2, 3]), now=NOW)
    again = await recorder.ingest("w1", arrivals([1, 2, 3, 4]), now=NOW)
    assert _requests(list(again)) == [arrival(4).submission]
    lose_the_next_answer()
    with pytest.raises(StoreUnavailable):
        await recorder.claim("w1", "acc", ALL, now=NOW, limit=10)
    claimed = await recorder.claim("w1", "acc", ALL, now=NOW, limit=10)
    assert _requests(list(claimed)) == [arrival(2).submission, arrival(3).submission]
    events = await recorder.record("w1", [final(work) for work in (*held, *again, *claimed)], [])
    assert len(events) == 4


async def test_an_outcome_recorded_without_the_worker_knowing_is_found_in_the_outbox(
    recorder: Recorder, works: list[Work], lose_the_next_answer: Callable[[], None]
) -> None:
    lose_the_next_answer()
    with pytest.raises(StoreUnavailable):
        await recorder.record("w1", [final(works[0])], [])
    assert await recorder.record("w1", [final(works[0])], []) == {}
    assert [entry.event for entry in await unpublished(recorder)] == [final(works[0]).event]

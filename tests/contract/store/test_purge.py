"""Submissions that were finished long ago are deleted, and nothing else is; what was confirmed is not booked again."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.operate.guests import MIN_DAYS, Purge
from forwarder.operate.output import WrongUsage
from forwarder.oversight.restored import PublishedOutcome, RecoveryCheck
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import NaturalKey
from forwarder.store.lists.overview import Overview
from forwarder.store.retention import Purger
from forwarder.store.submissions.port import Duplicate, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import StoreRecovery
from forwarder.store.tables import reservations
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.port import ConsumedMessage, Message, Topics
from tests.support.log.signers import SIGNER
from tests.support.memory.clock import ManualClock
from tests.support.store.audited import audit_on
from tests.support.store.stored import LATER, arrival, final, lease
from tests.support.worker.works import NOW, submission

DAY = LATER.date()
"""On which what a test finishes is finished, unless its guest leaves later."""
YEARS_LATER = datetime(2030, 1, 1, tzinfo=UTC)
LEFT = "2027-03-04"
"""When the guest of a submission leaves."""


class House:
    """A store and what purges it."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.recorder = Recorder(engine)
        self.store = Purger(engine)
        clock = ManualClock(YEARS_LATER)
        self.purge = Purge(self.store, audit_on(engine, clock), clock)

    async def finish(self, *numbers: int, status: Status = Status.CONFIRMED, published: bool = True) -> list[Work]:
        works = await self.recorder.ingest("w1", [arrival(each) for each in numbers], now=NOW)
        events = await self.recorder.record("w1", [final(work, status=status) for work in works], [])
        if published:
            await self.recorder.published([event.id for event in events.values()])
        return list(works)

    async def left(self) -> list[str]:
        async with self.engine.connect() as connection:
            found = await connection.scalars(select(reservations.c.request_id).order_by(reservations.c.id))
            return [request_id.lstrip("rsv_0") for request_id in found]

    async def run(self, before: date, workspace_id: str | None = None) -> int:
        """As many are deleted as were counted."""
        counted, told = await self.purge.count(before, workspace_id), 0

        def on_more(more: int) -> None:
            nonlocal told
            told += more

        deleted = await self.purge.run(before, workspace_id, on_more)
        assert deleted == told == counted
        return deleted


@pytest.fixture
async def house(engine: AsyncEngine) -> House:
    opened = House(engine)
    await lease(opened.recorder, "w1")
    return opened


async def test_what_was_finished_before_the_day_is_deleted(house: House) -> None:
    await house.finish(1, status=Status.REJECTED)
    await house.finish(2, status=Status.FAILED)
    await house.finish(3)  # whose guest leaves later

    assert await house.run(DAY) == 0
    assert await house.run(DAY + timedelta(days=1)) == 2
    assert await house.left() == ["3"]
    assert await house.run(date.fromisoformat(LEFT) + timedelta(days=1)) == 1
    assert await house.left() == []


async def test_what_is_not_finished_stays_however_old_it_is(house: House) -> None:
    await house.finish(1, status=Status.IN_DOUBT)
    await house.recorder.ingest("w1", [arrival(2), arrival(3, held=False)], now=NOW)

    assert await house.run(date(2029, 1, 1)) == 0
    assert await house.left() == ["1", "2", "3"]


async def test_what_is_still_to_be_published_stays(house: House) -> None:
    await house.finish(1, published=False)

    assert await house.purge.run(date(2029, 1, 1), None, lambda _: None) == 0
    assert await house.left() == ["1"]


async def test_only_the_submissions_of_a_workspace_are_deleted_where_it_is_named(house: House) -> None:
    await house.finish(1)

    assert await house.run(date(2029, 1, 1), "another") == 0
    assert await house.run(date(2029, 1, 1), "demo") == 1


async def test_a_confirmed_one_that_comes_again_is_not_booked_again(house: House) -> None:
    await house.finish(1, 2)
    await house.run(date(2029, 1, 1))
    repeated: list[Duplicate] = []

    works = await house.recorder.ingest("w1", [arrival(1), arrival(9)], now=LATER, on_duplicate=repeated.append)

    assert [work.submission.request_id for work in works] == [submission(9).request_id]
    assert [each.submission.request_id for each in repeated] == [submission(1).request_id]
    assert await house.left() == ["9"]


async def test_a_refused_one_may_be_asked_for_again(house: House) -> None:
    await house.finish(1, status=Status.REJECTED)
    await house.run(date(2029, 1, 1))

    assert len(await house.recorder.ingest("w1", [arrival(1)], now=LATER)) == 1


@pytest.mark.parametrize(("status", "made"), [(Status.REJECTED, 1), (Status.CONFIRMED, 0)])
async def test_so_may_what_had_repeated_it(house: House, status: Status, made: int) -> None:
    """Under its own key. Otherwise it would be accepted, have no row, and stay pending for ever."""
    natural = NaturalKey("one stay", window_seconds=300)
    first, repeat = (
        replace(each, submission=replace(each.submission, natural=natural)) for each in map(arrival, (1, 2))
    )
    (work,) = await house.recorder.ingest("w1", [first, repeat], now=NOW)
    events = await house.recorder.record("w1", [final(work, status=status)], [])
    await house.recorder.published([event.id for event in events.values()])
    await house.run(date(2029, 1, 1))

    assert len(await house.recorder.ingest("w1", [repeat], now=LATER)) == made
    assert len(await house.left()) == made
    assert (await Overview(house.engine).find(repeat.submission.request_id) is not None) == bool(made)


async def test_it_can_be_broken_off_and_run_again(house: House) -> None:
    await house.finish(*range(1, 8))

    _, deleted = await house.store.delete_some(date(2029, 1, 1), None, after=0, limit=3)
    assert deleted == 3
    assert await house.run(date(2029, 1, 1)) == 4


async def test_what_was_finished_lately_is_not_deleted(house: House) -> None:
    latest = YEARS_LATER.date() - timedelta(days=MIN_DAYS)

    with pytest.raises(WrongUsage, match=f"{latest} is the latest"):
        await house.purge.count(latest + timedelta(days=1), None)
    assert await house.purge.count(latest, None) == 0


async def test_a_store_that_was_purged_is_not_taken_for_one_that_was_restored(house: House, tmp_path: Path) -> None:
    """Topics keep old messages of a quiet partition for longer than their retention."""

    async def known(_request_ids: Collection[str]) -> Collection[str]:
        return ()

    check = RecoveryCheck(
        EmbeddedLog(tmp_path / "log"),
        Topics(),
        "workers",
        known=known,
        store=StoreRecovery(house.engine),
        vouches=lambda _account, _request: True,
        purged_before=house.store.purged_before,
        signer=SIGNER,
    )
    old = replace(submission(1), accepted_at=datetime(2026, 1, 1, tzinfo=UTC))
    new = replace(submission(2), accepted_at=datetime(2028, 7, 1, tzinfo=UTC))
    places = {(0, 1): old, (0, 2): new}
    outcomes = [_outcome("a", "2026-01-01T00:00:00.000Z"), _outcome("b", "2028-07-01T00:00:00.000Z")]

    assert await check.unknown(places) == places
    assert await check.behind(outcomes) == outcomes
    await house.run(date(2028, 1, 1))
    assert await check.unknown(places) == {(0, 2): new}
    assert await check.behind(outcomes) == outcomes[1:]


def _outcome(request_id: str, at: str) -> PublishedOutcome:
    consumed = ConsumedMessage("results", 0, 0, 0, Message(b"key", b"{}"))
    return PublishedOutcome(request_id, 1, Status.CONFIRMED, at, consumed, {})


async def test_who_asks_for_one_that_was_deleted_is_told_that_there_is_none(house: House) -> None:
    await house.finish(1)
    await house.run(date(2029, 1, 1))

    assert await Overview(house.engine).find(submission(1).request_id) is None

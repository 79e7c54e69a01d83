"""What a row says that a worker let go of without a word: whether it may have been pushed, and what that push carried."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.evidence import Facts, Park, Target, next_step, read_target
from forwarder.reservation.outcome import Status
from forwarder.store.engine import open_engine
from forwarder.store.submissions.port import UNKNOWN, Arrival, StoreUnavailable, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Repairs
from tests.support.store.stored import DEADLINE, LATER, arrival, arrivals, final, lease, postponed, row, take_over
from tests.support.worker.works import NOW, doubtful, submission

ALL = range(16)
KEY, REFERENCE, NONE = Target("pms", key=True).text, Target("pms", reference="id").text, Target("pms").text


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    opened = Recorder(engine)
    await lease(opened, "w1")
    await lease(opened, "w2")
    return opened


def carried_by(work: Work) -> list[str]:
    """What its open pushes carried."""
    return [push.to.text for push in work.evidence.open]


async def claimed(recorder: Recorder, target: str | None, *, by: str = "w1") -> Work:
    (work,) = await recorder.claim(by, "acc", ALL, now=LATER, limit=10, target=target)
    return work


async def taken_over(recorder: Recorder, worker_id: str) -> Work:
    """The one row of that worker, claimed by another."""
    assert await take_over(recorder, worker_id) == 1
    await lease(recorder, worker_id)
    return await claimed(recorder, NONE, by="reader")


LET_GO = [
    # what its doubt was, what it was leased with, whether it was marked; what its open pushes carry now
    (None, REFERENCE, False, [REFERENCE]),
    (None, UNKNOWN, False, [Target().text]),
    (None, NONE, False, []),  # a worker whose push carries nothing marks it first
    (None, NONE, True, [NONE]),
    (None, None, False, []),  # nothing could be sent
    (None, None, True, [Target().text]),
    (REFERENCE, REFERENCE, False, [REFERENCE, REFERENCE]),
    (REFERENCE, KEY, False, [REFERENCE, KEY]),
    (REFERENCE, NONE, False, [REFERENCE]),
    (REFERENCE, NONE, True, [REFERENCE, NONE]),
    (REFERENCE, None, False, [REFERENCE]),
]


@pytest.mark.parametrize(("earlier", "target", "marked", "open_pushes"), LET_GO)
@pytest.mark.parametrize("way", ["taken over", "given up"])
async def test_what_a_worker_let_go_of_tells_what_its_push_carried(
    recorder: Recorder,
    way: str,
    earlier: str | None,
    target: str | None,
    marked: bool,
    open_pushes: list[str],
) -> None:
    await lease(recorder, "reader")
    await recorder.ingest("w1", [arrival(1, held=False)], now=NOW)
    if earlier is not None:
        work = await claimed(recorder, earlier)
        await recorder.record("w1", [], [replace(postponed(work), evidence=doubtful(read_target(earlier)))])
    work = await claimed(recorder, target)
    assert (work.target, carried_by(work), work.takeovers) == (target, [] if earlier is None else [earlier], 0)
    if marked:
        await recorder.mark_pushing("w1", [work.id])
    if way == "taken over":
        found = await taken_over(recorder, "w1")
    else:
        assert await recorder.abandon("w1", [work.id], now=LATER) == 1
        found = await claimed(recorder, NONE, by="reader")
    assert (found.possibly_sent, carried_by(found), found.takeovers) == (bool(open_pushes), open_pushes, 1)


async def test_a_doubt_that_an_operator_settled_does_not_come_back_when_the_next_worker_dies(
    engine: AsyncEngine, recorder: Recorder
) -> None:
    await lease(recorder, "reader")
    (work,) = await recorder.ingest("w1", [arrival(1)], now=NOW)
    doubt = replace(final(work, status=Status.IN_DOUBT), evidence=doubtful(read_target(KEY)))
    await recorder.record("w1", [doubt], [])
    in_doubt = await Repairs(engine).in_doubt(work.submission.request_id)
    assert in_doubt is not None
    assert await Repairs(engine).reopen(in_doubt, attempts=(), now=LATER, deadline_at=DEADLINE)
    assert carried_by(await claimed(recorder, REFERENCE)) == []
    assert carried_by(await taken_over(recorder, "w1")) == [REFERENCE]


HOUR = timedelta(hours=1)
KEPT_FOR_AN_HOUR = Facts(read_target(KEY), key_seconds=HOUR.total_seconds())


@pytest.mark.parametrize("by", ["a worker", "a recovery"])
async def test_the_key_of_a_worker_that_died_counts_from_when_it_may_have_been_sent(
    recorder: Recorder, engine: AsyncEngine, by: str
) -> None:
    """Nobody took over for two hours. Its PMS has forgotten the key by then, so that the same push would book again."""
    late = NOW + 2 * HOUR
    if by == "a worker":
        await recorder.ingest("w1", [arrival(1, held=False)], now=NOW)
        await claimed(recorder, KEY)
    else:  # to which the submission is new, which was pushed before the database was lost
        (work,) = await recorder.ingest("w1", [Arrival(submission(1), 0, DEADLINE, held=True, target=KEY)], now=late)
        await recorder.mark_pushing("w1", [work.id])
    await take_over(recorder, "w1", now=late)
    for _ in range(2):  # also once it was recorded again
        (found,) = await recorder.claim("w2", "acc", ALL, now=late, limit=10, target=KEY)
        step = next_step(found.evidence, KEPT_FOR_AN_HOUR, late, HOUR.total_seconds(), may_create=True)
        assert isinstance(step, Park), step
        await recorder.record(
            "w2", [], [replace(postponed(found, due_at=late), updated_at=late, evidence=found.evidence)]
        )


async def test_what_arrived_and_was_let_go_of_tells_it_too(recorder: Recorder) -> None:
    await lease(recorder, "reader")
    await recorder.ingest("w1", [Arrival(submission(1), 0, DEADLINE, held=True, target=KEY)], now=NOW)
    found = await taken_over(recorder, "w1")
    assert carried_by(found) == [KEY]


async def test_who_only_ends_what_has_expired_pushes_nothing(recorder: Recorder) -> None:
    await lease(recorder, "reader")
    await recorder.ingest("w1", [arrival(1, held=False)], now=NOW)
    await recorder.release("w1", [(await claimed(recorder, KEY)).id])
    (work,) = await recorder.claim_expired("w1", ALL, now=DEADLINE, limit=10)
    assert work.target is None
    assert (await taken_over(recorder, "w1")).possibly_sent is False


async def test_what_is_recorded_in_doubt_tells_what_it_carried_until_it_ends(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    await recorder.ingest("w1", [arrival(1, held=False)], now=NOW)
    in_doubt = replace(
        final(await claimed(recorder, REFERENCE), status=Status.IN_DOUBT),
        evidence=doubtful(read_target(REFERENCE)),
        look_at=LATER,
    )
    assert await recorder.record("w1", [in_doubt], [])
    work = await claimed(recorder, KEY)
    assert (work.status, work.possibly_sent, carried_by(work)) == (Status.IN_DOUBT, True, [REFERENCE])
    assert await recorder.record("w1", [final(work)], [])
    ended = await row(engine, work.id)
    assert (ended["status"], ended["possibly_sent"]) == ("CONFIRMED", False)


async def test_a_worker_is_told_what_it_holds_and_gives_up_only_that(recorder: Recorder) -> None:
    works = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    (other,) = await recorder.ingest("w2", arrivals([3]), now=NOW)
    assert set(await recorder.leased_ids("w1")) == {work.id for work in works}
    assert await recorder.abandon("w1", [other.id], now=LATER) == 0
    assert await recorder.abandon("w1", [], now=LATER) == 0
    assert set(await recorder.leased_ids("w2")) == {other.id}


# --- connections that die, and are slow to come back ----------------------------------------------------------------------


class _Connections:
    """Cuts the connection of the next transaction when it is about to commit; then holds up the next new one."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._connect = asyncpg.connect
        self._slow = False
        self.asked_for = asyncio.Event()
        self.coming = asyncio.Event()
        monkeypatch.setattr(asyncpg, "connect", self._connected)
        self.engine = open_engine(url)

    def cut_at_commit(self) -> None:
        event.listen(self.engine.sync_engine, "commit", self._cut, once=True)

    def slow_to_come_back(self) -> None:
        self._slow = True

    def _cut(self, connection: Any) -> None:
        driver = connection.connection.driver_connection
        if isinstance(driver, asyncpg.Connection):
            driver.terminate()
        else:
            raise ConnectionResetError("cut before it was committed")

    async def _connected(self, *arguments: Any, **options: Any) -> Any:
        if self._slow:
            self._slow = False
            self.asked_for.set()
            await self.coming.wait()
        return await self._connect(*arguments, **options)


@pytest.fixture
async def connections(migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Connections]:
    made = _Connections(migrated_url, monkeypatch)
    yield made
    made.coming.set()
    await made.engine.dispose()


async def test_what_may_have_been_leased_is_given_back_before_it_is_leased_again(
    engine: AsyncEngine, connections: _Connections
) -> None:
    """What an intake gives back, and what the sweep claims meanwhile, are never the same rows."""
    recorder = Recorder(connections.engine)
    await lease(recorder, "w1")
    await recorder.ingest("w1", [arrival(1, held=False)], now=NOW)
    connections.cut_at_commit()
    with pytest.raises(StoreUnavailable):
        await claimed(recorder, REFERENCE)
    connections.slow_to_come_back()
    intake = asyncio.create_task(recorder.ingest("w1", arrivals([2]), now=NOW))
    if engine.dialect.name == "postgresql":
        await connections.asked_for.wait()
    sweep = asyncio.create_task(recorder.claim("w1", "acc", ALL, now=LATER, limit=10, target=REFERENCE))
    await asyncio.wait([sweep], timeout=0.3)  # it is done by then where the two do not take turns
    connections.coming.set()
    await intake
    for work in await sweep:
        assert (await row(engine, work.id))["leased_by"] == "w1", "it is pushed, and anybody may claim it"
        assert await recorder.record("w1", [final(work)], [])

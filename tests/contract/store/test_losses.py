"""A database that lost what it had acknowledged is found out by the process that relies on it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import CancellationRequest, Status
from forwarder.store.engine import identity_of, open_engine
from forwarder.store.submissions.port import CancellationArrival, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Repairs
from tests.support.store.stored import DEADLINE, LATER, arrivals, final, lease, postponed, take_over
from tests.support.worker.works import NOW, doubtful
from tools.servers.postgres.process import PostgresServer


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    opened = Recorder(engine)
    await lease(opened, "w1")
    return opened


async def change(engine: AsyncEngine, statement: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement))


async def lacks(recorder: Recorder, held: Mapping[int, Work]) -> dict[str, int]:
    """What a worker that holds these rows finds missing."""
    claims = len(await recorder.unclaimed(held))
    return {**await recorder.lacking(now=LATER), **({"claims": claims} if claims else {})}


LOSSES = [
    ("the submission", "DELETE FROM reservations WHERE id = (SELECT max(id) FROM reservations)", {"submissions": 1}),
    ("its outcome", "UPDATE reservations SET revision = 0, status = 'PENDING' WHERE revision = 1", {"outcomes": 1}),
    ("its cancellation", "UPDATE reservations SET cancel_requested_at = NULL", {"outcomes": 1}),
    ("its claim", "UPDATE reservations SET leased_by = NULL WHERE status = 'PENDING'", {"claims": 2}),
    (
        "its claim, and another claims it",
        "UPDATE reservations SET leased_by = 'w2' WHERE status = 'PENDING'",
        {"claims": 2},
    ),
    (
        "a row put off, and another claims it",
        "UPDATE reservations SET updated_at = created_at, tries = 0, leased_by = 'w2' WHERE tries = 1",
        {"put_off": 1},
    ),
    ("a row put off", "UPDATE reservations SET updated_at = created_at, tries = 0 WHERE tries = 1", {"put_off": 1}),
    ("nothing", "UPDATE reservations SET leased_by = NULL, possibly_sent = TRUE, takeovers = 1", {}),
]


@pytest.mark.parametrize(("statement", "lacking"), [loss[1:] for loss in LOSSES], ids=[loss[0] for loss in LOSSES])
async def test_what_was_acknowledged_is_asked_for(
    engine: AsyncEngine, recorder: Recorder, statement: str, lacking: dict[str, int]
) -> None:
    works = await recorder.ingest("w1", arrivals([1, 2, 3, 4]), now=NOW)
    await recorder.record("w1", [final(works[0])], [replace(postponed(works[2]), updated_at=LATER)])
    asked = works[1].submission
    cancellation = CancellationRequest(asked.request_id, asked.account_id, asked.key, NOW, None, 1)
    await recorder.request_cancellations([CancellationArrival(cancellation, DEADLINE)], now=NOW)
    held = {works[1].id: works[1], works[3].id: works[3]}
    assert await lacks(recorder, held) == {}
    await change(engine, statement)
    assert await lacks(recorder, held) == lacking


async def test_a_cancellation_without_its_submission_is_no_lost_submission(
    engine: AsyncEngine, recorder: Recorder
) -> None:
    works = await recorder.ingest("w1", arrivals([1, 2, 3]), now=NOW)
    late, strange, over = (arrival.submission for arrival in arrivals([9, 1, 2]))
    await change(engine, f"UPDATE reservations SET status = 'CANCELLED' WHERE request_id = '{over.request_id}'")
    asked = [
        CancellationRequest(late.request_id, late.account_id, late.key, NOW, None, 0),
        CancellationRequest(strange.request_id, "another account", strange.key, NOW, None, 0),
        CancellationRequest(over.request_id, over.account_id, over.key, NOW, None, 0),
    ]
    await recorder.request_cancellations([CancellationArrival(each, DEADLINE) for each in asked], now=NOW)
    held = {work.id: work for work in works if work.submission.request_id != over.request_id}
    assert await lacks(recorder, held) == {}
    await change(engine, "DELETE FROM parked_cancellations")
    assert await lacks(recorder, held) == {"submissions": 1}
    await recorder.request_cancellations([CancellationArrival(asked[0], DEADLINE)], now=NOW)
    await recorder.ingest("w1", arrivals([9]), now=NOW)
    assert await lacks(recorder, held) == {}


async def test_what_was_acknowledged_long_ago_is_asked_for_no_more(engine: AsyncEngine, recorder: Recorder) -> None:
    await recorder.ingest("w1", arrivals([1]), now=NOW)
    await change(engine, "DELETE FROM reservations")
    assert await recorder.lacking(now=NOW + timedelta(minutes=59)) == {"submissions": 1}
    assert await recorder.lacking(now=NOW + timedelta(minutes=61)) == {}


async def test_a_row_that_a_worker_whose_clock_is_behind_has_put_off_since_is_not_lost(
    engine: AsyncEngine, recorder: Recorder
) -> None:
    (work,) = await recorder.ingest("w1", arrivals([1]), now=NOW)
    await recorder.record("w1", [], [replace(postponed(work), updated_at=LATER)])
    other = Recorder(engine)
    await lease(other, "w2")
    (again,) = await other.claim("w2", "acc", [0], now=LATER, limit=1)
    await other.record("w2", [], [replace(postponed(again), updated_at=NOW)])
    assert await recorder.lacking(now=LATER) == {}


@pytest.mark.parametrize("lost", ["its claim", "its next try"])
async def test_what_another_worker_let_go_of_unsent_is_asked_for_like_any_other(
    engine: AsyncEngine, recorder: Recorder, lost: str
) -> None:
    """It was in the queue of a worker that died, and its PMS has neither keys nor a search."""
    await lease(recorder, "w0")
    await recorder.ingest("w0", arrivals([1], held=False), now=NOW)
    await recorder.claim("w0", "acc", [0], now=NOW, limit=1, target="")
    assert await take_over(recorder, "w0") == 1
    (work,) = await recorder.claim("w1", "acc", [0], now=LATER, limit=1, target="")
    held = {work.id: work}
    assert (work.takeovers, work.possibly_sent) == (1, False)
    if lost == "its next try":
        await recorder.record("w1", [], [replace(postponed(work, due_at=LATER), updated_at=LATER)])
        await recorder.claim("w1", "acc", [0], now=LATER, limit=1, target="")
    assert await lacks(recorder, held) == {}
    await change(engine, "UPDATE reservations SET tries = 0")
    if lost == "its claim":
        await change(engine, "UPDATE reservations SET leased_by = NULL")
        assert await lacks(recorder, held) == {"claims": 1}
        await change(engine, "UPDATE reservations SET takeovers = 2")
        assert await lacks(recorder, held) == {}, "another worker took it over, and let go of it as well"
    else:
        assert await recorder.lacking(now=LATER) == {"put_off": 1}


async def test_what_was_put_off_by_a_commit_whose_response_was_lost_is_not_lost(
    engine: AsyncEngine, recorder: Recorder
) -> None:
    """The worker holds it until it has tried again to put it off, which takes seconds after an outage."""
    (work,) = await recorder.ingest("w1", arrivals([1]), now=NOW)
    connection = Recorder(engine)  # to which the response went
    await connection.record("w1", [], [replace(postponed(work), updated_at=LATER)])
    assert await lacks(recorder, {work.id: work}) == {}
    await lease(connection, "w2")
    (again,) = await connection.claim("w2", "acc", [0], now=LATER, limit=1)
    assert (again.id, again.tries) == (work.id, 1)
    assert await lacks(recorder, {work.id: work}) == {}


@pytest.mark.parametrize("came", ["an outcome", "no answer"])
async def test_what_was_sent_and_cannot_be_recorded_because_its_claim_was_lost_is_asked_for(
    engine: AsyncEngine, recorder: Recorder, came: str
) -> None:
    """Its push ended while the database failed over, so that nobody has it in memory any more when the new one is checked."""
    await recorder.ingest("w1", arrivals([1, 2], held=False), now=NOW)
    lost, others = await recorder.claim("w1", "acc", [0], now=NOW, limit=2)
    await change(engine, f"UPDATE reservations SET leased_by = NULL WHERE id = {lost.id}")
    await change(
        engine, f"UPDATE reservations SET leased_by = 'w2', takeovers = 1, possibly_sent = TRUE WHERE id = {others.id}"
    )
    if came == "an outcome":
        assert await recorder.record("w1", [final(lost), final(others)], []) == {}
    else:
        await recorder.record("w1", [], [postponed(each, possibly_sent=True) for each in (lost, others)])
    assert await recorder.lacking(now=LATER) == {"put_off": 1}


async def test_what_an_operator_settled_as_not_made_is_not_lost(engine: AsyncEngine, recorder: Recorder) -> None:
    (work,) = await recorder.ingest("w1", arrivals([1]), now=NOW)
    await recorder.record("w1", [replace(final(work, status=Status.IN_DOUBT), look_at=LATER)], [])
    (look,) = await recorder.claim("w1", "acc", [0], now=LATER, limit=1)
    await recorder.record("w1", [], [postponed(look, possibly_sent=True)])
    repairs = Repairs(engine)
    in_doubt = await repairs.in_doubt(work.submission.request_id)
    assert in_doubt is not None
    assert await repairs.reopen(in_doubt, attempts=(), now=LATER, deadline_at=DEADLINE)
    assert await recorder.lacking(now=LATER) == {}


@pytest.mark.parametrize("what", ["a push", "a push that was recorded, whose response was lost", "a look-up"])
async def test_what_others_settled_before_its_worker_was_back_is_not_lost(engine: AsyncEngine, what: str) -> None:
    one, other, repairs = Recorder(engine), Recorder(engine), Repairs(engine)
    await lease(one, "w1")
    await lease(other, "w2")
    (work,) = await one.ingest("w1", arrivals([1]), now=NOW)
    if what == "a look-up":
        await one.record("w1", [replace(final(work, status=Status.IN_DOUBT), evidence=doubtful(), look_at=LATER)], [])
        (work,) = await one.claim("w1", "acc", [0], now=LATER, limit=1)
    unanswered = postponed(work, possibly_sent=True)
    if "recorded" in what:
        await Recorder(engine).record("w1", [], [unanswered])
    else:
        await take_over(other, "w1")
    if what == "a look-up":
        in_doubt = await repairs.in_doubt(work.submission.request_id)
        assert in_doubt is not None
        assert await repairs.reopen(in_doubt, attempts=(), now=LATER, deadline_at=DEADLINE)
    else:
        (theirs,) = await other.claim("w2", "acc", [0], now=LATER, limit=1, target="")
        await other.record("w2", [], [replace(postponed(theirs), evidence=theirs.evidence.settled(""))])
    await one.record("w1", [], [unanswered])
    assert await one.lacking(now=LATER) == {}


async def test_what_was_not_put_off_because_the_row_was_no_longer_held_is_not_lost(
    engine: AsyncEngine, recorder: Recorder
) -> None:
    (work,) = await recorder.ingest("w1", arrivals([1]), now=NOW)
    await change(engine, "UPDATE reservations SET leased_by = NULL")
    await recorder.record("w1", [], [replace(postponed(work), updated_at=LATER)])
    assert await recorder.lacking(now=LATER) == {}


async def test_workers_wait_for_one_another_in_another_database_and_for_a_recovery_if_one_of_them_lacks_something(
    engine: AsyncEngine,
) -> None:
    one, other = Recorder(engine), Recorder(engine)
    one.checked = other.checked = "the primary"
    await lease(one, "w1")
    await lease(other, "w2")
    assert await one.agree("w1", "a standby") == {"workers": 1}
    assert await other.agree("w2", "a standby") == {}
    assert await one.agree("w1", "a standby") == {}
    assert await one.agree("w1", "another standby") == {"workers": 1}
    await other.report_loss(NOW)
    await other.end_lease("w2")
    assert await one.agree("w1", "another standby") == {"recoveries": 1}
    assert await one.lacking(now=NOW) == {"recoveries": 1}


async def test_a_worker_that_lost_its_lease_with_the_failover_has_yet_to_look(engine: AsyncEngine) -> None:
    one, other = Recorder(engine), Recorder(engine)
    for recorder in (one, other):
        identity_of(engine).seen = "the primary"
        await lease(recorder, "w1" if recorder is one else "w2")
    await change(engine, "DELETE FROM workers WHERE id = 'w2'")
    identity_of(engine).seen = "a standby"
    await lease(other, "w3")
    assert await one.agree("w1", "a standby") == {"workers": 1}


async def test_a_worker_of_a_release_that_does_not_say_what_it_checked_is_not_waited_for(engine: AsyncEngine) -> None:
    recorder = Recorder(engine)
    await lease(recorder, "w1")
    await lease(Recorder(engine), "w2")
    await change(engine, "UPDATE workers SET checked = NULL WHERE id = 'w2'")
    assert await recorder.agree("w1", "a standby") == {}


# --- which database it is -------------------------------------------------------------------------------------------------


@pytest.fixture
async def own_engine(own_url: str) -> AsyncIterator[AsyncEngine]:
    opened = open_engine(own_url, pool_size=3)
    yield opened
    await opened.dispose()


async def test_another_connection_to_the_same_database_is_no_change_and_a_restart_is(
    server: PostgresServer, own_engine: AsyncEngine
) -> None:
    recorder = Recorder(own_engine)
    await asyncio.gather(*(recorder.count_due(now=NOW) for _ in range(3)))
    await recorder.observe()
    assert recorder.identity.changes == 0
    await asyncio.to_thread(server.restart)
    await recorder.count_due(now=NOW)
    assert recorder.identity.changes == 1
    await asyncio.gather(*(recorder.count_due(now=NOW) for _ in range(3)))
    assert recorder.identity.changes == 1


async def test_tables_that_were_made_anew_are_another_database(own_engine: AsyncEngine) -> None:
    """By a dump that was restored into the same server, for example; seen on a connection that was there before."""
    recorder = Recorder(own_engine)
    await recorder.observe()
    await change(own_engine, "CREATE TABLE copied (LIKE reservations INCLUDING ALL)")
    await change(own_engine, "ALTER TABLE reservations RENAME TO replaced")
    await change(own_engine, "ALTER TABLE copied RENAME TO reservations")
    await recorder.observe()
    assert recorder.identity.changes == 1

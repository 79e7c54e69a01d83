"""What every store does with cancellations, on every backend: noted once, in whichever order they come, and never lost."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic_core import from_json
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import CancellationRequest, CancellationStatus, Status
from forwarder.reservation.submission import NaturalKey
from forwarder.store.lists.port import StoredSubmission
from forwarder.store.lists.reader import Reader
from forwarder.store.submissions.port import CancellationArrival, NotedCancellation, NotedOn, PmsReservation, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Repairs, StoreRecovery
from tests.support.store.stored import (
    DEADLINE,
    LATER,
    arrival,
    arrivals,
    final,
    lease,
    postponed,
    row,
    take_over,
    unpublished,
)
from tests.support.worker.works import NOW, submission

ALL = range(16)
ASKED_AT = NOW + timedelta(minutes=1)
CANCEL_BY = NOW + timedelta(days=3)
ASKED = NotedCancellation("2027-01-01T00:01:00.000Z", "Ill.")


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 congo=t61"


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    """A store with the worker "w1" holding its lease."""
    opened = Recorder(engine)
    await lease(opened, "w1")
    return opened


def asked(number: int = 1, *, revision: int = 0, account: str = "acc", **fields: Any) -> CancellationArrival:
    """The cancellation of the `number`-th submission, arriving."""
    about = submission(number, account=account)
    request = CancellationRequest(about.request_id, account, about.key, ASKED_AT, "Ill.", revision)
    return CancellationArrival(replace(request, **fields), CANCEL_BY)


async def ask(recorder: Recorder, *which: CancellationArrival) -> None:
    await recorder.request_cancellations(which or [asked()], now=LATER)


async def taken_in(recorder: Recorder, *numbers: int, held: bool = True) -> list[Work]:
    return list(await recorder.ingest("w1", arrivals(numbers or [1], held=held), now=NOW))


async def confirmed(recorder: Recorder, number: int = 1) -> Work:
    """A row that was made, its event published."""
    (work,) = await taken_in(recorder, number)
    await record(recorder, final(work))
    return work


async def record(recorder: Recorder, *finals: Any) -> None:
    events = await recorder.record("w1", finals, [])
    assert len(events) == len(finals)
    await recorder.published([entry.id for entry in events.values()])


async def claimed(recorder: Recorder, *, at: Any = LATER) -> Sequence[Work]:
    return await recorder.claim("w1", "acc", ALL, now=at, limit=10)


async def stored(engine: AsyncEngine, number: int = 1) -> StoredSubmission:
    found = await Reader(engine).submission("acc", submission(number).request_id)
    assert found is not None
    return found


def cancelled(work: Work) -> Any:
    """`work`, cancelled by the PMS."""
    done = final(work, status=Status.CANCELLED, at=LATER)
    record = {**done.event.data["reservation"], "cancelledAt": "2027-01-01T00:05:00.000Z"}
    event = replace(done.event, data={**done.event.data, "reservation": record})
    return replace(done, event=event, problem=None, cancelled_at=LATER, pms_reservation_id="pms-1")


def refused(work: Work) -> Any:
    """`work`, which the PMS does not cancel."""
    return replace(final(work, at=LATER), cancel_problem={"code": "cancellation_refused", "status": 409})


async def test_what_is_confirmed_is_due_at_once_with_all_that_its_cancellation_takes(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    made = await confirmed(recorder)
    assert await claimed(recorder) == []
    await ask(recorder)
    (work,) = await claimed(recorder)
    assert (work.id, work.status, work.cancellation, work.tries) == (made.id, Status.CONFIRMED, ASKED, 0)
    assert work.submission.trace == submission(1).trace
    assert work.pms_reservation == PmsReservation("pms-1", final(made).event.data["reservation"])
    assert (work.deadline_at, work.revision, work.submission.card) == (CANCEL_BY, 1, None)
    now = await stored(engine)
    assert now.cancellation is not None
    assert (now.status, now.cancellation.status) == (Status.CONFIRMED, CancellationStatus.REQUESTED)
    assert (now.cancellation.requested_at, now.cancellation.reason) == ("2027-01-01T00:01:00.000Z", "Ill.")
    assert (now.revision, now.property_id) == (1, "1001")


async def test_from_then_on_it_is_part_of_the_trace_of_who_cancels(recorder: Recorder) -> None:
    (own, others) = [replace(each, submission=replace(each.submission, trace="their own")) for each in arrivals([1, 2])]
    made = await recorder.ingest("w1", [own, others], now=NOW)
    assert [work.submission.trace for work in made] == ["their own"] * 2
    await record(recorder, *map(final, made))
    await ask(recorder, asked(1, trace=TRACE), asked(2))
    works = {work.submission.request_id: work.submission.trace for work in await claimed(recorder)}
    assert works == {own.submission.request_id: TRACE, others.submission.request_id: "their own"}


async def test_a_cancellation_that_was_carried_out_is_final(recorder: Recorder, engine: AsyncEngine) -> None:
    await confirmed(recorder)
    await ask(recorder)
    (work,) = await claimed(recorder)
    await record(recorder, cancelled(work))
    kept = await row(engine, work.id)
    assert (kept["status"], kept["due_at"], kept["leased_by"], kept["revision"]) == ("CANCELLED", None, None, 2)
    assert (kept["cancelled_at"], kept["pms_reservation_id"]) == (LATER, "pms-1")
    now = await stored(engine)
    assert now.cancellation is not None
    assert (now.status, now.cancellation.status) == (Status.CANCELLED, CancellationStatus.DONE)
    assert from_json(now.record)["cancelledAt"] == "2027-01-01T00:05:00.000Z"


@pytest.mark.parametrize("revision", [0, 1, 2])
async def test_nothing_that_is_delivered_again_revives_what_was_cancelled(
    recorder: Recorder, engine: AsyncEngine, revision: int
) -> None:
    await confirmed(recorder)
    await ask(recorder)
    (work,) = await claimed(recorder)
    await record(recorder, cancelled(work))
    before = await row(engine, work.id)
    assert await taken_in(recorder) == []
    assert await recorder.ingest("w1", [replace(arrival(1), replay_of=revision)], now=LATER) == []
    await ask(recorder, asked(revision=revision))
    assert await row(engine, work.id) == before
    assert await claimed(recorder, at=NOW + timedelta(days=30)) == []


async def test_what_was_never_sent_is_ended_by_whoever_keeps_deadlines(recorder: Recorder) -> None:
    await taken_in(recorder, held=False)
    assert await recorder.claim_expired("w1", ALL, now=LATER, limit=10) == []
    await ask(recorder)
    (work,) = await recorder.claim_expired("w1", ALL, now=LATER, limit=10)
    assert (work.status, work.cancellation, work.possibly_sent, work.pms_reservation) == (
        Status.PENDING,
        ASKED,
        False,
        None,
    )


async def test_what_may_have_been_sent_is_worked_on_when_it_is_due(recorder: Recorder) -> None:
    (held,) = await taken_in(recorder)
    due_at = LATER + timedelta(minutes=1)
    await recorder.record("w1", [], [postponed(held, due_at=due_at, possibly_sent=True)])
    await ask(recorder)
    assert await recorder.claim_expired("w1", ALL, now=due_at, limit=10) == []
    assert await claimed(recorder) == []
    (work,) = await claimed(recorder, at=due_at)
    assert (work.cancellation, work.possibly_sent, work.deadline_at) == (ASKED, True, DEADLINE)


async def test_a_push_under_way_is_left_to_its_worker_and_cancelled_when_it_went_well(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    (held,) = await taken_in(recorder)
    await ask(recorder)
    assert await claimed(recorder) == []
    assert await recorder.claim_expired("w1", ALL, now=LATER, limit=10) == []
    assert (await row(engine, held.id))["leased_by"] == "w1"
    until = NOW + timedelta(days=9)
    await record(recorder, replace(final(held), cancel_by=until))
    (work,) = await claimed(recorder)
    assert (work.status, work.cancellation, work.deadline_at, work.tries) == (Status.CONFIRMED, ASKED, until, 0)


async def test_a_push_under_way_that_was_put_off_is_not_made_again(recorder: Recorder) -> None:
    (held,) = await taken_in(recorder)
    await ask(recorder)
    await recorder.record("w1", [], [postponed(held, due_at=NOW + timedelta(hours=5))])
    (work,) = await recorder.claim_expired("w1", ALL, now=LATER, limit=10)
    assert (work.cancellation, work.status) == (ASKED, Status.PENDING)


async def test_what_is_given_back_unsent_is_not_sent_any_more(recorder: Recorder) -> None:
    sure, unsure = await taken_in(recorder, 1, 2)
    await recorder.record("w1", [], [postponed(unsure, due_at=NOW, possibly_sent=True)])
    await claimed(recorder, at=NOW)
    await ask(recorder, asked(1), asked(2))
    await recorder.release("w1", [sure.id, unsure.id])
    works = await recorder.claim_expired("w1", ALL, now=LATER, limit=10)
    assert [(work.id, work.cancellation) for work in works] == [(sure.id, ASKED)]
    (work,) = await claimed(recorder)
    assert (work.id, work.possibly_sent, work.deadline_at) == (unsure.id, True, DEADLINE)


async def test_a_push_under_way_whose_worker_died_is_in_doubt_as_ever(recorder: Recorder) -> None:
    await taken_in(recorder)
    await ask(recorder)
    await take_over(recorder, "w1")
    await lease(recorder, "w2")
    (work,) = await recorder.claim("w2", "acc", ALL, now=LATER, limit=10)
    assert (work.possibly_sent, work.cancellation) == (True, ASKED)


@pytest.mark.parametrize("status", [Status.REJECTED, Status.FAILED])
async def test_what_came_to_nothing_needs_no_cancellation(
    recorder: Recorder, engine: AsyncEngine, status: Status
) -> None:
    (held,) = await taken_in(recorder)
    await ask(recorder)
    await record(recorder, final(held, status=status))
    now = await stored(engine)
    assert now.cancellation is not None
    assert (now.status, now.cancellation.status) == (status, CancellationStatus.NOT_NEEDED)
    assert await claimed(recorder, at=NOW + timedelta(days=30)) == []


async def test_a_failure_that_is_put_back_is_still_to_be_cancelled(recorder: Recorder) -> None:
    (held,) = await taken_in(recorder)
    await ask(recorder)
    await record(recorder, final(held, status=Status.FAILED))
    await recorder.ingest("w1", [replace(arrival(1), replay_of=1)], now=LATER)
    (work,) = await claimed(recorder)
    assert (work.status, work.cancellation) == (Status.PENDING, ASKED)


@pytest.mark.parametrize("held", [True, False])
async def test_one_that_comes_before_its_submission_waits_for_it(
    recorder: Recorder, engine: AsyncEngine, held: bool
) -> None:
    await ask(recorder, asked(1, trace=TRACE), asked(3))
    works = await taken_in(recorder, 1, 2, held=held)
    assert [work.submission.request_id for work in works] == ([submission(2).request_id] if held else [])
    (work,) = await recorder.claim_expired("w1", ALL, now=LATER, limit=10)
    assert (work.submission.request_id, work.cancellation, work.status) == (
        submission(1).request_id,
        ASKED,
        Status.PENDING,
    )
    assert work.submission.trace == TRACE
    assert await parked(engine) == [submission(3).request_id]
    now = await stored(engine)
    assert now.cancellation is not None
    assert now.cancellation.status is CancellationStatus.REQUESTED


async def parked(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return [name for (name,) in await connection.execute(text("SELECT request_id FROM parked_cancellations"))]


async def test_of_both_at_once_whoever_is_second_finds_the_first(recorder: Recorder, engine: AsyncEngine) -> None:
    """Neither passes the other unseen, in many tries with two connections."""
    other = Recorder(engine)
    numbers = range(1, 61)

    async def each(number: int) -> None:
        if number % 2:
            await asyncio.gather(
                other.ingest("w2", arrivals([number], held=False), now=NOW), ask(recorder, asked(number))
            )
        else:
            await asyncio.gather(
                ask(recorder, asked(number)), other.ingest("w2", arrivals([number], held=False), now=NOW)
            )

    await asyncio.gather(*(each(number) for number in numbers))
    assert await parked(engine) == []
    works = await recorder.claim_expired("w1", ALL, now=LATER, limit=100)
    assert sorted(work.submission.request_id for work in works) == [submission(each).request_id for each in numbers]
    assert {work.cancellation for work in works} == {ASKED}


async def test_whose_account_it_is_not_changes_nothing(recorder: Recorder, engine: AsyncEngine) -> None:
    await confirmed(recorder)
    await ask(recorder, asked(account="stranger", request_id=submission(1).request_id))
    assert (await stored(engine)).cancellation is None
    assert await claimed(recorder) == []


async def test_what_is_asked_twice_is_asked_once(recorder: Recorder, engine: AsyncEngine) -> None:
    await confirmed(recorder)
    await ask(recorder, asked(), asked(reason="Again."))
    (work,) = await claimed(recorder)
    before = await row(engine, work.id)
    await ask(recorder, asked(revision=1, requested_at=LATER))
    assert await row(engine, work.id) == before
    await recorder.record("w1", [], [postponed(work, due_at=NOW + timedelta(hours=1))])
    await ask(recorder, asked(revision=1, requested_at=LATER))
    assert await claimed(recorder) == []


async def test_one_that_was_refused_stays_confirmed_and_may_be_asked_for_anew(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    await confirmed(recorder)
    await ask(recorder)
    (work,) = await claimed(recorder)
    await record(recorder, refused(work))
    now = await stored(engine)
    assert now.cancellation is not None
    assert (now.status, now.revision, now.cancellation.status) == (Status.CONFIRMED, 2, CancellationStatus.REFUSED)
    assert now.cancellation.problem == {"code": "cancellation_refused", "status": 409}
    for delivered_again in (asked(revision=0), asked(revision=1)):
        await ask(recorder, delivered_again)
    assert await claimed(recorder) == []
    await ask(recorder, asked(revision=2, requested_at=LATER))
    (again,) = await claimed(recorder)
    assert (again.cancellation, again.revision, again.tries) == (
        NotedCancellation("2027-01-01T00:05:00.000Z", "Ill."),
        2,
        0,
    )
    await record(recorder, cancelled(again))
    assert (await stored(engine)).status is Status.CANCELLED


async def test_a_cancellation_that_was_not_carried_out_in_time_is_claimed_as_expired(recorder: Recorder) -> None:
    await confirmed(recorder)
    await ask(recorder)
    (held,) = await claimed(recorder)
    await recorder.record("w1", [], [postponed(held, due_at=CANCEL_BY + timedelta(days=1))])
    assert await recorder.claim_expired("w1", ALL, now=CANCEL_BY - timedelta(seconds=1), limit=10) == []
    (work,) = await recorder.claim_expired("w1", ALL, now=CANCEL_BY, limit=10)
    assert (work.status, work.tries, len(work.attempts)) == (Status.CONFIRMED, 1, 2)


async def test_what_was_made_and_is_not_to_be_cancelled_never_expires(recorder: Recorder) -> None:
    await confirmed(recorder)
    assert await recorder.claim_expired("w1", ALL, now=NOW + timedelta(days=365), limit=10) == []


async def test_a_cancellation_whose_worker_died_is_tried_again(recorder: Recorder) -> None:
    await confirmed(recorder)
    await ask(recorder)
    await claimed(recorder)
    await take_over(recorder, "w1")
    await lease(recorder, "w2")
    (work,) = await recorder.claim("w2", "acc", ALL, now=LATER, limit=10)
    assert (work.status, work.cancellation, work.pms_reservation is not None) == (Status.CONFIRMED, ASKED, True)


async def test_what_an_operator_finds_made_is_cancelled_then(recorder: Recorder, engine: AsyncEngine) -> None:
    (held,) = await taken_in(recorder)
    await ask(recorder)
    await record(recorder, final(held, status=Status.IN_DOUBT))
    repairs = Repairs(engine)
    possibly_sent = await repairs.in_doubt(held.submission.request_id)
    assert possibly_sent is not None
    assert possibly_sent.cancellation == ASKED
    until = NOW + timedelta(days=8)
    assert await repairs.settle(replace(final(possibly_sent), cancel_by=until))
    (work,) = await claimed(recorder)
    assert (work.status, work.cancellation, work.deadline_at) == (Status.CONFIRMED, ASKED, until)


async def test_a_later_event_is_in_its_turn_once_those_before_it_are_published(recorder: Recorder) -> None:
    first, second = await taken_in(recorder, 1, 2)
    events = await recorder.record("w1", [final(first), final(second)], [])
    assert all(entry.in_turn for entry in events.values())
    await recorder.published([events[first.id].id])
    await ask(recorder, asked(1), asked(2))
    works = await claimed(recorder)
    later = await recorder.record("w1", [cancelled(work) for work in works], [])
    assert {work_id: entry.in_turn for work_id, entry in later.items()} == {first.id: True, second.id: False}
    assert {entry.id for entry in await unpublished(recorder)} == {later[first.id].id, events[second.id].id}


async def test_a_look_up_that_was_overtaken_changes_nothing(recorder: Recorder, engine: AsyncEngine) -> None:
    """An operator settles what is being looked up, and it is claimed anew under the same worker, to be cancelled."""
    (work,) = await taken_in(recorder)
    await record(recorder, replace(final(work, status=Status.IN_DOUBT), look_at=LATER))
    (looked_up,) = await recorder.claim("w1", "acc", ALL, now=LATER, limit=5)
    await ask(recorder, asked(revision=1))
    repairs = Repairs(engine)
    in_doubt = await repairs.in_doubt(work.submission.request_id)
    assert in_doubt is not None
    assert await repairs.settle(replace(final(in_doubt), cancel_by=DEADLINE))
    (to_cancel,) = await recorder.claim("w1", "acc", ALL, now=LATER, limit=5)
    await recorder.record("w1", [], [replace(postponed(looked_up, possibly_sent=True), due_at=None)])
    kept = await row(engine, work.id)
    assert (kept["status"], kept["leased_by"], kept["possibly_sent"]) == ("CONFIRMED", "w1", False)
    await recorder.record("w1", [], [postponed(to_cancel, due_at=LATER)])
    assert len(await recorder.claim("w1", "acc", ALL, now=LATER, limit=5)) == 1


async def test_who_notes_a_cancellation_learns_who_has_the_row(recorder: Recorder) -> None:
    await recorder.ingest("w1", arrivals([1], partition=3), now=NOW)
    await recorder.ingest("w1", arrivals([2], partition=4, held=False), now=NOW)
    noted = await recorder.request_cancellations([asked(1), asked(2), asked(3)], now=LATER)
    ids = [submission(number).request_id for number in (1, 2)]
    assert noted == {ids[0]: NotedOn(ids[0], 3, "w1"), ids[1]: NotedOn(ids[1], 4, None)}


@pytest.mark.parametrize("by", ["a replay", "an operator"])
async def test_what_is_pending_again_and_cancelled_ends_although_its_account_is_paused(
    engine: AsyncEngine, recorder: Recorder, by: str
) -> None:
    """Its account's queue is closed, so that only the deadline ends it."""
    (work,) = await taken_in(recorder)
    status = Status.FAILED if by == "a replay" else Status.IN_DOUBT
    await record(recorder, replace(final(work, status=status), look_at=None))
    await ask(recorder)
    if by == "a replay":
        await recorder.ingest("w1", [replace(arrival(1), replay_of=1)], now=LATER)
    else:
        repairs = Repairs(engine)
        in_doubt = await repairs.in_doubt(work.submission.request_id)
        assert in_doubt is not None
        assert await repairs.reopen(in_doubt, attempts=(), now=LATER, deadline_at=DEADLINE)
    assert [each.id for each in await recorder.claim_expired("w1", ALL, now=LATER, limit=10)] == [work.id]


async def test_a_lost_cancellation_is_missed_under_each_name_of_its_submission(
    engine: AsyncEngine, recorder: Recorder
) -> None:
    same = NaturalKey("the same stay", window_seconds=300)
    both = [replace(each, submission=replace(each.submission, natural=same)) for each in arrivals([1, 2])]
    await recorder.ingest("w1", both, now=NOW)
    requests, store = [asked(number).request for number in (1, 2)], StoreRecovery(engine)
    for each in requests:
        assert await store.cancellations_not_noted([each]) == 1
    await ask(recorder, asked(2))
    assert await store.cancellations_not_noted(requests) == 0

"""What every store does, on every backend: failures that are put back, what is in doubt settled by hand, deadlines, and the order
in which events leave the outbox."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.reservation.outcome import Status
from forwarder.store.lists.overview import Overview
from forwarder.store.submissions.port import Arrival, DeadLetter, OutboxEvent, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Places, Repairs
from tests.support.store.stored import CARD, DEADLINE, LATER, arrival, arrivals, attempt, final, lease, postponed, row
from tests.support.worker.works import NOW

ALL = range(16)
MUCH_LATER = DEADLINE + timedelta(days=1)
LETTER = DeadLetter("acc:1001", '{"é": 1}', {"ce_id": "rsv_1", "dlt-exception-message": 'said "no"'})


@pytest.fixture
async def recorder(engine: AsyncEngine) -> Recorder:
    """A store with the worker "w1" holding its lease."""
    opened = Recorder(engine)
    await lease(opened, "w1")
    return opened


@pytest.fixture
def repairs(engine: AsyncEngine) -> Repairs:
    return Repairs(engine)


async def ended(recorder: Recorder, number: int, status: Status, *, look_at: datetime | None = None) -> Work:
    """A submission that "w1" took in and that ended so."""
    (work,) = await recorder.ingest("w1", [arrival(number)], now=NOW)
    await recorder.record("w1", [replace(final(work, status=status), look_at=look_at)], [])
    return work


# --- a failure that is put back -------------------------------------------------------------------------------------------


def put_back(number: int, revision: int, **more: object) -> Arrival:
    """The dead letter of the failure with that revision, arriving on its topic again."""
    again = replace(arrival(number, partition=3), replay_of=revision, deadline_at=MUCH_LATER)
    return replace(again, **more)  # type: ignore[arg-type]


async def test_a_failure_that_is_put_back_is_pending_again_and_due_at_once(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    work = await ended(recorder, 1, Status.FAILED)
    assert (await row(engine, work.id))["card"] is None
    assert await recorder.ingest("w1", [put_back(1, 1)], now=LATER) == []
    kept = await row(engine, work.id)
    assert (kept["status"], kept["due_at"], kept["partition"], kept["problem"]) == ("PENDING", LATER, 3, None)
    (again,) = await recorder.claim("w1", "acc", [3], now=LATER, limit=10)
    assert (again.id, again.status, again.revision, again.tries) == (work.id, Status.PENDING, 1, 0)
    assert (again.deadline_at, again.submission.card, again.possibly_sent) == (MUCH_LATER, CARD, False)
    assert again.attempts == (attempt(),)
    events = await recorder.record("w1", [final(again)], [])
    assert events[work.id].event.event_id == f"{work.submission.request_id}.2"


async def test_its_place_is_that_of_the_letter(recorder: Recorder, engine: AsyncEngine) -> None:
    """The topic was given more partitions since it failed: its old offset is beyond the end of its new one."""
    (work,) = await recorder.ingest("w1", [replace(arrival(1), offset=5000)], now=NOW)
    await recorder.record("w1", [final(work, status=Status.FAILED)], [])
    await recorder.ingest("w1", [put_back(1, 1, offset=7)], now=LATER)
    assert [each[:2] for each in await Places(engine).newest_places()] == [(3, 7)]


async def test_without_a_card_it_comes_back_without_one(recorder: Recorder) -> None:
    await ended(recorder, 1, Status.FAILED)
    bare = replace(arrival(1).submission, card=None)
    await recorder.ingest("w1", [put_back(1, 1, submission=bare)], now=LATER)
    (again,) = await recorder.claim("w1", "acc", [3], now=LATER, limit=10)
    assert again.submission.card is None


async def test_a_letter_works_once(recorder: Recorder, engine: AsyncEngine) -> None:
    work = await ended(recorder, 1, Status.FAILED)
    await recorder.ingest("w1", [put_back(1, 1), put_back(1, 1)], now=LATER)
    (again,) = await recorder.claim("w1", "acc", ALL, now=LATER, limit=10)
    await recorder.ingest("w1", [put_back(1, 1, partition=5)], now=MUCH_LATER)
    kept = await row(engine, work.id)
    assert (kept["leased_by"], kept["partition"], kept["due_at"]) == ("w1", 3, LATER)
    await recorder.record("w1", [final(again, status=Status.FAILED)], [])
    await recorder.ingest("w1", [put_back(1, 1)], now=MUCH_LATER)
    assert (await row(engine, work.id))["status"] == "FAILED"
    await recorder.ingest("w1", [put_back(1, 2)], now=MUCH_LATER)
    assert (await row(engine, work.id))["status"] == "PENDING"


@pytest.mark.parametrize("status", [Status.CONFIRMED, Status.REJECTED, Status.IN_DOUBT])
async def test_only_a_failure_can_be_put_back(recorder: Recorder, engine: AsyncEngine, status: Status) -> None:
    work = await ended(recorder, 1, status)
    before = await row(engine, work.id)
    assert await recorder.ingest("w1", [put_back(1, 1)], now=LATER) == []
    assert await row(engine, work.id) == before


async def test_a_failure_is_not_put_back_by_the_plain_message(recorder: Recorder, engine: AsyncEngine) -> None:
    work = await ended(recorder, 1, Status.FAILED)
    assert await recorder.ingest("w1", [arrival(1)], now=LATER) == []
    assert (await row(engine, work.id))["status"] == "FAILED"


async def test_letters_and_new_submissions_come_in_one_batch(recorder: Recorder) -> None:
    works = [await ended(recorder, number, Status.FAILED) for number in (1, 2)]
    taken = await recorder.ingest("w1", [put_back(1, 1), arrival(9), put_back(2, 1)], now=LATER)
    assert [work.submission.request_id for work in taken] == [arrival(9).submission.request_id]
    revived = await recorder.claim("w1", "acc", [3], now=LATER, limit=10)
    assert {work.id for work in revived} == {work.id for work in works}


async def test_a_letter_of_a_submission_that_the_store_does_not_know_is_taken_in(recorder: Recorder) -> None:
    (work,) = await recorder.ingest("w1", [put_back(1, 4)], now=LATER)
    assert (work.status, work.revision, work.deadline_at) == (Status.PENDING, 0, MUCH_LATER)


# --- deadlines ------------------------------------------------------------------------------------------------------------


async def _due_later(recorder: Recorder, numbers: range, *, partition: int = 0, account: str = "acc") -> list[Work]:
    works = await recorder.ingest("w1", arrivals(numbers, partition=partition, account=account), now=NOW)
    await recorder.record("w1", [], [postponed(work, due_at=MUCH_LATER) for work in works])
    return list(works)


async def test_what_has_expired_is_claimed_whenever_it_is_due_and_whosever_it_is(recorder: Recorder) -> None:
    mine = await _due_later(recorder, range(1, 3))
    others = await _due_later(recorder, range(3, 4), account="other")
    assert await recorder.claim_expired("w1", ALL, now=DEADLINE - timedelta(milliseconds=1), limit=10) == []
    expired = await recorder.claim_expired("w1", ALL, now=DEADLINE, limit=10)
    assert {work.id for work in expired} == {work.id for work in (*mine, *others)}
    assert await recorder.claim_expired("w1", ALL, now=DEADLINE, limit=10) == []
    assert len(await recorder.record("w1", [final(work, status=Status.FAILED) for work in expired], [])) == 3


async def test_what_expired_first_is_claimed_first_and_no_more_than_asked_for(recorder: Recorder) -> None:
    late = [
        replace(arrival(number, held=False), deadline_at=DEADLINE + timedelta(seconds=seconds))
        for number, seconds in ((1, 30), (2, 10), (3, 20))
    ]
    await recorder.ingest("w1", late, now=NOW)
    expired = await recorder.claim_expired("w1", ALL, now=MUCH_LATER, limit=2)
    assert {work.submission.request_id[-1] for work in expired} == {"2", "3"}


async def test_only_pending_rows_of_the_partitions_that_nobody_holds_expire(recorder: Recorder) -> None:
    await ended(recorder, 1, Status.IN_DOUBT, look_at=LATER)
    await ended(recorder, 2, Status.FAILED)
    await recorder.ingest("w1", [arrival(3)], now=NOW)
    await _due_later(recorder, range(4, 5), partition=2)
    assert await recorder.claim_expired("w1", [0, 1], now=MUCH_LATER, limit=10) == []
    assert await recorder.claim_expired("w1", [], now=MUCH_LATER, limit=10) == []
    assert await recorder.claim_expired("stranger", [2], now=MUCH_LATER, limit=10) == []
    assert len(await recorder.claim_expired("w1", [2], now=MUCH_LATER, limit=10)) == 1


# --- settling by hand -----------------------------------------------------------------------------------------------------


async def _in_doubt(recorder: Recorder, repairs: Repairs, *, look_at: datetime | None = None) -> Work:
    work = await ended(recorder, 1, Status.IN_DOUBT, look_at=look_at)
    found = await repairs.in_doubt(work.submission.request_id)
    assert found is not None
    return found


async def test_what_is_in_doubt_is_found_with_its_card_and_nothing_else_is(
    recorder: Recorder, repairs: Repairs
) -> None:
    work = await _in_doubt(recorder, repairs)
    assert (work.status, work.revision, work.possibly_sent) == (Status.IN_DOUBT, 1, True)
    assert work.submission == arrival(1).submission
    for number, status in ((2, Status.CONFIRMED), (3, Status.REJECTED), (4, Status.FAILED)):
        other = await ended(recorder, number, status)
        assert await repairs.in_doubt(other.submission.request_id) is None
    (pending,) = await recorder.ingest("w1", [arrival(5)], now=NOW)
    assert await repairs.in_doubt(pending.submission.request_id) is None
    assert await repairs.in_doubt("rsv_unknown") is None


@pytest.mark.parametrize("status", [Status.CONFIRMED, Status.REJECTED])
async def test_what_is_settled_is_final_and_its_event_waits_in_the_outbox(
    recorder: Recorder, repairs: Repairs, engine: AsyncEngine, status: Status
) -> None:
    work = await _in_doubt(recorder, repairs)
    outcome = final(work, status=status)
    assert await repairs.settle(outcome)
    kept = await row(engine, work.id)
    assert (kept["status"], kept["due_at"], kept["card"], kept["possibly_sent"]) == (status.value, None, None, False)
    assert kept["revision"] == 2
    first, second = await _all_events(recorder)
    assert [entry.event.revision for entry in (first, second)] == [1, 2]
    assert second.event == outcome.event


async def test_what_is_settled_already_is_not_settled_again(
    recorder: Recorder, repairs: Repairs, engine: AsyncEngine
) -> None:
    work = await _in_doubt(recorder, repairs)
    assert await repairs.settle(final(work))
    before = await row(engine, work.id)
    assert not await repairs.settle(final(work, status=Status.REJECTED))
    assert not await repairs.reopen(work, attempts=(), now=LATER, deadline_at=MUCH_LATER)
    assert await row(engine, work.id) == before
    assert len(await _all_events(recorder)) == 2


async def test_of_two_who_settle_at_once_one_has_the_last_word(engine: AsyncEngine, recorder: Recorder) -> None:
    work = await _in_doubt(recorder, Repairs(engine))
    words = [final(work), final(work, status=Status.REJECTED), final(work, status=Status.CONFIRMED)]
    heard = await asyncio.gather(*(Repairs(engine).settle(word) for word in words))
    assert heard.count(True) == 1
    kept = await row(engine, work.id)
    assert (kept["status"], kept["revision"]) == (words[heard.index(True)].status.value, 2)
    assert len(await _all_events(recorder)) == 2


async def test_what_a_worker_finds_out_after_it_was_settled_changes_nothing(
    recorder: Recorder, repairs: Repairs, engine: AsyncEngine
) -> None:
    read = await _in_doubt(recorder, repairs, look_at=LATER)
    (looked_for,) = await recorder.claim("w1", "acc", ALL, now=LATER, limit=10)
    assert (looked_for.id, looked_for.status) == (read.id, Status.IN_DOUBT)
    assert await repairs.settle(final(read))
    assert await recorder.record("w1", [final(looked_for, status=Status.FAILED)], []) == {}
    await recorder.record("w1", [], [postponed(looked_for)])
    kept = await row(engine, read.id)
    assert (kept["status"], kept["due_at"], kept["leased_by"]) == ("CONFIRMED", None, None)


async def test_an_operator_who_read_before_a_worker_found_it_settles_nothing(
    recorder: Recorder, repairs: Repairs, engine: AsyncEngine
) -> None:
    read = await _in_doubt(recorder, repairs, look_at=LATER)
    (looked_for,) = await recorder.claim("w1", "acc", ALL, now=LATER, limit=10)
    await recorder.record("w1", [final(looked_for)], [])
    assert not await repairs.settle(final(read, status=Status.REJECTED))
    assert not await repairs.reopen(read, attempts=(), now=LATER, deadline_at=MUCH_LATER)
    assert (await row(engine, read.id))["status"] == "CONFIRMED"


async def test_what_was_not_made_is_pending_again_not_doubtful_and_due_at_once(
    recorder: Recorder, repairs: Repairs
) -> None:
    work = await _in_doubt(recorder, repairs)
    assert await recorder.claim("w1", "acc", ALL, now=MUCH_LATER, limit=10) == []
    attempts = [*work.attempts, replace(attempt(2, "absent"), action="settle")]
    assert await repairs.reopen(work, attempts=attempts, now=LATER, deadline_at=MUCH_LATER)
    (again,) = await recorder.claim("w1", "acc", ALL, now=LATER, limit=10)
    assert (again.status, again.possibly_sent, again.pushing, again.tries) == (Status.PENDING, False, False, 0)
    assert (again.deadline_at, list(again.attempts), again.submission.card) == (MUCH_LATER, attempts, CARD)
    assert not await repairs.reopen(work, attempts=(), now=LATER, deadline_at=MUCH_LATER)
    assert not await repairs.settle(final(work))


# --- what leaves the outbox -----------------------------------------------------------------------------------------------


async def _all_events(recorder: Recorder) -> list[OutboxEvent]:
    """Every event, each taken out as it is given."""
    events: list[OutboxEvent] = []
    while given := await recorder.republish(before=MUCH_LATER, now=MUCH_LATER, limit=100):
        events += given
        await recorder.published([entry.id for entry in given])
    return events


def _revisions(events: list[OutboxEvent] | tuple[OutboxEvent, ...]) -> list[str]:
    return [entry.event.event_id[-3:] for entry in events]


async def test_a_letter_is_kept_with_its_event_until_it_is_published(recorder: Recorder) -> None:
    (work, other) = await recorder.ingest("w1", arrivals([1, 2]), now=NOW)
    failed = replace(final(work, status=Status.FAILED), dead_letter=LETTER)
    recorded = await recorder.record("w1", [failed, final(other)], [])
    assert (recorded[work.id].dead_letter, recorded[other.id].dead_letter) == (LETTER, None)
    first, second = await recorder.republish(before=MUCH_LATER, now=MUCH_LATER, limit=10)
    assert (first.event, first.dead_letter) == (failed.event, LETTER)
    assert second.dead_letter is None
    await recorder.published([first.id, second.id])
    assert await _all_events(recorder) == []


async def test_a_later_event_of_a_submission_waits_for_the_earlier_ones(recorder: Recorder, repairs: Repairs) -> None:
    work = await _in_doubt(recorder, repairs)
    await repairs.settle(final(work))
    await ended(recorder, 2, Status.CONFIRMED)
    given = list(await recorder.republish(before=MUCH_LATER, now=MUCH_LATER, limit=10))
    assert _revisions(given) == ["1.1", "2.1"]
    assert await recorder.republish(before=MUCH_LATER, now=MUCH_LATER, limit=10) == []
    await recorder.published([given[0].id])
    assert _revisions(list(await recorder.republish(before=MUCH_LATER, now=MUCH_LATER, limit=10))) == ["1.2"]


async def test_what_was_given_out_is_given_out_again_only_when_it_is_stale_again(recorder: Recorder) -> None:
    await ended(recorder, 1, Status.CONFIRMED)  # at LATER
    a_second = timedelta(seconds=1)
    assert await recorder.republish(before=LATER, now=LATER + a_second, limit=10) == []
    assert len(await recorder.republish(before=LATER + a_second, now=LATER + 9 * a_second, limit=10)) == 1
    assert await recorder.republish(before=LATER + 9 * a_second, now=LATER + 10 * a_second, limit=10) == []
    assert len(await recorder.republish(before=LATER + 10 * a_second, now=MUCH_LATER, limit=10)) == 1


async def test_of_many_who_ask_at_once_no_two_are_given_the_same_event(engine: AsyncEngine, recorder: Recorder) -> None:
    works = await recorder.ingest("w1", arrivals(range(1, 201)), now=NOW)
    await recorder.record("w1", [final(work) for work in works], [])
    asking = (Recorder(engine).republish(before=MUCH_LATER, now=MUCH_LATER, limit=40) for _ in range(6))
    given = [entry.id for batch in await asyncio.gather(*asking) for entry in batch]
    given += [entry.id for entry in await recorder.republish(before=MUCH_LATER, now=MUCH_LATER, limit=200)]
    assert len(given) == len(set(given)) == 200


# --- what an operator sees ------------------------------------------------------------------------------------------------


async def test_standings_tell_status_and_last_event_of_those_that_were_taken_in(
    recorder: Recorder, engine: AsyncEngine
) -> None:
    [
        await ended(recorder, number, status)
        for number, status in ((1, Status.FAILED), (2, Status.CONFIRMED), (3, Status.FAILED))
    ]
    await recorder.ingest("w1", [put_back(3, 1), arrival(4)], now=LATER)
    ids = [arrival(number).submission.request_id for number in range(1, 5)]
    overview = Overview(engine)
    assert await overview.statuses([*ids, "rsv_unknown", "\0", ids[0]]) == {
        ids[0]: (Status.FAILED, 1),
        ids[1]: (Status.CONFIRMED, 1),
        ids[2]: (Status.PENDING, 1),
        ids[3]: (Status.PENDING, 0),
    }
    assert await overview.statuses([]) == {}


async def test_standings_of_very_many(recorder: Recorder, engine: AsyncEngine) -> None:
    await recorder.ingest("w1", arrivals(range(1, 1001)), now=NOW)
    asked = [arrival(number).submission.request_id for number in range(1, 2001)]
    assert len(await Overview(engine).statuses(asked)) == 1000


async def test_what_a_worker_is_just_looking_for_is_not_pushed_again(
    recorder: Recorder, repairs: Repairs, engine: AsyncEngine
) -> None:
    """It may come back to the same worker, and then what the look-up comes to would end the push that is under way."""
    read = await _in_doubt(recorder, repairs, look_at=LATER)
    (looked_for,) = await recorder.claim("w1", "acc", ALL, now=LATER, limit=10)
    assert not await repairs.reopen(read, attempts=(), now=LATER, deadline_at=MUCH_LATER)
    await recorder.record("w1", [], [postponed(looked_for)])
    assert await repairs.reopen(read, attempts=(), now=LATER, deadline_at=MUCH_LATER)

"""An ambiguous push is left alone until it has come to rest, whatever wall clocks say."""

from dataclasses import replace

import pytest

from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome
from forwarder.store.submissions.work import Attempt, Work
from forwarder.worker.push.pipeline import QuietPeriods
from forwarder.worker.push_context import PushResult
from tests.support.memory.clock import ManualClock
from tests.support.worker.works import work

SECONDS = 30.0
NO_ANSWER = InDoubt("pms_timed_out", "No answer.")


def attempt(number: int, action: str, outcome: str) -> Attempt:
    return Attempt(number, action, "2027-01-01T00:00:00.000Z", 5, outcome)


UNANSWERED = attempt(1, "create", "in_doubt")
NOT_THERE = attempt(2, "find", "absent")
AGAIN_UNANSWERED = attempt(3, "create", "in_doubt")


def pushed(row: Work, outcome: Outcome, *more: Attempt) -> PushResult:
    return PushResult(outcome, (*row.attempts, *more), possibly_sent=not isinstance(outcome, Confirmed))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def quiet_periods(clock: ManualClock) -> QuietPeriods:
    return QuietPeriods(clock, SECONDS)


async def test_whoever_pushed_waits_from_the_end_of_the_push(quiet_periods: QuietPeriods, clock: ManualClock) -> None:
    quiet_periods.note(work(), pushed(work(), NO_ANSWER, UNANSWERED))
    due = work(possibly_sent=True, attempts=(UNANSWERED,))
    await clock.advance(10.0)
    assert quiet_periods.seconds_left(due) == SECONDS - 10.0
    await clock.advance(SECONDS - 10.0)
    assert quiet_periods.seconds_left(due) == 0.0


async def test_whoever_did_not_push_waits_from_when_it_first_sees_it(
    quiet_periods: QuietPeriods, clock: ManualClock
) -> None:
    due = work(possibly_sent=True, attempts=(UNANSWERED, NOT_THERE))
    assert quiet_periods.seconds_left(due) == SECONDS
    await clock.advance(SECONDS)
    assert quiet_periods.seconds_left(due) == 0.0


async def test_what_another_worker_pushed_meanwhile_is_waited_for_anew(
    quiet_periods: QuietPeriods, clock: ManualClock
) -> None:
    quiet_periods.note(work(), pushed(work(), NO_ANSWER, UNANSWERED))
    await clock.advance(SECONDS)
    by_another = work(possibly_sent=True, attempts=(UNANSWERED, NOT_THERE, AGAIN_UNANSWERED))
    assert quiet_periods.seconds_left(by_another) == SECONDS


async def test_a_look_up_in_vain_begins_no_new_wait(quiet_periods: QuietPeriods, clock: ManualClock) -> None:
    due = work(possibly_sent=True, attempts=(UNANSWERED,))
    quiet_periods.note(work(), pushed(work(), NO_ANSWER, UNANSWERED))
    await clock.advance(SECONDS)
    quiet_periods.note(due, pushed(due, Deferred("pms_unavailable", "Down."), attempt(2, "find", "deferred")))
    assert quiet_periods.seconds_left(due) == 0.0


@pytest.mark.parametrize("row", [work(), work(attempts=(UNANSWERED,))])
async def test_what_was_surely_not_made_waits_for_nothing(quiet_periods: QuietPeriods, row: Work) -> None:
    assert quiet_periods.seconds_left(row) == 0.0


@pytest.mark.parametrize(
    "attempts", [(), (attempt(1, "find", "deferred"),), (UNANSWERED, attempt(2, "create", "deferred"))]
)
async def test_what_a_dead_worker_may_have_sent_waits_from_when_it_is_first_seen(
    quiet_periods: QuietPeriods, clock: ManualClock, attempts: tuple[Attempt, ...]
) -> None:
    row = replace(work(possibly_sent=True, attempts=attempts), takeovers=1)
    assert quiet_periods.seconds_left(row) == SECONDS
    await clock.advance(SECONDS)
    assert quiet_periods.seconds_left(row) == 0.0


async def test_each_takeover_begins_a_new_wait(quiet_periods: QuietPeriods, clock: ManualClock) -> None:
    """Between two that look alike another worker may have looked, pushed again, and died over it."""
    row = work(possibly_sent=True, attempts=(UNANSWERED, NOT_THERE))
    assert quiet_periods.seconds_left(row) == SECONDS
    await clock.advance(SECONDS)
    assert quiet_periods.seconds_left(row) == 0.0
    assert quiet_periods.seconds_left(replace(row, takeovers=1)) == SECONDS


async def test_what_is_settled_is_forgotten(quiet_periods: QuietPeriods, clock: ManualClock) -> None:
    due = work(possibly_sent=True, attempts=(UNANSWERED,))
    quiet_periods.note(work(), pushed(work(), NO_ANSWER, UNANSWERED))
    await clock.advance(SECONDS)
    quiet_periods.note(due, pushed(due, Confirmed("7"), attempt(2, "find", "confirmed")))
    assert quiet_periods.seconds_left(due) == SECONDS


async def test_of_very_many_the_oldest_are_forgotten_and_wait_once_more(
    quiet_periods: QuietPeriods, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forwarder.worker.push.pipeline._MAX_REMEMBERED", 2)
    rows = [replace(work(number, possibly_sent=True), attempts=(UNANSWERED,)) for number in (1, 2, 3)]
    assert [quiet_periods.seconds_left(row) for row in rows] == [SECONDS] * 3
    await clock.advance(SECONDS)
    assert [quiet_periods.seconds_left(row) for row in reversed(rows)] == [0.0, 0.0, SECONDS]

"""How long a push was left alone is counted by the worker's own clock, whatever wall clocks say."""

from dataclasses import replace

import pytest

from forwarder.reservation.outcome import InDoubt
from forwarder.store.submissions.port import Work
from forwarder.worker.push.run import PushClock
from tests.support.memory.clock import ManualClock
from tests.support.worker.works import carried, doubtful, work

ONCE = doubtful()
TWICE = ONCE.after(InDoubt("pms_timeout", "No answer."), carried(), "2027-01-01T00:01:00.000Z")
LOOKED = ONCE.absent("2027-01-01T00:00:30.000Z", 30.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pushes(clock: ManualClock) -> PushClock:
    return PushClock(clock)


def unsure(number: int = 1) -> Work:
    return work(number, possibly_sent=True)


async def test_the_worker_that_pushed_counts_from_the_end_of_the_push(pushes: PushClock, clock: ManualClock) -> None:
    pushes.note(work(), ONCE)
    await clock.advance(10.0)
    assert pushes.seconds(unsure()) == 10.0


async def test_another_worker_counts_from_when_it_first_sees_the_row(pushes: PushClock, clock: ManualClock) -> None:
    await clock.advance(10.0)
    assert pushes.seconds(unsure()) == 0.0
    await clock.advance(5.0)
    assert pushes.seconds(unsure()) == 5.0


async def test_what_another_worker_pushed_meanwhile_is_waited_for_anew(pushes: PushClock, clock: ManualClock) -> None:
    pushes.note(work(), ONCE)
    await clock.advance(30.0)
    assert pushes.seconds(replace(unsure(), evidence=TWICE)) == 0.0


async def test_a_look_up_in_vain_begins_no_new_wait(pushes: PushClock, clock: ManualClock) -> None:
    pushes.note(work(), ONCE)
    await clock.advance(30.0)
    pushes.note(unsure(), LOOKED)
    assert pushes.seconds(replace(unsure(), evidence=LOOKED)) == 30.0


async def test_each_takeover_begins_a_new_wait(pushes: PushClock, clock: ManualClock) -> None:
    """Between two that look alike another worker may have looked, pushed again, and died over it."""
    pushes.note(work(), ONCE)
    await clock.advance(30.0)
    assert pushes.seconds(replace(unsure(), takeovers=1)) == 0.0


async def test_what_is_settled_is_forgotten(pushes: PushClock, clock: ManualClock) -> None:
    pushes.note(work(), ONCE)
    await clock.advance(30.0)
    pushes.note(unsure(), ONCE.found("7", carried(), "2027-01-01T00:00:30.000Z"))
    assert pushes.seconds(unsure()) == 0.0


async def test_of_very_many_the_oldest_are_forgotten_and_wait_once_more(
    pushes: PushClock, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forwarder.worker.push.run._MAX_REMEMBERED", 2)
    rows = [unsure(number) for number in (1, 2, 3)]
    assert [pushes.seconds(row) for row in rows] == [0.0] * 3
    await clock.advance(30.0)
    assert [pushes.seconds(row) for row in reversed(rows)] == [30.0, 30.0, 0.0]

"""Retry timing: exponential with full jitter, what the PMS asked for, and the deadline."""

from datetime import timedelta

from forwarder.worker.outcome.policy import LOOKED_FOR, MAX_LOOK_PAUSE_SECONDS, next_look, next_try
from tests.support.cases import for_each
from tests.support.worker.works import NOW

_DAY = timedelta(days=1)


@for_each(
    ("attempt", "jitter", "expected_seconds"),
    [(1, 0.0, 1.0), (1, 0.999, 1.998), (2, 0.5, 2.0), (5, 0.5, 16.0), (10, 0.5, 450.0), (500, 0.5, 450.0)],
)
def test_the_delay_is_drawn_below_a_doubling_ceiling(attempt: int, jitter: float, expected_seconds: float) -> None:
    due = next_try(attempt, now=NOW, deadline=NOW + _DAY, min_seconds=None, jitter=jitter)
    assert due == NOW + timedelta(seconds=expected_seconds)


def test_what_the_pms_asked_for_comes_first() -> None:
    due = next_try(1, now=NOW, deadline=NOW + _DAY, min_seconds=120.0, jitter=0.0)
    assert due == NOW + timedelta(seconds=121)


def test_past_the_deadline_there_is_one_last_try_before_it() -> None:
    deadline = NOW + timedelta(seconds=10)
    last = next_try(8, now=NOW, deadline=deadline, min_seconds=None, jitter=0.9)
    assert last == deadline - timedelta(seconds=5)
    assert next_try(9, now=last, deadline=deadline, min_seconds=None, jitter=0.9) is None
    assert next_try(1, now=last, deadline=deadline, min_seconds=None, jitter=0.5) == last + timedelta(seconds=1)


def test_what_may_have_been_made_is_looked_for_long_after_its_deadline_and_not_for_ever() -> None:
    deadline = NOW + timedelta(seconds=10)
    first = next_look(1, now=NOW, deadline=deadline, min_seconds=30.0, jitter=0.0)
    assert first == NOW + timedelta(seconds=31)
    late = deadline + LOOKED_FOR - timedelta(hours=2)
    hourly = next_look(30, now=late, deadline=deadline, min_seconds=None, jitter=0.5)
    assert hourly == late + timedelta(seconds=MAX_LOOK_PAUSE_SECONDS / 2)
    week = deadline + timedelta(days=7)
    last = week - timedelta(seconds=2)
    assert next_look(30, now=last, deadline=deadline, min_seconds=None, jitter=0.0) == last + timedelta(seconds=1)
    assert next_look(30, now=week, deadline=deadline, min_seconds=None, jitter=0.0) is None

"""How many pushes may be in flight: as many as the account allows, fewer where its PMS shows that it is too much."""

import random
from collections.abc import Callable

import pytest

from forwarder.worker.dispatch.throttle import ConcurrencyLimit
from tests.support.cases import for_each

MAXIMUM = 64


def rounds(limit: ConcurrencyLimit, count: int, overloaded: Callable[[], bool]) -> list[int]:
    """Go through so many rounds of pushes; the limit after each."""
    limits = []
    for _ in range(count):
        started = [limit.start() for _ in range(limit.limit)]
        for each in started:
            limit.end(each, overloaded=overloaded())
        limits.append(limit.limit)
    return limits


def test_it_is_as_wide_as_the_account_allows_from_the_first() -> None:
    assert ConcurrencyLimit(MAXIMUM).limit == MAXIMUM


def test_a_pms_that_bears_it_is_asked_by_as_many_for_ever() -> None:
    assert set(rounds(ConcurrencyLimit(MAXIMUM), 50, lambda: False)) == {MAXIMUM}


def test_a_round_of_overload_halves_it_down_to_one() -> None:
    assert rounds(ConcurrencyLimit(MAXIMUM), 8, lambda: True) == [32, 16, 8, 4, 2, 1, 1, 1]


def test_then_it_widens_by_one_a_round() -> None:
    limit = ConcurrencyLimit(MAXIMUM)
    rounds(limit, 2, lambda: True)
    assert rounds(limit, 4, lambda: False) == [17, 18, 19, 20]
    assert rounds(limit, 60, lambda: False)[-1] == MAXIMUM


@pytest.mark.parametrize("bears", [3, 10, 40])
def test_it_settles_near_what_the_pms_bears(bears: int) -> None:
    """A PMS that refuses what is more than it bears at once."""
    limit, limits = ConcurrencyLimit(MAXIMUM), []
    for _ in range(200):
        started = [limit.start() for _ in range(limit.limit)]
        for place, each in enumerate(started):
            limit.end(each, overloaded=place >= bears)
        limits.append(limit.limit)
    assert bears / 2 - 1 <= min(limits[20:])
    assert max(limits[20:]) <= bears * 1.12 + 1


@for_each("seed", range(5))
def test_the_odd_failure_is_no_overload(seed: int) -> None:
    chance = random.Random(seed)
    assert min(rounds(ConcurrencyLimit(256), 200, lambda: chance.random() < 0.04)) == 256


def test_what_started_under_an_earlier_limit_says_nothing_of_this_one() -> None:
    limit = ConcurrencyLimit(4)
    started = [limit.start() for _ in range(8)]  # as where the account allowed more before
    told = [limit.end(each, overloaded=True) for each in started]
    assert told == [False, False, False, True, False, False, False, False]
    assert limit.limit == 2


def test_an_account_that_allows_more_is_taken_at_its_word_unless_its_pms_was_overloaded() -> None:
    limit = ConcurrencyLimit(8)
    limit.allow(16)
    assert limit.limit == 16
    rounds(limit, 1, lambda: True)
    limit.allow(64)
    assert limit.limit == 8
    assert rounds(limit, 1, lambda: False) == [9]
    limit.allow(4)
    assert limit.limit == 4

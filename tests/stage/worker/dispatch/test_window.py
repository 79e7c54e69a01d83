"""How many pushes may be in flight: as many as the account allows, fewer where its PMS shows that it is too much."""

import random
from collections.abc import Callable

import pytest

from forwarder.worker.dispatch.concurrency import ConcurrencyLimit

WIDEST = 64


def rounds(window: ConcurrencyLimit, count: int, overloaded: Callable[[], bool]) -> list[int]:
    """Go through so many rounds of pushes; the width after each."""
    widths = []
    for _ in range(count):
        started = [window.start() for _ in range(window.width)]
        for each in started:
            window.end(each, overloaded=overloaded())
        widths.append(window.width)
    return widths


def test_it_is_as_wide_as_the_account_allows_from_the_first() -> None:
    assert ConcurrencyLimit(WIDEST).width == WIDEST


def test_a_pms_that_bears_it_is_asked_by_as_many_for_ever() -> None:
    assert set(rounds(ConcurrencyLimit(WIDEST), 50, lambda: False)) == {WIDEST}


def test_a_round_of_overload_halves_it_down_to_one() -> None:
    assert rounds(ConcurrencyLimit(WIDEST), 8, lambda: True) == [32, 16, 8, 4, 2, 1, 1, 1]


def test_then_it_widens_by_one_a_round() -> None:
    window = ConcurrencyLimit(WIDEST)
    rounds(window, 2, lambda: True)
    assert rounds(window, 4, lambda: False) == [17, 18, 19, 20]
    assert rounds(window, 60, lambda: False)[-1] == WIDEST


@pytest.mark.parametrize("bears", [3, 10, 40])
def test_it_settles_near_what_the_pms_bears(bears: int) -> None:
    """A PMS that refuses what is more than it bears at once."""
    window, widths = ConcurrencyLimit(WIDEST), []
    for _ in range(200):
        width = window.width
        started = [window.start() for _ in range(width)]
        for place, each in enumerate(started):
            window.end(each, overloaded=place >= bears)
        widths.append(window.width)
    assert bears / 2 - 1 <= min(widths[20:])
    assert max(widths[20:]) <= bears * 1.12 + 1


@pytest.mark.parametrize("seed", range(5))
def test_the_odd_failure_is_no_overload(seed: int) -> None:
    luck = random.Random(seed)
    assert min(rounds(ConcurrencyLimit(256), 200, lambda: luck.random() < 0.04)) == 256


def test_what_started_under_an_earlier_width_says_nothing_of_this_one() -> None:
    window = ConcurrencyLimit(4)
    started = [window.start() for _ in range(8)]  # as where the account allowed more before
    told = [window.end(each, overloaded=True) for each in started]
    assert told == [False, False, False, True, False, False, False, False]
    assert window.width == 2


def test_an_account_that_allows_more_is_taken_at_its_word_unless_its_pms_was_overloaded() -> None:
    window = ConcurrencyLimit(8)
    window.allow(16)
    assert window.width == 16
    rounds(window, 1, lambda: True)
    window.allow(64)
    assert window.width == 8
    assert rounds(window, 1, lambda: False) == [9]
    window.allow(4)
    assert window.width == 4

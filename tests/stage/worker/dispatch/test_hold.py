"""What a worker holds in memory is bounded in rows, and by the size of them."""

from dataclasses import replace

from forwarder.reservation.card import SealedCard
from forwarder.store.submissions.work import Work
from forwarder.worker.dispatch.memory_budget import MemoryBudget, size_of
from tests.support.worker.works import work

_KILOBYTE = 1024


def _large(number: int, kilobytes: int) -> Work:
    return work(number, notes="x" * kilobytes * _KILOBYTE)


def test_small_rows_are_bounded_by_their_number() -> None:
    hold = MemoryBudget(rows=10, size=_KILOBYTE * _KILOBYTE)
    assert hold.at_most == 10
    for number in range(1, 11):
        assert hold.take(work(number))
    assert (len(hold), hold.at_most) == (10, 10)


def test_of_large_rows_there_are_fewer() -> None:
    hold = MemoryBudget(rows=1000, size=100 * _KILOBYTE)
    hold.take(_large(1, 10))
    assert 8 <= hold.at_most <= 10
    hold.take(_large(2, 30))
    assert 4 <= hold.at_most <= 5


def test_what_is_dropped_counts_no_more() -> None:
    hold = MemoryBudget(rows=50, size=100 * _KILOBYTE)
    hold.take(_large(1, 30))
    hold.take(work(2))
    hold.drop(1)
    assert (len(hold), hold.at_most) == (1, 50)
    hold.drop(2)
    hold.drop(2)
    assert (len(hold), hold.at_most) == (0, 50)


def test_a_row_is_held_once() -> None:
    hold = MemoryBudget(rows=50)
    assert hold.take(work(1))
    assert not hold.take(work(1))
    assert len(hold) == 1


def test_a_sealed_card_counts() -> None:
    sealed = SealedCard("key", "y" * 5000)
    assert size_of(work(1, card=sealed)) > 5000 > size_of(work(1))


def test_what_was_counted_already_is_not_counted_again() -> None:
    assert size_of(replace(work(1), size=20 * _KILOBYTE)) == 20 * _KILOBYTE
    assert size_of(replace(work(1), size=1)) == _KILOBYTE

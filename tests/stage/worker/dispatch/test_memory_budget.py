"""What a worker holds in memory is bounded in rows, and by the size of them."""

from dataclasses import replace

from forwarder.store.submissions.port import Work
from forwarder.worker.dispatch.dispatcher import MemoryBudget
from tests.support.worker.works import work

_KILOBYTE = 1024


def _large(number: int, kilobytes: int) -> Work:
    return replace(work(number), size=kilobytes * _KILOBYTE)


def test_small_rows_are_bounded_by_their_number() -> None:
    budget = MemoryBudget(rows=10, size=_KILOBYTE * _KILOBYTE)
    assert budget.max_rows == 10
    for number in range(1, 11):
        assert budget.add(work(number))
    assert (len(budget.works), budget.max_rows) == (10, 10)


def test_of_large_rows_there_are_fewer() -> None:
    budget = MemoryBudget(rows=1000, size=100 * _KILOBYTE)
    budget.add(_large(1, 10))
    assert 8 <= budget.max_rows <= 10
    budget.add(_large(2, 30))
    assert 4 <= budget.max_rows <= 5


def test_what_is_dropped_counts_no_more() -> None:
    budget = MemoryBudget(rows=50, size=100 * _KILOBYTE)
    budget.add(_large(1, 30))
    budget.add(work(2))
    budget.remove(1)
    assert (len(budget.works), budget.max_rows) == (1, 50)
    budget.remove(2)
    budget.remove(2)
    assert (len(budget.works), budget.max_rows) == (0, 50)


def test_a_row_is_held_once() -> None:
    budget = MemoryBudget(rows=50)
    assert budget.add(work(1))
    assert not budget.add(work(1))
    assert len(budget.works) == 1


def _size_of(row: Work) -> float:
    """In kilobytes, by how many such rows a megabyte holds."""
    budget = MemoryBudget(rows=_KILOBYTE * _KILOBYTE, size=_KILOBYTE * _KILOBYTE)
    budget.add(row)
    return _KILOBYTE / budget.max_rows


def test_what_was_counted_already_is_not_counted_again() -> None:
    assert round(_size_of(replace(work(1), size=20 * _KILOBYTE))) == 20
    assert _size_of(replace(work(1), size=1)) == 1

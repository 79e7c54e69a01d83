"""Pages by keyset, over any list of ids and any way in which it grows."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwarder.store.lists.port import FIRST, Neighbours, neighbours, sides
from tests.support.cases import for_each

Ids = st.lists(st.integers(1, 400), unique=True).map(sorted)
Growth = st.lists(st.lists(st.integers(1, 20), max_size=6), max_size=30)
"""Between any two pages, the gaps by which new ids lie above the newest one."""

Limits = st.integers(1, 12)


def page(ids: Sequence[int], cursor: int, limit: int, *, descending: bool = False) -> tuple[Sequence[int], Neighbours]:
    """What a store would read, and show, of one account's `ids`."""
    first = descending and cursor == FIRST
    above = [each for each in ids if each >= cursor and not first]
    below = [each for each in reversed(ids) if each < cursor or first]
    onward, before = (below, above) if descending else (above, below)
    return onward[:limit], neighbours(before[: limit + 1], onward[: limit + 1], limit, descending=descending)


def grown(ids: Sequence[int], gaps: Sequence[int]) -> list[int]:
    longer = list(ids)
    for gap in gaps:
        longer.append((longer[-1] if longer else 0) + gap)
    return longer


@given(Ids, Growth, Limits)
def test_following_next_meets_every_id_exactly_once_while_more_are_added(
    ids: list[int], growth: list[list[int]], limit: int
) -> None:
    seen: list[int] = []
    cursor: int | None = FIRST
    additions = iter(growth)
    while cursor is not None:
        shown, others = page(ids, cursor, limit)
        seen += shown
        cursor = others.next
        if cursor is None:
            break
        ids = grown(ids, next(additions, []))
    assert seen == ids


@given(Ids, Limits)
def test_every_page_but_the_last_is_full(ids: list[int], limit: int) -> None:
    shown, others = page(ids, FIRST, limit)
    while others.next is not None:
        assert len(shown) == limit
        shown, others = page(ids, others.next, limit)


@given(Ids, Growth, Limits)
def test_previous_leads_back_over_the_same_pages(ids: list[int], growth: list[list[int]], limit: int) -> None:
    cursors = [FIRST]
    while (following := page(ids, cursors[-1], limit)[1].next) is not None:
        cursors.append(following)
    for gaps in growth:
        ids = grown(ids, gaps)
    for earlier, later in pairwise(cursors):
        assert page(ids, later, limit)[1].previous == earlier
    assert page(ids, FIRST, limit)[1].previous is None


@given(Ids, Growth, Limits)
def test_newest_first_meets_what_was_there_exactly_once_while_more_are_added(
    ids: list[int], growth: list[list[int]], limit: int
) -> None:
    seen: list[int] = []
    cursor: int | None = FIRST
    additions = iter(growth)
    now = ids
    while cursor is not None:
        shown, others = page(now, cursor, limit, descending=True)
        seen += shown
        cursor = others.next
        assert cursor != FIRST
        now = grown(now, next(additions, []))
    assert seen == ids[::-1]


@given(Ids, Growth, Limits)
def test_newest_first_previous_leads_back_over_the_same_pages_and_to_what_was_added(
    ids: list[int], growth: list[list[int]], limit: int
) -> None:
    cursors = [FIRST]
    while (following := page(ids, cursors[-1], limit, descending=True)[1].next) is not None:
        cursors.append(following)
    for earlier, later in pairwise(cursors):
        assert page(ids, later, limit, descending=True)[1].previous == earlier
    for gaps in growth:
        ids = grown(ids, gaps)
    cursor, back = cursors[-1], list[int]()
    while (previous := page(ids, cursor, limit, descending=True)[1].previous) is not None:
        cursor = previous
        back = [*page(ids, cursor, limit, descending=True)[0], *back]
    assert set(back) >= {each for each in ids if each >= cursors[-1] and cursors[-1] != FIRST}


@given(Ids, st.integers(1, 500), Limits)
def test_any_cursor_leads_to_whole_pages_on_both_sides(ids: list[int], cursor: int, limit: int) -> None:
    shown, others = page(ids, cursor, limit)
    assert shown == [each for each in ids if each >= cursor][:limit]
    if others.previous is not None:
        earlier, _ = page(ids, others.previous, limit)
        before = [each for each in ids if each < cursor]
        assert set(before[-limit:]) <= set(earlier)


@for_each(
    ("ids", "cursor", "expected"),
    [
        pytest.param([], 1, Neighbours(None, None), id="nothing at all"),
        pytest.param([7, 8], 1, Neighbours(None, None), id="one short page"),
        pytest.param([7, 8, 9], 1, Neighbours(None, None), id="one full page"),
        pytest.param([7, 8, 9, 12], 1, Neighbours(None, 12), id="a first page with another"),
        pytest.param([7, 8, 9, 12], 12, Neighbours(1, None), id="the second page leads back to the first"),
        pytest.param([1, 2, 3, 4, 5, 6, 7], 7, Neighbours(4, None), id="the third page leads back to the second"),
        pytest.param([1, 2, 3], 9, Neighbours(1, None), id="past the end, where the next will be"),
    ],
)
def test_neighbours(ids: list[int], cursor: int, expected: Neighbours) -> None:
    assert page(ids, cursor, 3)[1] == expected


@given(Ids, st.integers(1, 401), st.booleans())
def test_the_sides_of_a_cursor_are_its_ids_nearest_first(ids: list[int], cursor: int, descending: bool) -> None:
    before, onward = sides(set(ids), cursor, descending=descending)
    below, above = [each for each in reversed(ids) if each < cursor], [each for each in ids if each >= cursor]
    assert (before, onward) == ((above, below) if descending else (below, above))

"""Pages by keyset, as a pure algorithm over ids. No I/O.

Ascending, a cursor is the id from which a page starts. Descending, it is one above it: a page holds what is below its cursor. So 1,
which no id is below, is in either order free to stand for the first page.

Ids are only ever added above those that can be seen, and a page is a range of ids: whoever follows `next` meets each exactly once,
also where a filter lets some of them through only.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

FIRST = 1
"""The cursor of the first page: no id is smaller."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The cursors of the pages before and after; None where there is none."""

    previous: int | None
    next: int | None


def sides(ids: Collection[int], cursor: int, *, descending: bool = False) -> tuple[Sequence[int], Sequence[int]]:
    """Of these ids, in whatever order, those before the cursor and those from it onward, nearest first."""
    below = sorted((each for each in ids if each < cursor), reverse=True)
    above = sorted(each for each in ids if each >= cursor)
    return (above, below) if descending else (below, above)


def neighbours(before: Sequence[int], onward: Sequence[int], limit: int, *, descending: bool = False) -> Neighbours:
    """The neighbours of a page of `limit`, from up to `limit + 1` ids on either side of its cursor, nearest first: those
    `before` it, and those from it `onward`. The page before starts `limit` ids earlier; if it is the first one, at `FIRST`."""
    above = 1 if descending else 0
    if not before:
        previous = None
    elif len(before) <= limit:
        previous = FIRST
    else:
        previous = before[limit - 1] + above
    return Neighbours(previous, onward[limit] + above if len(onward) > limit else None)

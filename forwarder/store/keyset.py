"""Pages by keyset, as a pure algorithm over ids: a cursor is the id from which a page starts, ascending. No I/O.

Ids are only ever added above those that can be seen, so that whoever follows `next` meets each exactly once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FIRST = 1
"""The cursor of the first page: no id is smaller."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The cursors of the pages before and after; None where there is none."""

    previous: int | None
    next: int | None


def neighbours(before: Sequence[int], onward: Sequence[int], limit: int) -> Neighbours:
    """The neighbours of a page of `limit`, from up to `limit + 1` ids on either side of its cursor, nearest first: those
    `before` it, and those from it `onward`. The page before starts `limit` ids earlier; if it is the first one, at `FIRST`."""
    if not before:
        previous = None
    elif len(before) <= limit:
        previous = FIRST
    else:
        previous = before[limit - 1]
    return Neighbours(previous, onward[limit] if len(onward) > limit else None)

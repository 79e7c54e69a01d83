"""What one worker holds in memory: so many rows at most, and fewer where they are large. No I/O."""

from collections.abc import Collection
from typing import Final

from pydantic_core import to_json

from forwarder.reservation.submission import Submission
from forwarder.store.submissions.work import Work

MAX_HELD_BYTES: Final = 48 * 1024 * 1024
"""Of requests and sealed cards as texts. In memory they take about twice that; with it a worker stays below 300 MB."""

_SMALLEST: Final = 1024
"""What a row counts at least: it is more than its request."""


class MemoryBudget:
    """Rows by id, and how many there may be: by their number, and by the average size of those that are there."""

    def __init__(self, *, rows: int, size: int = MAX_HELD_BYTES) -> None:
        self._rows = rows
        self._bytes = size
        self._sizes: dict[int, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def at_most(self) -> int:
        """How many rows of that size may be held."""
        return min(self._rows, self._bytes * len(self._sizes) // self._total) if self._total else self._rows

    def take(self, work: Work) -> bool:
        """Hold a row; False where it is held already."""
        if work.id in self._sizes:
            return False
        self._sizes[work.id] = size = size_of(work)
        self._total += size
        return True

    def ids(self) -> Collection[int]:
        """The ids of the rows that are held."""
        return self._sizes.keys()

    def drop(self, work_id: int) -> None:
        """Hold a row no longer; nothing where it was not held."""
        self._total -= self._sizes.pop(work_id, 0)


def size_of(work: Work) -> int:
    """Bytes of what its caller sent, which is what makes one row larger than another."""
    return max(work.size or _counted(work.submission), _SMALLEST)


def _counted(submission: Submission) -> int:
    card = submission.card
    return len(to_json(submission.reservation)) + (len(card.sealed) if card else 0)

"""Shares a bounded quantity (bytes, requests, messages) among parties, so that none crowds out the others.

Dynamic thresholds, as shared-memory switches divide their buffers (Choudhury and Hahne, "Dynamic queue length thresholds for
shared-memory packet switches", 1998): a party may hold at most twice what stays free. A single party may therefore hold two thirds
of the total; `n` parties at their limit hold 2/(2n+1) each, and 1/(2n+1) stays free for those that hold little or nothing. No party
is configured, and nothing is reserved for parties that do not exist."""

from collections.abc import Hashable
from typing import Final

_TIMES_FREE: Final = 2


class Shares:
    """`total` of something. `held` and `free` are for tests and figures."""

    __slots__ = ("_held", "free", "total")

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self._held: dict[Hashable, int] = {}

    @property
    def largest(self) -> int:
        """The most that one party can hold, while no other holds anything."""
        return self.total * _TIMES_FREE // (_TIMES_FREE + 1)

    def held(self, party: Hashable) -> int:
        return self._held.get(party, 0)

    def fits(self, party: Hashable, amount: int) -> bool:
        """Whether `take` would succeed. A party that holds nothing may take all that is free, so that totals of one or two work."""
        held, free = self._held.get(party, 0), self.free - amount
        return free >= 0 and (not held or held + amount <= _TIMES_FREE * free)

    def take(self, party: Hashable, amount: int = 1) -> bool:
        """Gives `amount` more to `party`, which returns it later; False, and gives nothing, if that exceeds its share."""
        if not self.fits(party, amount):
            return False
        self.overdraw(party, amount)
        return True

    def overdraw(self, party: Hashable, amount: int) -> None:
        """As `take`, when it is too late to refuse."""
        self._held[party] = self._held.get(party, 0) + amount
        self.free -= amount

    def give_back(self, party: Hashable, amount: int = 1) -> None:
        """Returns all or a part of what `take` gave."""
        left = self._held[party] - amount
        self.free += amount
        if left:
            self._held[party] = left
        else:
            del self._held[party]

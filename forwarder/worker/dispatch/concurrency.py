"""A window: how many pushes of one account may be in flight, by what its PMS turns out to bear. Pure.

Additive increase, multiplicative decrease (D.-M. Chiu, R. Jain, "Analysis of the increase and decrease algorithms for congestion
avoidance in computer networks", 1989), with the slow start of V. Jacobson, "Congestion avoidance and control", 1988. The window is
as wide as the account allows until the PMS shows that this is too much for it: a PMS that is merely slow is asked by as many as
may be. It is looked at once a round, which is as many pushes as it is wide, so that the odd failure narrows nothing.
"""

from typing import Final

_TOLERATED: Final = 0.1
"""Of a round: more than this share of pushes that found the PMS overloaded is no accident."""


class ConcurrencyLimit:
    """One account's. `width`: how many may be in flight now, from 1 to `widest`."""

    def __init__(self, widest: int) -> None:
        self._widest = widest
        self._slow_from = widest
        self._round = 0
        self._told = 0
        self._overloaded = 0
        self.width = widest

    def allow(self, widest: int) -> None:
        """The account allows so many from now on. One that was not narrowed goes along."""
        narrowed = self.width < self._widest
        self._widest = widest
        self.width = min(self.width, widest) if narrowed else widest
        self._slow_from = min(self._slow_from, widest) if narrowed else widest

    def start(self) -> int:
        """A push starts. What is returned goes to `end`, where the push tells something of the PMS."""
        return self._round

    def end(self, started: int, *, overloaded: bool) -> bool:
        """A push is over that found the PMS overloaded, or not. True where that narrowed the window.

        Those that started in an earlier round say nothing of the width of this one.
        """
        if started != self._round:
            return False
        self._told += 1
        self._overloaded += overloaded
        return self._told >= self.width and self._turn()

    def _turn(self) -> bool:
        before = self.width
        if self._overloaded > self._told * _TOLERATED:
            self.width = self._slow_from = max(before // 2, 1)
        else:
            self.width = min(before * 2 if before < self._slow_from else before + 1, self._widest)
        self._round += 1
        self._told = self._overloaded = 0
        return self.width < before

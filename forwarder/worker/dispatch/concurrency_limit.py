"""How many pushes of an account may be in flight. No I/O."""

from typing import Final

_TOLERATED: Final = 0.1
"""Of a round: more than this share of pushes that found the PMS overloaded is no accident."""


class ConcurrencyLimit:
    """How many pushes of one account may be in flight now: `limit`, from 1 to `maximum`, by what its PMS turns out to bear.

    Additive increase, multiplicative decrease (D.-M. Chiu, R. Jain, "Analysis of the increase and decrease algorithms for
    congestion avoidance in computer networks", 1989), with the slow start of V. Jacobson, "Congestion avoidance and control", 1988.
    The limit is what the account allows until the PMS shows that this is too much for it: one that is merely slow is asked by as
    many as may be. It is adapted once a round, which is as many pushes as the limit, so that the odd failure lowers nothing.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._slow_start_until = maximum
        self._round = 0
        self._ended = 0
        self._overloaded = 0
        self.limit = maximum

    def allow(self, maximum: int) -> None:
        """The account allows so many from now on. A limit that was not lowered follows."""
        lowered = self.limit < self._maximum
        self._maximum = maximum
        self.limit = min(self.limit, maximum) if lowered else maximum
        self._slow_start_until = min(self._slow_start_until, maximum) if lowered else maximum

    def start(self) -> int:
        """A push starts. What is returned goes to `end`, where the push shows something of the PMS."""
        return self._round

    def end(self, started: int, *, overloaded: bool) -> bool:
        """A push is over that found the PMS overloaded, or not. True where that lowered the limit.

        Pushes that started in an earlier round say nothing about the limit of this one.
        """
        if started != self._round:
            return False
        self._ended += 1
        self._overloaded += overloaded
        return self._ended >= self.limit and self._next_round()

    def _next_round(self) -> bool:
        before = self.limit
        if self._overloaded > self._ended * _TOLERATED:
            self.limit = self._slow_start_until = max(before // 2, 1)
        else:
            self.limit = min(before * 2 if before < self._slow_start_until else before + 1, self._maximum)
        self._round += 1
        self._ended = self._overloaded = 0
        return self.limit < before

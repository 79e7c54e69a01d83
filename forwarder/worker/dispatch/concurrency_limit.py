"""The concurrency limit of an account's pushes. No I/O."""

from typing import Final

_TOLERATED: Final = 0.1
"""The share of overloaded pushes in a round above which the limit is lowered."""


class ConcurrencyLimit:
    """How many pushes of one account may be in flight now: `limit`, from 1 to `maximum`, adapted to what its PMS can handle.

    Additive increase, multiplicative decrease (D.-M. Chiu, R. Jain, "Analysis of the increase and decrease algorithms for
    congestion avoidance in computer networks", 1989), with the slow start of V. Jacobson, "Congestion avoidance and control",
    1988. The limit starts at the account's maximum and falls only when the PMS shows overload: a PMS that is merely slow keeps
    the maximum. It adapts once a round, which is as many pushes as the limit, so that a single failure lowers nothing.
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
        """Starts a push. Pass the result to `end` if the push shows the PMS's load."""
        return self._round

    def end(self, started: int, *, overloaded: bool) -> bool:
        """Ends a push that found the PMS overloaded, or not. True if that lowered the limit.

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

"""A token bucket. Pure: times are given, in seconds of a monotonic clock."""

import math
from typing import Final

ROUNDING: Final = 1e-7
"""Seconds by which times may be rounded."""


class TokenBucket:
    """Refills at `rate` a second and holds `burst`: at most burst + rate · seconds pass within any `seconds`. Full at first; may be
    overdrawn. Its only state is when it will be full again (the generic cell rate algorithm, ITU-T I.371, annex A)."""

    __slots__ = ("_interval", "burst", "full_at")

    def __init__(self, rate: float, burst: float) -> None:
        self.burst = burst
        self.full_at = -math.inf
        self._interval = 1 / rate

    def left(self, now: float) -> float:
        """The tokens left; below 0 if overdrawn."""
        return self.burst - max(self.full_at - now, 0.0) / self._interval

    def delay(self, tokens: float, now: float) -> float:
        """Seconds until it will hold so many; 0.0 if it does."""
        delay = max(self.full_at - now, 0.0) + (tokens - self.burst) * self._interval
        return delay if delay > ROUNDING else 0.0

    def debit(self, tokens: float, now: float) -> None:
        """Takes `tokens`, even if there are fewer; a negative number gives tokens back."""
        self.full_at = max(self.full_at, now) + tokens * self._interval

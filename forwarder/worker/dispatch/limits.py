"""What a PMS's health does to an account's pushes: its circuit breaker and concurrency limit. No I/O."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forwarder.process.clock import Clock
from forwarder.worker.push_context import Health

_IDLE_SECONDS: Final = 5.0


class BreakerState(StrEnum):
    """The state of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`failures` in a row open the breaker. Pauses are seconds; they double from the first to the longest, and half of each is
    random, so that many breakers in front of one PMS do not probe it together."""

    failures: int = 10
    first_pause: float = 1.0
    longest_pause: float = 60.0


class Breaker:
    """A circuit breaker: a PMS that fails is left alone for a while, then asked with one push (M. T. Nygard, "Release It!", 2007).

        CLOSED ── failures in a row ──▶ OPEN ── its pause is over ──▶ HALF_OPEN: one push, the probe, is under way
           ▲                              ▲                               │      │
           │                              └── it fails: a longer pause ───┘      │
           └───────────────────── a push that started at any time goes well ─────┘

    A failure counts only if its push started after the breaker last opened: of 64 pushes in flight, those that fail after it
    opened do not lengthen the pause, nor open it again once it has closed.

    `jitter` draws evenly from [0, 1).
    """

    def __init__(
        self, clock: Clock, tolerance: Tolerance | None = None, jitter: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._tolerance = tolerance or Tolerance()
        self._jitter = jitter
        self._failures = 0
        self._openings = 0
        self._pauses = 0
        self._until = 0.0
        self.pause = 0.0
        """Seconds for which it last opened."""
        self.state = BreakerState.CLOSED

    def delay(self) -> float:
        """Seconds until a push may start: 0.0 for now, infinity where that depends on the probe."""
        match self.state:
            case BreakerState.CLOSED:
                return 0.0
            case BreakerState.OPEN:
                return max(self._until - self._clock.monotonic(), 0.0)
            case BreakerState.HALF_OPEN:
                return math.inf

    @property
    def idle(self) -> bool:
        """Whether a probe has been possible for a while, and none was made because there is nothing to push."""
        return self.state is BreakerState.OPEN and self._clock.monotonic() > self._until + _IDLE_SECONDS

    def start(self) -> int:
        """Starts a push, after `delay` returned 0.0. Pass the result to `end`, once, when the push is over."""
        if self.state is BreakerState.OPEN:
            self.state = BreakerState.HALF_OPEN
        return self._openings

    def end(self, started: int, health: Health) -> None:
        """Ends a push that showed `health`."""
        if health is Health.WELL:
            self.state, self._failures, self._pauses = BreakerState.CLOSED, 0, 0
        elif started == self._openings:
            self._end_without_success(health)

    def try_now(self) -> None:
        """The settings have changed: if open, let the probe go at once."""
        self._until = self._clock.monotonic()

    def _end_without_success(self, health: Health) -> None:
        if health is Health.FAILING:
            self._failures += 1
            if self.state is BreakerState.HALF_OPEN or self._failures >= self._tolerance.failures:
                self._open()
        elif self.state is BreakerState.HALF_OPEN:  # The probe showed nothing: another one, at once.
            self.state = BreakerState.OPEN

    def _open(self) -> None:
        longest = min(self._tolerance.first_pause * 2.0 ** min(self._pauses, 30), self._tolerance.longest_pause)
        self.pause = longest * (1.0 + self._jitter()) / 2.0
        self._until = self._clock.monotonic() + self.pause
        self._pauses += 1
        self._openings += 1
        self.state = BreakerState.OPEN


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

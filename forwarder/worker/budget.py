"""A rate budget: the token bucket (J. Turner, "New directions in communications", IEEE Communications Magazine, 1986)."""

from forwarder.runtime.clock import Clock


class TokenBucket:
    """Lets `rate` requests a second through, and up to `burst` at once after a pause."""

    def __init__(self, clock: Clock, rate: float, burst: float | None = None) -> None:
        self._clock = clock
        self._burst = max(1.0, rate if burst is None else burst)
        self.rate = rate
        self._tokens = self._burst
        self._updated = clock.monotonic()

    def take(self) -> float:
        """Take one token: 0.0 when there was one, else the seconds until there will be."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self.rate)
        self._updated = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self.rate

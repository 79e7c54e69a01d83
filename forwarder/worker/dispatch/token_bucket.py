"""Token buckets, and the rate budget that they form from a PMS's published limits or an account's own rate. No I/O."""

from collections.abc import Sequence
from typing import Final

from forwarder.pms.port import Limit, Limits
from forwarder.process.clock import Clock

_AT_ONCE: Final = 0.1
"""The share of a published limit that may be used as a burst. The rest is spread evenly."""


class TokenBucket:
    """Refills at `rate` a second and holds `burst`: at most burst + rate · seconds pass within any `seconds`. Full at first; may be
    overdrawn. (J. Turner, "New directions in communications", IEEE Communications Magazine, 1986.)"""

    def __init__(self, clock: Clock, rate: float, burst: float) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._updated = clock.monotonic()

    def delay(self, tokens: float) -> float:
        """Seconds until it will hold so many; 0.0 if it does."""
        self._refill()
        return max(tokens - self._tokens, 0.0) / self._rate

    @property
    def burst(self) -> float:
        """The capacity."""
        return self._burst

    @property
    def left(self) -> float:
        """The tokens left; below 0 if overdrawn."""
        self._refill()
        return self._tokens

    def debit(self, tokens: float) -> None:
        """Takes `tokens`, even if there are fewer; a negative number gives tokens back."""
        self._refill()
        self._tokens = min(self._tokens - tokens, self._burst)

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._tokens + (now - self._updated) * self._rate, self._burst)
        self._updated = now


def buckets_of(clock: Clock, published: Limits, own_rate: float | None) -> Sequence[TokenBucket]:
    """An account's: its own sustained rate, with a second's worth at once, or else what its kind publishes."""
    per_push = published.requests_per_push
    if own_rate is not None:
        return (TokenBucket(clock, own_rate, max(own_rate, per_push)),)
    return tuple(_bucket(clock, limit, per_push) for limit in published.each)


def _bucket(clock: Clock, limit: Limit, per_push: int) -> TokenBucket:
    """Burst and rate are chosen so that their sum stays below the next whole number of the published limit."""
    burst = max(limit.requests * _AT_ONCE, per_push)
    # Requests are whole: half a one too many is none too many, and keeps a limit of 1 from refilling never.
    rate = (max(limit.requests - burst, 0.0) + 0.5) / limit.seconds
    return TokenBucket(clock, rate, burst)


class RateBudget:
    """The rate budget of an account's pushes: a token bucket for each limit. Without buckets: unlimited.

    A push pays in advance, when it starts, for the requests that it usually takes. Further requests are debited when they are
    sent, so that later pushes wait longer. The limit is exact if pushes send what they paid for when they start. A budget
    belongs to one worker: several workers that serve one account have one each.
    """

    def __init__(self, buckets: Sequence[TokenBucket] = (), *, per_push: int = 1) -> None:
        self._buckets = tuple(buckets)
        self._per_push = per_push
        self._pushing = 0
        self._paid = 0

    @property
    def limits(self) -> bool:
        """Whether it ever makes a push wait."""
        return bool(self._buckets)

    @property
    def in_flight(self) -> int:
        """The pushes in flight."""
        return self._pushing

    @property
    def scarcest(self) -> TokenBucket | None:
        """The one that makes the next push wait for longest, or has the least left; None where none does."""
        return max(self._buckets, key=lambda each: (each.delay(self._per_push), -each.left), default=None)

    def delay(self) -> float:
        """Seconds until a push may start."""
        return max((bucket.delay(self._per_push) for bucket in self._buckets), default=0.0)

    def start(self) -> None:
        """A push starts."""
        self._pushing += 1
        self._paid += self._per_push
        if self._buckets:
            self._debit(self._per_push)

    def requested(self) -> None:
        """One of the pushes under way sends a request."""
        if self._paid > 0:
            self._paid -= 1
        else:
            self._debit(1)

    def end(self, *, attempted: bool) -> None:
        """Ends a push. Refunds the requests of a push that did not reach the PMS (not `attempted`)."""
        self._pushing = max(self._pushing - 1, 0)
        unused = max(self._paid - self._pushing * self._per_push, 0)
        self._paid -= unused
        if not attempted:
            self._debit(-unused)

    def _debit(self, tokens: int) -> None:
        for bucket in self._buckets:
            bucket.debit(tokens)


def rate_budget_of(clock: Clock, published: Limits, own_rate: float | None) -> RateBudget:
    """The budget of an account, by its own rate, or else by what its kind publishes."""
    return RateBudget(buckets_of(clock, published, own_rate), per_push=published.requests_per_push)

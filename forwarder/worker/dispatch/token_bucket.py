"""Token buckets, and which of them the limits that a kind of PMS publishes, or an account's own rate, come to. No I/O."""

from collections.abc import Sequence
from typing import Final

from forwarder.pms.port import Limit, Limits
from forwarder.process.clock import Clock

_AT_ONCE: Final = 0.1
"""Of a published limit: what may be asked at once. The rest comes steadily."""


class TokenBucket:
    """Refills at `rate` a second and holds `burst`: at most burst + rate · seconds go through within any `seconds`. Full at first;
    may be overdrawn. (J. Turner, "New directions in communications", IEEE Communications Magazine, 1986.)"""

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
        """How many it holds at most."""
        return self._burst

    @property
    def left(self) -> float:
        """How many it holds now; below 0 where it is overdrawn."""
        self._refill()
        return self._tokens

    def debit(self, tokens: float) -> None:
        """Take so many, whether they are there or not; less than none: give back."""
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
    """What an account's pushes may ask of its PMS: a token bucket for each limit. No buckets: as much as they like.

    A push pays in advance, when it starts, for the requests that it usually takes. What it sends beyond that is debited as it is
    sent, and later pushes wait the longer. So the limit holds to the request where a push sends what it paid for as it starts.
    A budget belongs to one worker: several workers that serve one account have one each.
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
        """Pushes under way."""
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
        """A push is over. What a PMS that was not `attempted` was never asked is given back."""
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

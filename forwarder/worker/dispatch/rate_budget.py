"""The rate budget of an account's pushes, from its PMS's published limits or its own rate. No I/O."""

from collections.abc import Sequence
from typing import Final

from forwarder.pms.port import Limit, Limits
from forwarder.process.clock import Clock
from forwarder.process.token_bucket import TokenBucket

_AT_ONCE: Final = 0.1
"""The share of a published limit that may be used as a burst. The rest is spread evenly."""


class RateBudget:
    """The rate budget of an account's pushes: a token bucket for each limit. Without buckets: unlimited.

    A push pays in advance, when it starts, for the requests that it usually takes. Further requests are debited when they are
    sent, so that later pushes wait longer. The limit is exact if pushes send what they paid for when they start. A budget
    belongs to one worker: several workers that serve one account have one each.
    """

    def __init__(self, clock: Clock, buckets: Sequence[TokenBucket] = (), *, per_push: int = 1) -> None:
        self._clock = clock
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
        now = self._clock.monotonic()
        return max(self._buckets, key=lambda each: (each.delay(self._per_push, now), -each.left(now)), default=None)

    def delay(self) -> float:
        """Seconds until a push may start."""
        now = self._clock.monotonic()
        return max((bucket.delay(self._per_push, now) for bucket in self._buckets), default=0.0)

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
            bucket.debit(tokens, self._clock.monotonic())


def rate_budget_of(clock: Clock, published: Limits, own_rate: float | None) -> RateBudget:
    """The budget of an account: its own sustained rate, with a second's worth at once, or else what its kind publishes."""
    per_push = published.requests_per_push
    if own_rate is not None:
        return RateBudget(clock, [TokenBucket(own_rate, max(own_rate, per_push))], per_push=per_push)
    return RateBudget(clock, [_bucket(limit, per_push) for limit in published.each], per_push=per_push)


def _bucket(limit: Limit, per_push: int) -> TokenBucket:
    """Burst and rate are chosen so that their sum stays below the next whole number of the published limit."""
    burst = max(limit.requests * _AT_ONCE, per_push)
    # Requests are whole: half a one too many is none too many, and keeps a limit of 1 from refilling never.
    rate = (max(limit.requests - burst, 0.0) + 0.5) / limit.seconds
    return TokenBucket(rate, burst)

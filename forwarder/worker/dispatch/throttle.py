"""An account's throttle: when its next push may start, by its circuit breaker, its rate budget, and what its PMS asked for; and
how many may be in flight.

A throttle outlives its account queue: an account that had nothing to push for a while keeps its breaker and its budget.
There is one for each account that this worker has pushed for, a few hundred bytes each.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from forwarder.observability import metrics
from forwarder.pms.port import OVERLOADED, Limit, Limits
from forwarder.process.clock import Clock
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.breaker import Breaker, BreakerState
from forwarder.worker.push_context import Health, HealthSignal

_log = structlog.get_logger(__name__)

_NEVER = float("-inf")
_INSTANT = 1e-6
"""Seconds: nearer than clocks are exact."""

_AT_ONCE: Final = 0.1
"""Of a published limit: what may be asked at once. The rest comes steadily."""

_TOLERATED: Final = 0.1
"""Of a round: more than this share of pushes that found the PMS overloaded is no accident."""


class Admission(NamedTuple):
    """When a push started, as its breaker and its concurrency limit count."""

    breaker: int
    round: int


class Throttle:
    """One account's. Implements `Pace`, by which the PMS seam reports what it sends and what it is asked."""

    def __init__(self, account: Account, clock: Clock, published: Callable[[str], Limits]) -> None:
        self._account = account
        self._clock = clock
        self._published = published
        self._breaker = Breaker(clock)
        self._budget = rate_budget_of(clock, published(account.kind), account.rate_per_second)
        self._concurrency = ConcurrencyLimit(account.concurrency)
        self._held_off_until = _NEVER
        self._shown: tuple[str, BreakerState] = (account.kind, BreakerState.CLOSED)

    def configure(self, account: Account) -> None:
        """Apply the account's current settings. A repaired address or credential is tried at once."""
        before, self._account = self._account, account
        if (account.kind, account.rate_per_second) != (before.kind, before.rate_per_second):
            self._budget = rate_budget_of(self._clock, self._published(account.kind), account.rate_per_second)
        if (account.kind, account.base_url, account.credential) != (before.kind, before.base_url, before.credential):
            self._breaker.try_now()
            self._held_off_until = _NEVER
        self._concurrency.allow(account.concurrency)
        self._show()

    @property
    def blocked(self) -> bool:
        """Whether the PMS is being left alone."""
        return self._breaker.state is not BreakerState.CLOSED or self._held_off() > 0.0

    @property
    def limit(self) -> int:
        """How many pushes may be in flight: as many as the account allows, fewer where that is more than its PMS bears."""
        return self._concurrency.limit

    def delay(self) -> float:
        """Seconds until a push may start: 0.0 for now, infinity where that depends on one that is under way."""
        if self.blocked or self._budget.limits:
            delay = max(self._breaker.delay(), self._held_off(), self._budget.delay())
            return delay if delay > _INSTANT else 0.0
        return 0.0

    def start(self) -> Admission:
        """A push starts, after `delay` returned 0.0. What is returned goes to `end`, once, when the PMS has answered."""
        self._budget.start()
        before = self._breaker.state
        admission = Admission(self._breaker.start(), self._concurrency.start())
        if self._breaker.state is not before:
            self._show()
        return admission

    def end(self, admission: Admission, signal: HealthSignal) -> None:
        """A push is over that showed this of the PMS."""
        self._budget.end(attempted=signal.health is not Health.NOT_ATTEMPTED)
        before = self._breaker.state
        self._breaker.end(admission.breaker, signal.health)
        if self._breaker.state is not before:
            self._log_change(signal)
            self._show()
        if signal.health is Health.WELL or signal.health is Health.FAILING:
            self._adapt(admission.round, signal)

    def requested(self) -> None:
        self._budget.requested()

    def hold_off(self, seconds: float) -> None:
        if self._held_off() <= 0.0:
            kind = self._account.kind
            metrics.HOLD_OFFS.labels(kind).inc()
            _log.warning("pms.held_off", account_id=self._account.id, kind=kind, seconds=round(seconds, 3))
        self._held_off_until = max(self._held_off_until, self._clock.monotonic() + seconds)

    def _held_off(self) -> float:
        until = self._held_off_until
        return 0.0 if until == _NEVER else max(until - self._clock.monotonic(), 0.0)

    def _adapt(self, started: int, signal: HealthSignal) -> None:
        if self._concurrency.end(started, overloaded=signal.reason in OVERLOADED):
            kind = self._account.kind
            metrics.WINDOW_CUTS.labels(kind).inc()
            _log.info(
                "concurrency_limit.lowered", account_id=self._account.id, kind=kind, in_flight=self._concurrency.limit
            )

    def _log_change(self, signal: HealthSignal) -> None:
        account_id, kind = self._account.id, self._account.kind
        if self._breaker.state is BreakerState.CLOSED:
            _log.info("breaker.closed", account_id=account_id, kind=kind)
        elif signal.health is Health.FAILING:
            pause = round(self._breaker.pause, 3)
            metrics.BREAKER_OPENINGS.labels(kind).inc()
            _log.warning("breaker.opened", account_id=account_id, kind=kind, reason=signal.reason, pause_seconds=pause)

    def _show(self) -> None:
        shown = (self._account.kind, self._breaker.state)
        if shown != self._shown:
            for (kind, state), change in ((self._shown, -1), (shown, 1)):
                if state is not BreakerState.CLOSED:
                    metrics.BREAKERS.labels(kind, state.value).inc(change)
            self._shown = shown


class Throttles:
    """Every account's. `published` returns the limits that a kind of PMS publishes."""

    def __init__(self, clock: Clock, published: Callable[[str], Limits] = lambda _: Limits()) -> None:
        self._clock = clock
        self._published = published
        self._throttles: dict[str, Throttle] = {}

    def of(self, account: Account) -> Throttle:
        """The account's throttle; a new one starts under the settings that are given."""
        throttle = self._throttles.get(account.id)
        if throttle is None:
            throttle = self._throttles[account.id] = Throttle(account, self._clock, self._published)
        return throttle


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

    def debit(self, tokens: float) -> None:
        """Take so many, whether they are there or not; less than none: give back."""
        self._refill()
        self._tokens = min(self._tokens - tokens, self._burst)

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._tokens + (now - self._updated) * self._rate, self._burst)
        self._updated = now


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

    def delay(self) -> float:
        """Seconds until a push may start."""
        return max((bucket.delay(self._per_push) for bucket in self._buckets), default=0.0)

    def start(self) -> None:
        """A push starts."""
        self._pushing += 1
        self._paid += self._per_push
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
    """The budget of an account: its own sustained rate, with a second's worth at once, or else what its kind publishes."""
    per_push = published.requests_per_push
    if own_rate is not None:
        return RateBudget([TokenBucket(clock, own_rate, max(own_rate, per_push))], per_push=per_push)
    return RateBudget([_bucket(clock, limit, per_push) for limit in published.each], per_push=per_push)


def _bucket(clock: Clock, limit: Limit, per_push: int) -> TokenBucket:
    """Burst and rate are chosen so that their sum stays below the next whole number of the published limit."""
    burst = max(limit.requests * _AT_ONCE, per_push)
    # Requests are whole: half a one too many is none too many, and keeps a limit of 1 from refilling never.
    rate = (max(limit.requests - burst, 0.0) + 0.5) / limit.seconds
    return TokenBucket(clock, rate, burst)

"""An account's throttle: when its next push may start, by its circuit breaker, its rate budget, and what its PMS asked for; and
how many may be in flight.

A throttle outlives its account queue: an account that had nothing to push for a while keeps its breaker and its budget.
There is one for each account that this worker has pushed for, a few hundred bytes each.
"""

import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import structlog

from forwarder.observability import metrics
from forwarder.pms.port import OVERLOADED, Limits
from forwarder.process.clock import Clock
from forwarder.store.processes.port import ThrottleState
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.token_bucket import TokenBucket, buckets_of
from forwarder.worker.push_context import Health, HealthSignal

_log = structlog.get_logger(__name__)

Published = Callable[[str, Mapping[str, Any]], Limits]
"""What a kind of PMS publishes, of an account with these options."""

_NEVER = float("-inf")
_IDLE: Final = "idle"
_UNKNOWN: Final = "unknown"
_THROTTLED: Final = "pms_throttled"
_IDLE_SECONDS: Final = 5.0
_INSTANT = 1e-6
"""Seconds: nearer than clocks are exact."""

_TOLERATED: Final = 0.1
"""Of a round: more than this share of pushes that found the PMS overloaded is no accident."""


class BreakerState(StrEnum):
    """Of a breaker."""

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


_NEVER_OPENS: Final = Tolerance(failures=sys.maxsize)
"""For shadows: a simulated PMS is down for the bookings that ask for it, and for no other."""


class Admission(NamedTuple):
    """When a push started, as its breaker and its concurrency limit count."""

    breaker: int
    round: int


class Throttle:
    """One account's. Implements `Pace`, by which the PMS seam reports what it sends and what it is asked."""

    def __init__(self, account: Account, clock: Clock, published: Published) -> None:
        self._account = account
        self._clock = clock
        self._published = published
        self._breaker = Breaker(clock, _NEVER_OPENS if account.test else None)
        self._budget = rate_budget_of(clock, published(account.kind, account.options), account.rate_per_second)
        self._concurrency = ConcurrencyLimit(account.concurrency)
        self._held_off_until = _NEVER
        self._opened_for: str | None = None

    def configure(self, account: Account) -> None:
        """Apply the account's current settings. A repaired address or credential is tried at once."""
        before, self._account = self._account, account
        if (account.kind, account.rate_per_second, account.options) != (
            before.kind,
            before.rate_per_second,
            before.options,
        ):
            published = self._published(account.kind, account.options)
            self._budget = rate_budget_of(self._clock, published, account.rate_per_second)
        if (account.kind, account.base_url, account.credential) != (before.kind, before.base_url, before.credential):
            self._breaker.try_now()
            self._held_off_until = _NEVER
        self._concurrency.allow(account.concurrency)

    @property
    def kind(self) -> str:
        """Of the account's PMS."""
        return self._account.kind

    @property
    def failing(self) -> str | None:
        """The reason for which the PMS is being left alone; None where it is not."""
        if self._breaker.state is not BreakerState.CLOSED:
            return self._opened_for
        return _THROTTLED if self._held_off() > 0.0 else None

    @property
    def shown(self) -> str | None:
        """How operators see the breaker: None while it is closed."""
        if self._breaker.state is BreakerState.CLOSED:
            return None
        return _IDLE if self._breaker.idle else BreakerState.OPEN.value

    @property
    def blocked(self) -> bool:
        """Whether the PMS is being left alone."""
        return self._breaker.state is not BreakerState.CLOSED or self._held_off() > 0.0

    @property
    def limit(self) -> int:
        """How many pushes may be in flight: as many as the account allows, fewer where that is more than its PMS bears."""
        return self._concurrency.limit

    def state(self) -> ThrottleState:
        """All of it, as operators see it."""
        delay, bucket = self.delay(), self._budget.scarcest
        return ThrottleState(
            self._account.id,
            self._breaker.state.value,
            self.failing,
            None if math.isinf(delay) else round(delay, 1),
            self._budget.in_flight,
            self._concurrency.limit,
            self._account.concurrency,
            None if bucket is None else round(bucket.left, 1),
            None if bucket is None else round(bucket.burst, 1),
        )

    def delay(self) -> float:
        """Seconds until a push may start: 0.0 for now, infinity where that depends on one that is under way."""
        if self.blocked or self._budget.limits:
            delay = max(self._breaker.delay(), self._held_off(), self._budget.delay())
            return delay if delay > _INSTANT else 0.0
        return 0.0

    def start(self) -> Admission:
        """A push starts, after `delay` returned 0.0. What is returned goes to `end`, once, when the PMS has answered."""
        self._budget.start()
        return Admission(self._breaker.start(), self._concurrency.start())

    def end(self, admission: Admission, signal: HealthSignal) -> None:
        """A push is over that showed this of the PMS."""
        self._budget.end(attempted=signal.health is not Health.NOT_ATTEMPTED)
        before = self._breaker.state
        self._breaker.end(admission.breaker, signal.health)
        if self._breaker.state is not before:
            self._log_change(signal)
        if signal.health is Health.WELL or (signal.health is Health.FAILING and not self._account.test):
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
            self._opened_for = signal.reason
            metrics.BREAKER_OPENINGS.labels(kind).inc()
            _log.warning("breaker.opened", account_id=account_id, kind=kind, reason=signal.reason, pause_seconds=pause)


class Throttles:
    """Every account's. `published` returns the limits that a kind of PMS publishes."""

    def __init__(self, clock: Clock, published: Published = lambda *_: Limits()) -> None:
        self._clock = clock
        self._published = published
        self._throttles: dict[str, Throttle] = {}

    def of(self, account: Account) -> Throttle:
        """The account's throttle; a new one starts under the settings that are given."""
        throttle = self._throttles.get(account.id)
        if throttle is None:
            throttle = self._throttles[account.id] = Throttle(account, self._clock, self._published)
        return throttle

    def failing(self, account_id: str) -> str | None:
        """As `Throttle.failing`; None too of an account that nothing was pushed for."""
        throttle = self._throttles.get(account_id)
        return None if throttle is None else throttle.failing

    def states(self, *, max_accounts: int) -> Sequence[ThrottleState]:
        """Of so many accounts at the most: first those whose PMS is left alone, then those with the most under way."""
        states = sorted((each.state() for each in self._throttles.values()), key=lambda each: each.account_id)
        states.sort(key=lambda each: (each.reason is None, -each.in_flight))
        return states[:max_accounts]

    def show(self, *, max_accounts: int) -> None:
        """Tell the metrics whose breakers are not closed; by name no more than so many accounts."""
        states = {account_id: (each.kind, each.shown) for account_id, each in self._throttles.items() if each.shown}
        metrics.BREAKERS.replace({(kind, state or ""): n for (kind, state), n in Counter(states.values()).items()})
        is_open = sorted(account_id for account_id, (_, state) in states.items() if state != _IDLE)
        named: dict[tuple[str, ...], float] = {
            (account_id, self._throttles[account_id].failing or _UNKNOWN): 1.0 for account_id in is_open[:max_accounts]
        }
        others = len(is_open) - len(named)
        metrics.OPEN_BREAKERS.replace(named | ({("other", _UNKNOWN): others} if others else {}))


class Breaker:
    """A circuit breaker: a PMS that fails is left alone for a while, then asked with one push (M. T. Nygard, "Release It!", 2007).

        CLOSED ── failures in a row ──▶ OPEN ── its pause is over ──▶ HALF_OPEN: one push, the probe, is under way
           ▲                              ▲                               │      │
           │                              └── it fails: a longer pause ───┘      │
           └───────────────────── a push that started at any time goes well ─────┘

    A failure counts only where its push started since the breaker last opened: of 64 that were in flight, those that fail after it
    opened lengthen no pause, and do not open it again once it has closed.

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
        """Whether a probe might go, and has not for a while: there is nothing to push."""
        return self.state is BreakerState.OPEN and self._clock.monotonic() > self._until + _IDLE_SECONDS

    def start(self) -> int:
        """A push starts, after `delay` returned 0.0. What is returned goes to `end`, once, when the push is over."""
        if self.state is BreakerState.OPEN:
            self.state = BreakerState.HALF_OPEN
        return self._openings

    def end(self, started: int, health: Health) -> None:
        """A push is over that showed `health`."""
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

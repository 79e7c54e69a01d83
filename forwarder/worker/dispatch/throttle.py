"""An account's throttle: when its next push may start, by its circuit breaker, its rate budget, and pauses that its PMS asked
for; and how many may be in flight. There are two breakers, for reservations and for cancellations; operators see the former.

A throttle outlives its account queue: an idle account keeps its breaker and its budget. There is one for each account that this
worker has pushed for, a few hundred bytes each.
"""

import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import structlog

from forwarder.observability import metrics
from forwarder.pms.port import OVERLOADED, Limits
from forwarder.process.clock import Clock
from forwarder.store.submissions.port import ThrottleState
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.rate_budget import Budgets, Loans
from forwarder.worker.push.run import Health, HealthSignal

_log = structlog.get_logger(__name__)

Published = Callable[[str, Mapping[str, Any]], Limits]
"""The published limits of a kind of PMS, for an account with these options."""

MAX_FAILURES: Final = 10  # so many failures in a row open a breaker
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds that a breaker stays open. Each pause is twice the last one, and half of it is random, so that many breakers in front of
one PMS do not probe it together."""
_IDLE_SECONDS: Final = 5.0
_TOLERATED: Final = 0.1  # the share of overloaded pushes in a round above which the concurrency limit is lowered
_INSTANT: Final = 1e-6  # seconds below the precision of the clocks
_IDLE: Final = "idle"
_UNKNOWN: Final = "unknown"
_THROTTLED: Final = "pms_throttled"

_SETTINGS: Final = ("kind", "base_url", "credential", "rate_per_second", "options")


class BreakerState(StrEnum):
    """See `Breaker`."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """A circuit breaker: a PMS that fails is left alone for a while, then asked with one push (M. T. Nygard, "Release It!", 2007).

        CLOSED ── failures in a row ──▶ OPEN ── its pause is over ──▶ HALF_OPEN: one push, the probe, is under way
           ▲                              ▲                               │      │
           │                              └── it fails: a longer pause ───┘      │
           └───────────────────── a push that started at any time goes well ─────┘

    A failure counts only if its push started after the breaker last opened: of 64 pushes in flight, those that fail after it
    opened do not lengthen the pause, nor open it again once it has closed.

    `jitter` draws evenly from [0, 1). `pause`: seconds for which it last opened.
    """

    def __init__(
        self, clock: Clock, max_failures: int = MAX_FAILURES, jitter: Callable[[], float] = random.random
    ) -> None:
        self._clock, self._max_failures, self._jitter = clock, max_failures, jitter
        self._failures = self._openings = self._pauses = 0
        self._until = 0.0
        self.pause = 0.0
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
        if health is Health.WELL:
            self.state, self._failures, self._pauses = BreakerState.CLOSED, 0, 0
        elif started == self._openings and health is Health.FAILING:
            self._failures += 1
            if self.state is BreakerState.HALF_OPEN or self._failures >= self._max_failures:
                longest = min(_FIRST_PAUSE * 2.0 ** min(self._pauses, 30), _LONGEST_PAUSE)
                self.pause = longest * (1.0 + self._jitter()) / 2.0
                self._until = self._clock.monotonic() + self.pause
                self._pauses += 1
                self._openings += 1
                self.state = BreakerState.OPEN
        elif started == self._openings and self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN  # the probe showed nothing: another one, at once

    def try_now(self) -> None:
        """The settings have changed: if open, let the probe go at once."""
        self._until = self._clock.monotonic()


class ConcurrencyLimit:
    """How many pushes of one account may be in flight now: `limit`, from 1 to `maximum`, adapted to what its PMS can handle.

    Additive increase, multiplicative decrease (D.-M. Chiu, R. Jain, "Analysis of the increase and decrease algorithms for
    congestion avoidance in computer networks", 1989), with the slow start of V. Jacobson, "Congestion avoidance and control",
    1988. The limit starts at the account's maximum and falls only when the PMS shows overload: a PMS that is merely slow keeps
    the maximum. It adapts once a round, which is as many pushes as the limit, so that a single failure lowers nothing.
    """

    def __init__(self, maximum: int) -> None:
        self.limit = self._maximum = self._slow_start_until = maximum
        self._round = self._ended = self._overloaded = 0

    def allow(self, maximum: int) -> None:
        """The account allows so many from now on. A limit that was not lowered follows."""
        lowered = self.limit < self._maximum
        self._maximum = maximum
        self.limit = min(self.limit, maximum) if lowered else maximum
        self._slow_start_until = min(self._slow_start_until, maximum) if lowered else maximum

    def start(self) -> int:
        """Pass the result to `end` if the push shows the PMS's load."""
        return self._round

    def end(self, started: int, *, overloaded: bool) -> bool:
        """Ends a push that found the PMS overloaded, or not. True if that lowered the limit.

        Pushes that started in an earlier round say nothing about the limit of this one.
        """
        if started != self._round:
            return False
        self._ended += 1
        self._overloaded += overloaded
        before = self.limit
        if self._ended < before:
            return False
        if self._overloaded > self._ended * _TOLERATED:
            self.limit = self._slow_start_until = max(before // 2, 1)
        else:
            self.limit = min(before * 2 if before < self._slow_start_until else before + 1, self._maximum)
        self._round += 1
        self._ended = self._overloaded = 0
        return self.limit < before


class Admission(NamedTuple):
    """When a push started, as its breaker and its concurrency limit count. `cancelling`: it cancels a reservation."""

    breaker: int
    round: int
    cancelling: bool = False


class Throttle:
    """The throttle of one account. Implements `Pace`, through which the PMS client reports requests and requested pauses."""

    def __init__(self, account: Account, clock: Clock, published: Published, budgets: Budgets) -> None:
        self.account, self._clock, self._published, self._budgets = account, clock, published, budgets
        # A simulated PMS is down for the bookings that ask for it, and for no other.
        most = sys.maxsize if account.test else MAX_FAILURES
        self._breaker, self._cancel_breaker = (Breaker(clock, most) for _ in range(2))
        self._budget = budgets.of(account, published(account.kind, account.options))
        self._concurrency = ConcurrencyLimit(account.concurrency)
        self._held_off_until = -math.inf
        self._opened_for: str | None = None

    def configure(self, account: Account) -> None:
        """Applies the account's current settings. A repaired address or credential is tried at once."""
        before, self.account = self.account, account
        changed = {name for name in _SETTINGS if getattr(account, name) != getattr(before, name)}
        if changed - {"credential"}:
            self._budget = self._budgets.of(account, self._published(account.kind, account.options))
        if changed & {"kind", "base_url", "credential"}:
            self._breaker.try_now()
            self._cancel_breaker.try_now()
            self._held_off_until = -math.inf
        self._concurrency.allow(account.concurrency)

    @property
    def failing(self) -> str | None:
        """Why the throttle blocks the PMS; None if it does not."""
        if self._breaker.state is not BreakerState.CLOSED:
            return self._opened_for
        return _THROTTLED if self._held_off() > 0.0 else None

    @property
    def shown(self) -> str | None:
        """The breaker's state for operators: None while it is closed."""
        if self._breaker.state is BreakerState.CLOSED:
            return None
        return _IDLE if self._breaker.idle else BreakerState.OPEN.value

    @property
    def blocked(self) -> bool:
        """Whether the breaker, or a pause that the PMS asked for, blocks pushes."""
        return self._breaker.state is not BreakerState.CLOSED or self._held_off() > 0.0

    @property
    def limit(self) -> int:
        """How many pushes may be in flight: the account's maximum, or fewer if its PMS cannot handle that many."""
        return self._concurrency.limit

    def state(self) -> ThrottleState:
        delay, bucket = self.delay(), self._budget.scarcest
        return ThrottleState(
            self.account.id,
            self._breaker.state.value,
            self.failing,
            None if math.isinf(delay) else round(delay, 1),
            self._budget.in_flight,
            self._concurrency.limit,
            self.account.concurrency,
            None if bucket is None else round(bucket.left(self._clock.monotonic()), 1),
            None if bucket is None else round(bucket.burst, 1),
        )

    def delay(self) -> float:
        """Seconds until a push that makes a reservation may start: 0.0 for now, infinity if that depends on a push in flight.
        Leaves out tokens that have to be borrowed first."""
        paced = self.pace_delay()
        return max(self.breaker_delay(cancelling=False), self._held_off() if paced == math.inf else paced)

    def breaker_delay(self, *, cancelling: bool) -> float:
        """Seconds until the breaker permits a push. Cancellations have their own breaker: a PMS that refuses them may well accept
        reservations, and a reservation never waits for the probe of a cancellation."""
        delay = (self._cancel_breaker if cancelling else self._breaker).delay()
        return delay if delay > _INSTANT else 0.0

    def pace_delay(self) -> float:
        """Seconds until the rate budget and the PMS's requested pause permit a push: both apply to the whole account. Infinity if
        tokens have to be borrowed first: see `want`."""
        delay = max(self._held_off(), self._budget.delay())
        return delay if delay > _INSTANT else 0.0

    def want(self, startable: int, waiting: int) -> None:
        self._budget.want(startable, waiting)

    def start(self, *, cancelling: bool = False) -> Admission:
        """Starts a push, after both delays were 0.0. Pass the result to `end`, once, when the PMS has responded."""
        self._budget.start()
        breaker = self._cancel_breaker if cancelling else self._breaker
        return Admission(breaker.start(), self._concurrency.start(), cancelling)

    def end(self, admission: Admission, signal: HealthSignal) -> None:
        self._budget.end(attempted=signal.health is not Health.NOT_ATTEMPTED)
        breaker = self._cancel_breaker if admission.cancelling else self._breaker
        before = breaker.state
        breaker.end(admission.breaker, signal.health)
        if breaker.state is not before:
            self._log_change(breaker, signal, cancelling=admission.cancelling)
        failed = signal.health is Health.FAILING and not self.account.test and not admission.cancelling
        if (signal.health is Health.WELL or failed) and self._concurrency.end(
            admission.round, overloaded=signal.reason in OVERLOADED
        ):
            kind, limit = self.account.kind, self._concurrency.limit
            metrics.WINDOW_CUTS.labels(kind).inc()
            _log.info("concurrency_limit.lowered", account_id=self.account.id, kind=kind, in_flight=limit)

    def requested(self) -> None:
        self._budget.requested()

    def hold_off(self, seconds: float) -> None:
        if self._held_off() <= 0.0:
            kind = self.account.kind
            metrics.HOLD_OFFS.labels(kind).inc()
            _log.warning("pms.held_off", account_id=self.account.id, kind=kind, seconds=round(seconds, 3))
        self._held_off_until = max(self._held_off_until, self._clock.monotonic() + seconds)

    def _held_off(self) -> float:
        return max(self._held_off_until - self._clock.monotonic(), 0.0)

    def _log_change(self, breaker: Breaker, signal: HealthSignal, *, cancelling: bool) -> None:
        about = {"account_id": self.account.id, "kind": self.account.kind, "cancellations": cancelling}
        if breaker.state is BreakerState.CLOSED:
            _log.info("breaker.closed", **about)
        elif signal.health is Health.FAILING:
            if not cancelling:
                self._opened_for = signal.reason
            metrics.BREAKER_OPENINGS.labels(self.account.kind).inc()
            _log.warning("breaker.opened", **about, reason=signal.reason, pause_seconds=round(breaker.pause, 3))


class Throttles:
    """Every account's. `published` returns the limits that a kind of PMS publishes. `loans`: where several workers share them."""

    def __init__(self, clock: Clock, published: Published = lambda *_: Limits(), loans: Loans | None = None) -> None:
        self._clock = clock
        self._published = published
        self._budgets = Budgets(clock, loans)
        self._throttles: dict[str, Throttle] = {}

    def of(self, account: Account) -> Throttle:
        """The account's throttle; a new one starts under the settings that are given."""
        throttle = self._throttles.get(account.id)
        if throttle is None:
            throttle = self._throttles[account.id] = Throttle(account, self._clock, self._published, self._budgets)
        return throttle

    def failing(self, account_id: str) -> str | None:
        """As `Throttle.failing`; None also for an account without pushes."""
        throttle = self._throttles.get(account_id)
        return None if throttle is None else throttle.failing

    def states(self, *, max_accounts: int) -> Sequence[ThrottleState]:
        """The states of at most `max_accounts` accounts: blocked ones first, then those with the most pushes in flight."""
        states = sorted((each.state() for each in self._throttles.values()), key=lambda each: each.account_id)
        states.sort(key=lambda each: (each.reason is None, -each.in_flight))
        return states[:max_accounts]

    def show(self, *, max_accounts: int) -> None:
        """Reports breakers that are not closed to the metrics; names at most `max_accounts` accounts."""
        states = {
            account_id: (each.account.kind, each.shown) for account_id, each in self._throttles.items() if each.shown
        }
        metrics.BREAKERS.replace({(kind, state or ""): n for (kind, state), n in Counter(states.values()).items()})
        is_open = sorted(account_id for account_id, (_, state) in states.items() if state != _IDLE)
        named: dict[tuple[str, ...], float] = {
            (account_id, self._throttles[account_id].failing or _UNKNOWN): 1.0 for account_id in is_open[:max_accounts]
        }
        others = len(is_open) - len(named)
        metrics.OPEN_BREAKERS.replace(named | ({("other", _UNKNOWN): others} if others else {}))

"""An account's gate: when its next push may start, by its circuit breaker, its rate budget, and what its PMS asked for; and how
many may be in flight.

A throttle outlives its account queue: an account that had nothing to push for a while keeps its breaker and its budget.
There is one for each account that this worker has pushed for, a few hundred bytes each.
"""

from collections.abc import Callable
from typing import NamedTuple

import structlog

from forwarder.observability import metrics
from forwarder.pms.port import OVERLOADED, Limits
from forwarder.process.clock import Clock
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.breaker import Breaker, BreakerState, Health
from forwarder.worker.dispatch.concurrency import ConcurrencyLimit
from forwarder.worker.dispatch.rate_budget import budget_of
from forwarder.worker.push.health_signal import HealthSignal

_log = structlog.get_logger(__name__)

_NEVER = float("-inf")
_INSTANT = 1e-6
"""Seconds: nearer than clocks are exact."""


class Admission(NamedTuple):
    """When a push started, as its breaker and its window count."""

    breaker: int
    window: int


class Throttle:
    """One account's. Implements `Pace`, by which the PMS seam reports what it sends and what it is asked."""

    def __init__(self, account: Account, clock: Clock, published: Callable[[str], Limits]) -> None:
        self._account = account
        self._clock = clock
        self._published = published
        self._breaker = Breaker(clock)
        self._budget = budget_of(clock, published(account.kind), account.rate_per_second)
        self._window = ConcurrencyLimit(account.concurrency)
        self._held_off_until = _NEVER
        self._shown: tuple[str, BreakerState] = (account.kind, BreakerState.CLOSED)

    def configure(self, account: Account) -> None:
        """Go on under the account's settings of now. A repaired address or credential is tried at once."""
        before, self._account = self._account, account
        if (account.kind, account.rate_per_second) != (before.kind, before.rate_per_second):
            self._budget = budget_of(self._clock, self._published(account.kind), account.rate_per_second)
        if (account.kind, account.base_url, account.credential) != (before.kind, before.base_url, before.credential):
            self._breaker.try_now()
            self._held_off_until = _NEVER
        self._window.allow(account.concurrency)
        self._show()

    @property
    def shut(self) -> bool:
        """Whether the PMS is being left alone."""
        return self._breaker.state is not BreakerState.CLOSED or self._held_off() > 0.0

    @property
    def width(self) -> int:
        """How many pushes may be in flight: as many as the account allows, fewer where that is more than its PMS bears."""
        return self._window.width

    def delay(self) -> float:
        """Seconds until a push may start: 0.0 for now, infinity where that hangs on one that is under way."""
        if self.shut or self._budget.limits:
            delay = max(self._breaker.delay(), self._held_off(), self._budget.delay())
            return delay if delay > _INSTANT else 0.0
        return 0.0

    def enter(self) -> Admission:
        """A push starts, `delay` having told 0.0. What is returned goes to `leave`, once, when the PMS has answered."""
        self._budget.start()
        before = self._breaker.state
        entered = Admission(self._breaker.start(), self._window.start())
        if self._breaker.state is not before:
            self._show()
        return entered

    def leave(self, entered: Admission, finding: HealthSignal) -> None:
        """A push is over that found the PMS so."""
        self._budget.end(untouched=finding.health is Health.UNTOUCHED)
        before = self._breaker.state
        self._breaker.end(entered.breaker, finding.health)
        if self._breaker.state is not before:
            self._tell(finding)
            self._show()
        if finding.health is Health.WELL or finding.health is Health.FAILING:
            self._mind(entered.window, finding)

    def _mind(self, started: int, finding: HealthSignal) -> None:
        if self._window.end(started, overloaded=finding.reason in OVERLOADED):
            kind = self._account.kind
            metrics.WINDOW_CUTS.labels(kind).inc()
            _log.info("window.narrowed", account_id=self._account.id, kind=kind, in_flight=self._window.width)

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

    def _tell(self, finding: HealthSignal) -> None:
        account_id, kind = self._account.id, self._account.kind
        if self._breaker.state is BreakerState.CLOSED:
            _log.info("breaker.closed", account_id=account_id, kind=kind)
        elif finding.health is Health.FAILING:
            pause = round(self._breaker.pause, 3)
            metrics.BREAKER_OPENINGS.labels(kind).inc()
            _log.warning("breaker.opened", account_id=account_id, kind=kind, reason=finding.reason, pause_seconds=pause)

    def _show(self) -> None:
        shown = (self._account.kind, self._breaker.state)
        if shown != self._shown:
            for (kind, state), change in ((self._shown, -1), (shown, 1)):
                if state is not BreakerState.CLOSED:
                    metrics.BREAKERS.labels(kind, state.value).inc(change)
            self._shown = shown


class Throttles:
    """Every account's. `published` tells the limits of a kind of PMS."""

    def __init__(self, clock: Clock, published: Callable[[str], Limits] = lambda _: Limits()) -> None:
        self._clock = clock
        self._published = published
        self._gates: dict[str, Throttle] = {}

    def of(self, account: Account) -> Throttle:
        """The account's gate; a new one is under the settings that are given."""
        gate = self._gates.get(account.id)
        if gate is None:
            gate = self._gates[account.id] = Throttle(account, self._clock, self._published)
        return gate

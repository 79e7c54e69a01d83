"""An account's throttle: when its next push may start, by its circuit breaker, its rate budget, and pauses that its PMS asked
for; and how many may be in flight. There are two breakers, for reservations and for cancellations; operators see the former.

A throttle outlives its account queue: an idle account keeps its breaker and its budget. There is one for each account that this
worker has pushed for, a few hundred bytes each.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog

from forwarder.observability import metrics
from forwarder.pms.port import OVERLOADED, Limits
from forwarder.process.clock import Clock
from forwarder.store.submissions.port import ThrottleState
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.limits import Breaker, BreakerState, ConcurrencyLimit, Tolerance
from forwarder.worker.dispatch.rate_budget import Budgets, Loans
from forwarder.worker.push_context import Health, HealthSignal

_log = structlog.get_logger(__name__)

Published = Callable[[str, Mapping[str, Any]], Limits]
"""The published limits of a kind of PMS, for an account with these options."""

_NEVER = float("-inf")
_IDLE: Final = "idle"
_UNKNOWN: Final = "unknown"
_THROTTLED: Final = "pms_throttled"
_INSTANT = 1e-6
"""Seconds below the precision of the clocks."""


_NEVER_OPENS: Final = Tolerance(failures=sys.maxsize)
"""For shadows: a simulated PMS is down for the bookings that ask for it, and for no other."""


class Admission(NamedTuple):
    """When a push started, as its breaker and its concurrency limit count. `cancelling`: it cancels a reservation."""

    breaker: int
    round: int
    cancelling: bool = False


class Throttle:
    """The throttle of one account. Implements `Pace`, through which the PMS client reports requests and requested pauses."""

    def __init__(self, account: Account, clock: Clock, published: Published, budgets: Budgets) -> None:
        self._account = account
        self._clock = clock
        self._published = published
        self._budgets = budgets
        self._breaker, self._cancel_breaker = (Breaker(clock, _NEVER_OPENS if account.test else None) for _ in range(2))
        self._budget = budgets.of(account, published(account.kind, account.options))
        self._concurrency = ConcurrencyLimit(account.concurrency)
        self._held_off_until = _NEVER
        self._opened_for: str | None = None

    def configure(self, account: Account) -> None:
        """Apply the account's current settings. A repaired address or credential is tried at once."""
        before, self._account = self._account, account
        if (account.kind, account.base_url, account.rate_per_second, account.options) != (
            before.kind,
            before.base_url,
            before.rate_per_second,
            before.options,
        ):
            self._budget = self._budgets.of(account, self._published(account.kind, account.options))
        if (account.kind, account.base_url, account.credential) != (before.kind, before.base_url, before.credential):
            self._breaker.try_now()
            self._cancel_breaker.try_now()
            self._held_off_until = _NEVER
        self._concurrency.allow(account.concurrency)

    @property
    def kind(self) -> str:
        """The kind of the account's PMS."""
        return self._account.kind

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
        if self._breaker.state is not BreakerState.CLOSED:
            return True
        return self._held_off_until != _NEVER and self._held_off() > 0.0

    @property
    def limit(self) -> int:
        """How many pushes may be in flight: the account's maximum, or fewer if its PMS cannot handle that many."""
        return self._concurrency.limit

    def state(self) -> ThrottleState:
        """The whole state, for operators."""
        delay, bucket = self.delay(), self._budget.scarcest
        return ThrottleState(
            self._account.id,
            self._breaker.state.value,
            self.failing,
            None if math.isinf(delay) else round(delay, 1),
            self._budget.in_flight,
            self._concurrency.limit,
            self._account.concurrency,
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
        if self._held_off_until != _NEVER or self._budget.limits:
            delay = max(self._held_off(), self._budget.delay())
            return delay if delay > _INSTANT else 0.0
        return 0.0

    def want(self, startable: int, waiting: int) -> None:
        """So many pushes could start now, of those that wait for the rate budget."""
        self._budget.want(startable, waiting)

    def start(self, *, cancelling: bool = False) -> Admission:
        """Starts a push, after both delays were 0.0. Pass the result to `end`, once, when the PMS has responded."""
        self._budget.start()
        breaker = self._cancel_breaker if cancelling else self._breaker
        return Admission(breaker.start(), self._concurrency.start(), cancelling)

    def end(self, admission: Admission, signal: HealthSignal) -> None:
        """Ends a push with the PMS's health signal."""
        self._budget.end(attempted=signal.health is not Health.NOT_ATTEMPTED)
        breaker = self._cancel_breaker if admission.cancelling else self._breaker
        before = breaker.state
        breaker.end(admission.breaker, signal.health)
        if breaker.state is not before:
            self._log_change(breaker, signal, cancelling=admission.cancelling)
        failed = signal.health is Health.FAILING and not self._account.test and not admission.cancelling
        if signal.health is Health.WELL or failed:
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

    def _log_change(self, breaker: Breaker, signal: HealthSignal, *, cancelling: bool) -> None:
        about = {"account_id": self._account.id, "kind": self._account.kind, "cancellations": cancelling}
        if breaker.state is BreakerState.CLOSED:
            _log.info("breaker.closed", **about)
        elif signal.health is Health.FAILING:
            if not cancelling:
                self._opened_for = signal.reason
            metrics.BREAKER_OPENINGS.labels(self._account.kind).inc()
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
        states = {account_id: (each.kind, each.shown) for account_id, each in self._throttles.items() if each.shown}
        metrics.BREAKERS.replace({(kind, state or ""): n for (kind, state), n in Counter(states.values()).items()})
        is_open = sorted(account_id for account_id, (_, state) in states.items() if state != _IDLE)
        named: dict[tuple[str, ...], float] = {
            (account_id, self._throttles[account_id].failing or _UNKNOWN): 1.0 for account_id in is_open[:max_accounts]
        }
        others = len(is_open) - len(named)
        metrics.OPEN_BREAKERS.replace(named | ({("other", _UNKNOWN): others} if others else {}))

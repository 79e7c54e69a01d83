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
from urllib.parse import urlsplit

import structlog

from forwarder.observability import metrics
from forwarder.pms.port import OVERLOADED, Limits
from forwarder.process.clock import Clock
from forwarder.process.shares import LAPSE_SECONDS, SharedBucket, TokenBucket
from forwarder.store.submissions.port import ThrottleState
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.rate_loans import BorrowedTokens, Loans
from forwarder.worker.push.run import HealthSignal, PmsHealth

_log = structlog.get_logger(__name__)

Published = Callable[[str, Mapping[str, Any]], Limits]
MAX_FAILURES: Final = 10  # so many failures in a row open a breaker
_INSTANT: Final = 1e-6  # seconds below the precision of the clocks


class BreakerState(StrEnum):
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

    `jitter` draws evenly from [0, 1). `pause`: seconds for which it last opened."""

    def __init__(self, clock: Clock, max_failures: int, jitter: Callable[[], float] = random.random) -> None:
        self._clock, self._max_failures, self._jitter = clock, max_failures, jitter
        self._failures = self._openings = self._pauses = 0
        self._until = self.pause = 0.0
        self.state = BreakerState.CLOSED

    def delay(self) -> float:
        """Seconds until a push may start: 0.0 for now, infinity where that depends on the probe."""
        if self.state is BreakerState.OPEN:
            return max(self._until - self._clock.monotonic(), 0.0)
        return 0.0 if self.state is BreakerState.CLOSED else math.inf

    @property
    def shown(self) -> str | None:
        """The state for operators: None while closed; idle: a probe has long been possible, with nothing to push."""
        if self.state is BreakerState.CLOSED:
            return None
        idle = self.state is BreakerState.OPEN and self._clock.monotonic() > self._until + 5.0
        return "idle" if idle else "open"

    def start(self) -> int:
        """Starts a push, after `delay` returned 0.0. Pass the result to `end`, once, when the push is over."""
        if self.state is BreakerState.OPEN:
            self.state = BreakerState.HALF_OPEN
        return self._openings

    def end(self, started: int, health: PmsHealth) -> None:
        if health is PmsHealth.WELL:
            self.state, self._failures, self._pauses = BreakerState.CLOSED, 0, 0
        elif started == self._openings and health is PmsHealth.FAILING:
            self._failures += 1
            if self.state is BreakerState.HALF_OPEN or self._failures >= self._max_failures:
                # From a second to a minute, twice the last one. Half is random: many breakers of one PMS do not probe it together.
                self.pause = min(2.0 ** min(self._pauses, 30), 60.0) * (1.0 + self._jitter()) / 2.0
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
    the maximum. It adapts once a round, which is as many pushes as the limit, so that a single failure lowers nothing."""

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
        """Ends a push that found the PMS overloaded, or not. True if that lowered the limit."""
        if started != self._round:  # says nothing about the limit of this one
            return False
        self._ended += 1
        self._overloaded += overloaded
        before = self.limit
        if self._ended < before:
            return False
        if self._overloaded > self._ended * 0.1:  # fewer of a round are tolerated
            self.limit = self._slow_start_until = max(before // 2, 1)
        else:
            self.limit = min(before * 2 if before < self._slow_start_until else before + 1, self._maximum)
        self._round += 1
        self._ended = self._overloaded = 0
        return self.limit < before


class RateBudget:
    """The rate budget of an account's pushes, from its PMS's published limits or its own rate: tokens for each limit.

    A push pays in advance, when it starts, for the requests that it usually takes. Further requests are debited when they are
    sent, so that later pushes wait longer. The limit is exact if pushes send what they paid for when they start."""

    def __init__(self, clock: Clock, buckets: Sequence[TokenBucket | BorrowedTokens], *, per_push: int = 1) -> None:
        self._clock, self._buckets, self._per_push = clock, tuple(buckets), per_push
        self._paid = self.in_flight = 0

    @property
    def scarcest(self) -> TokenBucket | BorrowedTokens | None:
        """The one that makes the next push wait for longest, or has the least left; None where none does."""
        now = self._clock.monotonic()
        return max(self._buckets, key=lambda each: (each.delay(self._per_push, now), -each.left(now)), default=None)

    def delay(self) -> float:
        """Seconds until a push may start; infinity where that depends on a loan, which `want` asks for."""
        now = self._clock.monotonic()
        return max((bucket.delay(self._per_push, now) for bucket in self._buckets), default=0.0)

    def want(self, startable: int, waiting: int) -> None:
        """So many pushes could start now, of those that wait."""
        for each in self._buckets:
            if isinstance(each, BorrowedTokens):
                each.want(startable, waiting)

    def start(self) -> None:
        self.in_flight += 1
        self._paid += self._per_push
        self._debit(self._per_push)

    def requested(self) -> None:
        if self._paid > 0:
            self._paid -= 1
        else:
            self._debit(1)

    def end(self, *, attempted: bool) -> None:
        """Ends a push. Refunds the requests of a push that did not reach the PMS (not `attempted`)."""
        self.in_flight = max(self.in_flight - 1, 0)
        unused = max(self._paid - self.in_flight * self._per_push, 0)
        self._paid -= unused
        if not attempted:
            self._debit(-unused)

    def _debit(self, tokens: int) -> None:
        for bucket in self._buckets:
            bucket.debit(tokens, self._clock.monotonic())


class PushStart(NamedTuple):
    """When a push started, as its breaker and its concurrency limit count. `cancelling`: it cancels a reservation."""

    breaker: int
    round: int
    cancelling: bool = False


class Throttle:
    """The throttle of one account. Implements `Pace`, through which the PMS client reports requests and requested pauses."""

    def __init__(self, account: Account, clock: Clock, budget: Callable[[Account], RateBudget]) -> None:
        self.account, self._clock, self._new_budget = account, clock, budget
        # A simulated PMS is down for the bookings that ask for it, and for no other.
        most = sys.maxsize if account.test else MAX_FAILURES
        self.breaker, self._cancel_breaker = (Breaker(clock, most) for _ in range(2))
        self.budget = budget(account)
        self._concurrency = ConcurrencyLimit(account.concurrency)
        self._held_off_until = -math.inf
        self._opened_for: str | None = None

    def configure(self, account: Account) -> None:
        """Applies the account's current settings. A repaired address or credential is tried at once."""
        before, self.account = self.account, account
        pms, pms_before = ((each.kind, each.base_url) for each in (account, before))
        if pms != pms_before or (account.rate_per_second, account.options) != (before.rate_per_second, before.options):
            self.budget = self._new_budget(account)
        if pms != pms_before or account.credential != before.credential:
            self.breaker.try_now()
            self._cancel_breaker.try_now()
            self._held_off_until = -math.inf
        self._concurrency.allow(account.concurrency)

    @property
    def failing(self) -> str | None:
        """Why the breaker, or a pause that the PMS asked for, blocks pushes; None if neither does."""
        if self.breaker.state is not BreakerState.CLOSED:
            return self._opened_for or ""
        return "pms_throttled" if self._held_off() > 0.0 else None

    @property
    def limit(self) -> int:
        """How many pushes may be in flight: the account's maximum, or fewer if its PMS cannot handle that many."""
        return self._concurrency.limit

    def state(self) -> ThrottleState:
        delay, bucket, limit, most = self.delay(), self.budget.scarcest, self.limit, self.account.concurrency
        tokens = (None, None) if bucket is None else (bucket.left(self._clock.monotonic()), bucket.burst)
        left, burst = (None if each is None else round(each, 1) for each in tokens)
        in_seconds, in_flight = None if math.isinf(delay) else round(delay, 1), self.budget.in_flight
        breaker = self.breaker.state.value
        return ThrottleState(self.account.id, breaker, self.failing, in_seconds, in_flight, limit, most, left, burst)

    def delay(self) -> float:
        """Seconds until a push that makes a reservation may start: 0.0 for now, infinity if that depends on a push in flight.
        Leaves out tokens that have to be borrowed first."""
        paced = self.pace_delay()
        return max(self.breaker_delay(cancelling=False), self._held_off() if paced == math.inf else paced)

    def breaker_delay(self, *, cancelling: bool) -> float:
        """Seconds until the breaker permits a push. Cancellations have their own breaker: a PMS that refuses them may well accept
        reservations, and a reservation never waits for the probe of a cancellation."""
        delay = (self._cancel_breaker if cancelling else self.breaker).delay()
        return delay if delay > _INSTANT else 0.0

    def pace_delay(self) -> float:
        """Seconds until the account's rate budget and the PMS's requested pause permit a push; infinity: see `RateBudget.want`."""
        delay = max(self._held_off(), self.budget.delay())
        return delay if delay > _INSTANT else 0.0

    def start(self, *, cancelling: bool = False) -> PushStart:
        """Starts a push, after both delays were 0.0. Pass the result to `end`, once, when the PMS has responded."""
        self.budget.start()
        breaker = self._cancel_breaker if cancelling else self.breaker
        return PushStart(breaker.start(), self._concurrency.start(), cancelling)

    def end(self, start: PushStart, signal: HealthSignal) -> None:
        self.budget.end(attempted=signal.health is not PmsHealth.NOT_ATTEMPTED)
        breaker = self._cancel_breaker if start.cancelling else self.breaker
        before = breaker.state
        breaker.end(start.breaker, signal.health)
        kind, cancelling, failing = self.account.kind, start.cancelling, signal.health is PmsHealth.FAILING
        about = {"account_id": self.account.id, "kind": kind, "cancellations": cancelling}
        if breaker.state is not before and breaker.state is BreakerState.CLOSED:
            _log.info("breaker.closed", **about)
        elif breaker.state is not before and failing:
            if not cancelling:
                self._opened_for = signal.reason
            metrics.BREAKER_OPENINGS.labels(kind).inc()
            _log.warning("breaker.opened", **about, reason=signal.reason, pause_seconds=round(breaker.pause, 3))
        failed = failing and not self.account.test and not cancelling
        overloaded = signal.reason in OVERLOADED
        if (signal.health is PmsHealth.WELL or failed) and self._concurrency.end(start.round, overloaded=overloaded):
            metrics.WINDOW_CUTS.labels(kind).inc()
            _log.info("concurrency_limit.lowered", account_id=self.account.id, kind=kind, in_flight=self.limit)

    def requested(self) -> None:
        self.budget.requested()

    def hold_off(self, seconds: float) -> None:
        if self._held_off() <= 0.0:
            kind = self.account.kind
            metrics.HOLD_OFFS.labels(kind).inc()
            _log.warning("pms.held_off", account_id=self.account.id, kind=kind, seconds=round(seconds, 3))
        self._held_off_until = max(self._held_off_until, self._clock.monotonic() + seconds)

    def _held_off(self) -> float:
        return max(self._held_off_until - self._clock.monotonic(), 0.0)


class Throttles:
    """Every account's. `published`: the limits that a kind of PMS publishes, for an account with these options. With `loans`, all
    workers of a deployment share the buckets."""

    def __init__(self, clock: Clock, published: Published = lambda *_: Limits(), loans: Loans | None = None) -> None:
        self._clock, self._published, self._loans = clock, published, loans
        self._throttles: dict[str, Throttle] = {}
        self._of_addresses: dict[str, TokenBucket] = {}

    def of(self, account: Account) -> Throttle:
        """The account's throttle; a new one starts under the settings that are given."""
        throttle = self._throttles.get(account.id)
        if throttle is None:
            throttle = self._throttles[account.id] = Throttle(account, self._clock, self.budget)
        return throttle

    def budget(self, account: Account) -> RateBudget:
        """A budget for an account: its own sustained rate, with a second's worth at once, or else what its kind publishes. Limits
        of an address hold besides its own rate: they are shared with other accounts."""
        published = self._published(account.kind, account.options)
        per_push, rate, buckets = published.requests_per_push, account.rate_per_second, list[SharedBucket]()
        if rate is not None:
            buckets.append(SharedBucket(f"{account.id}#own", rate, max(rate, per_push)))
        for limit in published.each:
            shared = limit.per == "address"
            if shared or rate is None:
                whose = f"{account.kind}@{urlsplit(account.base_url).netloc}" if shared else account.id
                # A tenth at once, the rest spread evenly: their sum stays below the next whole number of the published limit.
                burst = max(limit.requests * 0.1, per_push)
                seconds = limit.seconds if self._loans is None else limit.seconds + LAPSE_SECONDS
                # Requests are whole: half a one too many is none too many, and keeps a limit of 1 from refilling never.
                refill = (max(limit.requests - burst, 0.0) + 0.5) / seconds
                buckets.append(SharedBucket(f"{whose}#{limit.requests}/{limit.seconds:g}", refill, burst))
        if self._loans is not None:
            borrowed = [BorrowedTokens(account.id, buckets, per_push, self._loans)] if buckets else ()
            return RateBudget(self._clock, borrowed, per_push=per_push)
        own = [(each.name, TokenBucket(each.rate, each.burst)) for each in buckets]
        shared_too = [self._of_addresses.setdefault(name, each) if "@" in name else each for name, each in own]
        return RateBudget(self._clock, shared_too, per_push=per_push)

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
        states = [(each, shown) for each in self._throttles.values() if (shown := each.breaker.shown)]
        metrics.BREAKERS.replace(dict(Counter((each.account.kind, state) for each, state in states)))
        is_open = sorted((each.account.id, each.failing or "unknown") for each, state in states if state == "open")
        named: dict[tuple[str, ...], float] = dict.fromkeys(is_open[:max_accounts], 1.0)
        others = len(is_open) - len(named)
        metrics.OPEN_BREAKERS.replace(named | ({("other", "unknown"): others} if others else {}))

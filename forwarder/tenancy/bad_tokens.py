"""Throttles clients that guess tokens: a token bucket per client address, bounded in memory.

Only bad tokens are counted, so that a valid one works even from a shared address. IPv6 addresses are counted by their /64, which
belongs to one client. Remembers the last `max_addresses` addresses that sent a bad token.
"""

import math
from collections import OrderedDict
from typing import Final

import structlog

from forwarder.observability.metrics import BAD_TOKENS
from forwarder.process.addresses import client_of
from forwarder.process.clock import Clock
from forwarder.process.token_bucket import TokenBucket

DEFAULT_PER_MINUTE: Final = 60

_WINDOW_SECONDS: Final = 60.0

_log = structlog.get_logger(__name__)


class BadTokens:
    """Counts recent bad tokens per address. An address may send `per_minute`, and as many again each minute."""

    def __init__(self, clock: Clock, per_minute: int = DEFAULT_PER_MINUTE, *, max_addresses: int = 10_000) -> None:
        self._clock = clock
        self._per_minute = per_minute
        self._max_addresses = max_addresses
        self._buckets: OrderedDict[object, TokenBucket] = OrderedDict()
        self._report = _Report()
        self._refused, self._throttled = (BAD_TOKENS.labels(answer) for answer in ("refused", "throttled"))

    def count(self, address: str) -> int | None:
        """Count one from `address`. Where that were too many, it is not counted: seconds until it would be."""
        now, source = self._clock.monotonic(), client_of(address)
        bucket = self._buckets.pop(source, None) or TokenBucket(self._per_minute / _WINDOW_SECONDS, self._per_minute)
        self._buckets[source] = bucket  # the last of all again
        if len(self._buckets) > self._max_addresses:
            self._buckets.popitem(last=False)
        too_soon = bucket.delay(1, now)
        if not too_soon:
            bucket.debit(1, now)
            self._refused.inc()
            return None
        self._throttled.inc()
        self._report.add(address, now)
        return max(math.ceil(too_soon), 1)


class _Report:
    """Logs at most one line a minute."""

    def __init__(self) -> None:
        self._count = 0
        self._due = -math.inf

    def add(self, address: str, now: float) -> None:
        self._count += 1
        if now >= self._due:
            _log.warning("tokens.throttled", address=address, since_last=self._count)
            self._count, self._due = 0, now + _WINDOW_SECONDS

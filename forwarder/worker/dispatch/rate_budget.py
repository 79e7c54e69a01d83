"""The rate budget of an account's pushes, from its PMS's published limits or its own rate. No I/O."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol
from urllib.parse import urlsplit

from forwarder.pms.port import Limit, Limits
from forwarder.process.clock import Clock
from forwarder.process.token_bucket import TokenBucket
from forwarder.process.token_loans import LAPSE_SECONDS, SharedBucket
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.rate_loans import BorrowedTokens, Loans

_AT_ONCE: Final = 0.1
"""The share of a published limit that may be used as a burst. The rest is spread evenly."""


class Tokens(Protocol):
    """Where a budget takes its tokens: a `TokenBucket` of its own, or `BorrowedTokens` of buckets that all workers share."""

    burst: float

    def left(self, now: float) -> float: ...

    def delay(self, tokens: float, now: float) -> float: ...

    def debit(self, tokens: float, now: float) -> None: ...


class RateBudget:
    """The rate budget of an account's pushes: tokens for each limit. Without buckets: unlimited.

    A push pays in advance, when it starts, for the requests that it usually takes. Further requests are debited when they are
    sent, so that later pushes wait longer. The limit is exact if pushes send what they paid for when they start.
    """

    def __init__(self, clock: Clock, buckets: Sequence[Tokens] = (), *, per_push: int = 1) -> None:
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
    def scarcest(self) -> Tokens | None:
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


class Budgets:
    """Makes the budgets of a worker's accounts. With `loans`, all workers of a deployment share the buckets; without, this worker
    is the only one."""

    def __init__(self, clock: Clock, loans: Loans | None = None) -> None:
        self._clock = clock
        self._loans = loans
        self._of_addresses: dict[str, TokenBucket] = {}

    def of(self, account: Account, published: Limits) -> RateBudget:
        """The budget of an account: its own sustained rate, with a second's worth at once, or else what its kind publishes. Limits
        of an address hold besides its own rate: they are shared with other accounts."""
        per_push, buckets = published.requests_per_push, list(self._buckets(account, published))
        if self._loans is None or not buckets:
            return RateBudget(self._clock, [self._own(each) for each in buckets], per_push=per_push)
        borrowed = BorrowedTokens(account.id, buckets, per_push, self._loans)
        return RateBudget(self._clock, [borrowed], per_push=per_push)

    def _buckets(self, account: Account, published: Limits) -> Iterator[SharedBucket]:
        per_push, rate = published.requests_per_push, account.rate_per_second
        if rate is not None:
            yield SharedBucket(f"{account.id}#own", rate, max(rate, per_push))
        for limit in published.each:
            if limit.per == "address":
                name = f"{account.kind}@{urlsplit(account.base_url).netloc}#{limit.seconds:g}"
                yield self._published(name, limit, per_push)
            elif rate is None:
                yield self._published(f"{account.id}#{limit.seconds:g}", limit, per_push)

    def _published(self, name: str, limit: Limit, per_push: int) -> SharedBucket:
        """Burst and rate are chosen so that their sum stays below the next whole number of the published limit."""
        burst = max(limit.requests * _AT_ONCE, per_push)
        seconds = limit.seconds if self._loans is None else limit.seconds + LAPSE_SECONDS
        # Requests are whole: half a one too many is none too many, and keeps a limit of 1 from refilling never.
        return SharedBucket(name, (max(limit.requests - burst, 0.0) + 0.5) / seconds, burst)

    def _own(self, bucket: SharedBucket) -> TokenBucket:
        if "@" not in bucket.name:
            return TokenBucket(bucket.rate, bucket.burst)
        shared = self._of_addresses.get(bucket.name)
        if shared is None:
            shared = self._of_addresses[bucket.name] = TokenBucket(bucket.rate, bucket.burst)
        return shared

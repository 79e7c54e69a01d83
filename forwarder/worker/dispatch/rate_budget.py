"""The rate budget of an account's pushes, from its PMS's published limits or its own rate.

Where several workers share an account's limits, each borrows tokens for the pushes that wait. No account waits for another's loan.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from forwarder.pms.port import Limit, Limits
from forwarder.process.clock import Clock
from forwarder.process.loops import first_of
from forwarder.process.shares import LAPSE_SECONDS, Lender, Loan, LoanRequest, SharedBucket, TokenBucket
from forwarder.tenancy.port import Account

_AT_ONCE: Final = 0.1  # The share of a published limit that may be used as a burst. The rest is spread evenly.
_PAUSE_SECONDS: Final = LAPSE_SECONDS / 2
"""The shortest time between two requests for one account; twice that after a loan, so that workers take turns."""
_AHEAD_SECONDS: Final = LAPSE_SECONDS * 1.5
"""The time for whose pushes tokens are borrowed at least: more than passes until the next loan."""


class BorrowedTokens:
    """One account's loan: has the interface of a `TokenBucket`, and holds what was lent and not used."""

    def __init__(self, account_id: str, buckets: Sequence[SharedBucket], least: int, loans: "Loans") -> None:
        self.account_id = account_id
        self.burst = min(each.burst for each in buckets)
        self._rate = min(each.rate for each in buckets)
        self._soon = math.ceil(self._rate * _AHEAD_SECONDS)
        self._buckets, self._least, self._loans = tuple(buckets), least, loans
        self._tokens = 0.0
        self._lapses_at = math.inf
        self._wanted = 0
        self._most = self._soon
        self._used = 0.0
        self._left, self._left_at = self.burst, -math.inf
        # When to ask the lender next, if there is anything to ask for; and when it last lent any.
        self.ask_at = self.lent_at = -math.inf

    @property
    def due(self) -> float:
        """When the lender has to be asked: infinity while nothing is wanted, and nothing is to be returned."""
        if self._wanted or self._tokens < 0:
            return self.ask_at
        return self._lapses_at if self._tokens > 0 else math.inf

    def left(self, now: float) -> float:
        """The tokens that the account has in all: borrowed here, or still in its bucket as far as this worker knows."""
        return min(self._left + (now - self._left_at) * self._rate, self.burst) + self._tokens

    def delay(self, tokens: float, now: float) -> float:
        """0.0 if that many are borrowed; else infinity: the lender decides."""
        return 0.0 if self._tokens >= tokens and now < self._lapses_at else math.inf

    def debit(self, tokens: float, _now: float) -> None:
        """Uses `tokens`, even if they are not borrowed; a negative number returns them."""
        self._tokens -= tokens
        self._used += tokens
        if self._tokens:
            self._loans.note(self)

    def want(self, startable: int, waiting: int) -> None:
        """Asks for the tokens of pushes that could start now, and of those that will before the next loan, of `waiting` ones."""
        self._most = max(startable * self._least, self._soon)
        self._wanted = max(min(self._most, waiting * self._least), self._least)
        self._loans.note(self)

    def request(self, now: float) -> LoanRequest:
        """What to ask the lender for: also as many tokens as were used since the last time, for pushes that arrive before the next
        one. The tokens here are given back with it, so that a loan has one end."""
        returned, self._tokens = self._tokens, 0.0
        ahead, self._used = max(math.ceil(self._used), 0), 0.0
        wanted, self._wanted = min(self._wanted + ahead, max(self._most, self._wanted)), 0
        wanted = wanted if wanted >= self._least else 0
        self.ask_at = now + _PAUSE_SECONDS
        return LoanRequest(self._buckets, returned, wanted, self._least)

    def lent(self, loan: Loan, request: LoanRequest, now: float) -> bool:
        """Takes over the loan; whether there are tokens in it. Without any, asks for as many again once there may be."""
        self._left, self._left_at = loan.left, now
        self._tokens += loan.tokens
        self._lapses_at = now + LAPSE_SECONDS
        if loan.tokens:
            self.lent_at, self.ask_at = now, now + LAPSE_SECONDS
            return True
        self._wanted = max(self._wanted, request.wanted)
        self.ask_at = now + max(loan.retry_in, _PAUSE_SECONDS)
        return False


class Loans:
    """All loans of one worker. `on_lent`: called with each account that was lent tokens, to start its pushes."""

    def __init__(self, lender: Lender, clock: Clock) -> None:
        self.on_lent: Callable[[str], None] = lambda _: None
        self._lender = lender
        self._clock = clock
        self._open: dict[str, BorrowedTokens] = {}
        self._noted = asyncio.Event()

    def note(self, tokens: BorrowedTokens) -> None:
        self._open[tokens.account_id] = tokens
        self._noted.set()

    async def exchange(self) -> None:
        """Asks the lender once, when there is something to ask for. Raises `StoreUnavailable`: pushes wait for the next time."""
        self._noted.clear()
        now = self._clock.monotonic()
        self._open = {each.account_id: each for each in self._open.values() if each.due < math.inf}
        asking = [each for each in self._open.values() if each.due <= now]
        if not asking:
            pauses = [self._clock.sleep(min(each.due for each in self._open.values()) - now)] if self._open else []
            await first_of(self._noted.wait(), *pauses)
            return
        # Of accounts that share a limit, the one that has waited longest goes first.
        asking.sort(key=lambda each: each.lent_at)
        requests = [each.request(now) for each in asking]
        try:
            loans = await self._lender.lend(requests)
        except BaseException:
            for each, request in zip(asking, requests, strict=True):
                each.lent(Loan(0, 0.0, 0.0), request, now)
            raise
        now = self._clock.monotonic()
        for each, request, loan in zip(asking, requests, loans, strict=True):
            if each.lent(loan, request, now):
                self.on_lent(each.account_id)


Tokens = TokenBucket | BorrowedTokens
"""Where a budget takes its tokens: a bucket of its own, or borrowed ones of buckets that all workers share."""


class RateBudget:
    """The rate budget of an account's pushes: tokens for each limit. Without buckets: unlimited.

    A push pays in advance, when it starts, for the requests that it usually takes. Further requests are debited when they are
    sent, so that later pushes wait longer. The limit is exact if pushes send what they paid for when they start.
    """

    def __init__(self, clock: Clock, buckets: Sequence[Tokens] = (), *, per_push: int = 1) -> None:
        self._clock, self._buckets, self._per_push = clock, tuple(buckets), per_push
        self._paid = self.in_flight = 0

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


class Budgets:
    """Makes the budgets of a worker's accounts. With `loans`, all workers of a deployment share the buckets."""

    def __init__(self, clock: Clock, loans: Loans | None = None) -> None:
        self._clock = clock
        self._loans = loans
        self._of_addresses: dict[str, TokenBucket] = {}

    def of(self, account: Account, published: Limits) -> RateBudget:
        """The budget of an account: its own sustained rate, with a second's worth at once, or else what its kind publishes. Limits
        of an address hold besides its own rate: they are shared with other accounts."""
        per_push, rate, buckets = published.requests_per_push, account.rate_per_second, list[SharedBucket]()
        if rate is not None:
            buckets.append(SharedBucket(f"{account.id}#own", rate, max(rate, per_push)))
        for limit in published.each:
            shared = limit.per == "address"
            if shared or rate is None:
                whose = f"{account.kind}@{urlsplit(account.base_url).netloc}" if shared else account.id
                name = f"{whose}#{limit.requests}/{limit.seconds:g}"
                buckets.append(self._published(name, limit, per_push))
        if self._loans is None:
            return RateBudget(self._clock, [self._own(each) for each in buckets], per_push=per_push)
        borrowed = [BorrowedTokens(account.id, buckets, per_push, self._loans)] if buckets else ()
        return RateBudget(self._clock, borrowed, per_push=per_push)

    def _published(self, name: str, limit: Limit, per_push: int) -> SharedBucket:
        """Burst and rate are chosen so that their sum stays below the next whole number of the published limit."""
        burst = max(limit.requests * _AT_ONCE, per_push)
        seconds = limit.seconds if self._loans is None else limit.seconds + LAPSE_SECONDS
        # Requests are whole: half a one too many is none too many, and keeps a limit of 1 from refilling never.
        return SharedBucket(name, (max(limit.requests - burst, 0.0) + 0.5) / seconds, burst)

    def _own(self, bucket: SharedBucket) -> TokenBucket:
        if "@" not in bucket.name:
            return TokenBucket(bucket.rate, bucket.burst)
        return self._of_addresses.setdefault(bucket.name, TokenBucket(bucket.rate, bucket.burst))

"""Where several workers share an account's limits, each borrows tokens for the pushes that wait. No account waits for another's
loan."""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

from forwarder.process.clock import Clock
from forwarder.process.loops import first_of
from forwarder.process.shares import LAPSE_SECONDS, Lender, Loan, LoanRequest, SharedBucket

_PAUSE_SECONDS: Final = LAPSE_SECONDS / 2
"""The shortest time between two requests for one account; twice that after a loan, so that workers take turns."""


class BorrowedTokens:
    """One account's loan: has the interface of a `TokenBucket`, and holds what was lent and not used."""

    def __init__(self, account_id: str, buckets: Sequence[SharedBucket], least: int, loans: "Loans") -> None:
        self.account_id = account_id
        self.burst = min(each.burst for each in buckets)
        self._rate = min(each.rate for each in buckets)
        # Borrowed at least for the pushes of this time: more than passes until the next loan.
        self._most = self._soon = math.ceil(self._rate * (LAPSE_SECONDS * 1.5))
        self._buckets, self._least, self._loans = tuple(buckets), least, loans
        self._tokens = self._used = 0.0
        self._lapses_at = math.inf
        self._wanted = 0
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
        """What to ask the lender for: also as many tokens as were used since, for pushes to come. Gives back the tokens here."""
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
        self._lender, self._clock = lender, clock
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

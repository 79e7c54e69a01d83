"""Shares of what is limited, among the parties of a process (`Shares`) and the processes of a deployment (`TokenBucket`). Pure."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

_TIMES_FREE: Final = 2
ROUNDING: Final = 1e-7  # seconds by which times may be rounded
LAPSE_SECONDS: Final = 0.1  # for how long borrowed tokens may be used


class Shares:
    """Shares `total` of something (bytes, requests, messages) among parties, so that none crowds out the others. As shared-memory
    switches divide their buffers (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998),
    a party may hold at most twice what stays free: a single party two thirds of the total; `n` parties at their limit 2/(2n+1)
    each, and 1/(2n+1) stays free for those that hold little or nothing."""

    __slots__ = ("_held", "free", "total")

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self._held: dict[Hashable, int] = {}

    @property
    def largest(self) -> int:
        """The most that one party can hold, while no other holds anything."""
        return self.total * _TIMES_FREE // (_TIMES_FREE + 1)

    def held(self, party: Hashable) -> int:
        return self._held.get(party, 0)

    def fits(self, party: Hashable, amount: int) -> bool:
        """Whether `take` would succeed. A party that holds nothing may take all that is free, so that totals of one or two work."""
        held, free = self._held.get(party, 0), self.free - amount
        return free >= 0 and (not held or held + amount <= _TIMES_FREE * free)

    def take(self, party: Hashable, amount: int = 1) -> bool:
        """Gives `amount` more to `party`, which returns it later; False, and gives nothing, if that exceeds its share."""
        if not self.fits(party, amount):
            return False
        self.overdraw(party, amount)
        return True

    def overdraw(self, party: Hashable, amount: int) -> None:
        """As `take`, when it is too late to refuse."""
        self._held[party] = self._held.get(party, 0) + amount
        self.free -= amount

    def give_back(self, party: Hashable, amount: int = 1) -> None:
        left = self._held[party] - amount
        self.free += amount
        if left:
            self._held[party] = left
        else:
            del self._held[party]


class TokenBucket:
    """Refills at `rate` a second and holds `burst`: at most burst + rate · seconds pass within any `seconds`. Full at first; may be
    overdrawn. Its only state is when it will be full again (the generic cell rate algorithm, ITU-T I.371, annex A). Times are
    given, in seconds of a monotonic clock."""

    __slots__ = ("_interval", "burst", "full_at")

    def __init__(self, rate: float, burst: float) -> None:
        self.burst = burst
        self.full_at = -math.inf
        self._interval = 1 / rate

    def left(self, now: float) -> float:
        """The tokens left; below 0 if overdrawn."""
        return self.burst - max(self.full_at - now, 0.0) / self._interval

    def delay(self, tokens: float, now: float) -> float:
        """Seconds until it will hold so many; 0.0 if it does."""
        delay = max(self.full_at - now, 0.0) + (tokens - self.burst) * self._interval
        return delay if delay > ROUNDING else 0.0

    def debit(self, tokens: float, now: float) -> None:
        """Takes `tokens`, even if there are fewer; a negative number gives tokens back."""
        self.full_at = max(self.full_at, now) + tokens * self._interval


class SharedBucket(NamedTuple):
    """A bucket that refills at `rate` a second and holds `burst`. `name`: the same in every process."""

    name: str
    rate: float
    burst: float


class LoanRequest(NamedTuple):
    """Asks for tokens that each of `buckets` has. `returned`: tokens borrowed before and not used; negative: used without a loan.
    `least` to `wanted` tokens are of use; with 0 `wanted` it only returns."""

    buckets: tuple[SharedBucket, ...]
    returned: float
    wanted: int
    least: int


class Loan(NamedTuple):
    """The tokens lent; without any, `retry_in` is the seconds until there are enough. `left`: in the emptiest bucket after it."""

    tokens: int
    retry_in: float
    left: float


class Lender(Protocol):
    """Keeps the buckets of a deployment; one that it does not know is full. Processes borrow tokens before they use them, so that
    together they never use more than there are. A loan lapses after `LAPSE_SECONDS`, so that no window sees tokens of long ago;
    what is left of it is given back. The last loan of a process that is killed is lost: less than the bucket refills in that
    time."""

    async def lend(self, requests: Sequence[LoanRequest]) -> Sequence[Loan]:
        """Decides each request, in order. Raises `StoreUnavailable`: nothing was lent, or it may have been and is lost."""


def decide(request: LoanRequest, full_at: Mapping[str, float], now: float) -> tuple[Loan, Mapping[str, float]]:
    """The loan, and when each bucket will be full again after it. `full_at`: as before, in seconds on the scale of `now`."""
    buckets = {each.name: TokenBucket(each.rate, each.burst) for each in request.buckets}
    for each in request.buckets:
        # A clock that was set back must not keep a bucket empty for as long.
        latest = now + 2 * each.burst / each.rate
        buckets[each.name].full_at = min(full_at.get(each.name, -math.inf), latest)
        buckets[each.name].debit(-request.returned, now)
    # A balance may be rounded by a microsecond of refilling: times since 1970 are kept as floating-point numbers.
    enough = min(math.floor(buckets[each.name].left(now) + each.rate * 1e-6) for each in request.buckets)
    tokens = min(request.wanted, enough) if enough >= request.least else 0
    for bucket in buckets.values():
        bucket.debit(tokens, now)
    retry_in = 0.0 if tokens else max(bucket.delay(request.least, now) for bucket in buckets.values())
    left = min(bucket.left(now) for bucket in buckets.values())
    return Loan(tokens, retry_in, left), {name: bucket.full_at for name, bucket in buckets.items()}

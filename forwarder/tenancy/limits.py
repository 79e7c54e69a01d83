"""The rate limits of API keys and of workspaces: a token bucket for each, in memory. Only `exchange` does I/O.

A key that may make `requests` calls in `seconds` has a bucket of that many tokens, full at first, that refills at requests/seconds
per second, so that any t seconds see at most requests · (1 + t / seconds) calls. So has a workspace, whose keys share it.

Several processes that serve one key each decide from their own bucket, and exchange their usage: each reports the calls that it
admitted since its last exchange, and learns how much of the key's quota all processes together have used (`Usage`). It does so
`EXCHANGE_SECONDS` after the last exchange, or once a tenth of a quota is unreported, but `MIN_PAUSE_SECONDS` after it at the
earliest. So

- A caller that keeps to the limit is never refused: a process believes the bucket to be fuller than it is, never emptier.
- N processes admit, in any t seconds, at most requests · (1 + (t + e) / seconds) + (N - 1) · b calls. `e` is the longest time from
  one exchange of a process to the end of its next, `b` the maximum that one process admits between them: a tenth of `requests`, and
  the calls during the minimal pause and the exchange itself; never more than `requests`. The excess is paid back: the shared bucket
  is that much further from full.
- While the database is unavailable each process decides alone, and never reports the calls of that time: N processes admit at most
  N times the limit."""

import asyncio
import math
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from forwarder.http.messages import Response, retry_after
from forwarder.process.clock import Clock
from forwarder.process.containment import Where
from forwarder.process.loops import first_of, forever
from forwarder.process.shares import ROUNDING, TokenBucket
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Problem
from forwarder.tenancy.port import RateLimit, TenancyUnavailable

if TYPE_CHECKING:
    from forwarder.tenancy.sql.directory import SqlUsage

EXCHANGE_SECONDS: Final = 0.5
MIN_PAUSE_SECONDS: Final = 0.05
RATE: Final = r"([1-9][0-9]{0,8})/([1-9][0-9]{0,4})s"
"""The format of a limit: `100/60s` is 100 calls in 60 seconds."""


def read_limit(text: str) -> RateLimit:
    """The limit in `text`, in the format of `RATE`. Raises `ValueError` with an example."""
    if (written := re.fullmatch(RATE, text)) is None:
        raise ValueError("A rate limit is written as calls and whole seconds, such as 100/60s.")
    return RateLimit(int(written[1]), int(written[2]))


@dataclass(frozen=True, slots=True)
class Allowance:
    """`remaining`: how many more calls would be admitted now. `more_in`: whole seconds until one more would be. `retry_in`: until
    the refused call would be, else 0. `shared`: the limit is the workspace's."""

    limit: RateLimit
    admitted: bool
    remaining: int
    more_in: int
    retry_in: int = 0
    shared: bool = False


def shared_by(workspace_id: str) -> str:
    """The name of the bucket that the keys of a workspace share, among those of keys."""
    return f"workspace:{workspace_id}"


class Consumption(NamedTuple):
    """The calls of a key within the last `age` seconds, since the last report: `share` of the quota (1.0 is all) over `seconds`."""

    key: str
    share: float
    age: float
    seconds: int


class RateLimits:
    """The buckets of this process, for the `max_keys` keys used last. A key without a bucket starts with a full one, until the next
    exchange. `default`: the limit of keys without their own, None for no limit. `report_due` is set when enough of a quota is
    unreported that the other processes should know soon."""

    def __init__(self, clock: Clock, default: RateLimit | None = None, *, max_keys: int = 10_000) -> None:
        self._clock, self._default, self._max_keys = clock, default, max_keys
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._unreported: dict[str, _Bucket] = {}
        self.report_due = asyncio.Event()

    def take(
        self, key_id: str, limit: RateLimit | None, count: int = 1, shared: tuple[str, RateLimit | None] = ("", None)
    ) -> Allowance | None:
        """Admits `count` calls of a key, all or none; None if it has no limit. A full bucket admits more than a whole quota, and is
        overdrawn by the rest. With 0, nothing is taken. `shared`: the key's workspace, and the limit that its keys share: what
        either limit refuses is refused, and costs neither. The allowance is that of the limit that allows less."""
        workspace_id, of_all = shared
        own = limit or self._default
        if own is None and of_all is None:
            return None
        limits, now = ((key_id, own), (shared_by(workspace_id), of_all)), self._clock.monotonic()
        buckets = {name: self._bucket(name, each) for name, each in limits if each is not None}
        delays = {name: bucket.delay(count, now) for name, bucket in buckets.items()}
        refusing = {name: delay for name, delay in delays.items() if delay}
        if not refusing and count:
            for name, bucket in buckets.items():
                bucket.take(count, now)
                self._unreported[name] = bucket
                if bucket.unreported >= bucket.limit.requests / 10:
                    self.report_due.set()
        fullest = min(buckets, key=lambda name: buckets[name].left(now))
        tightest = max(refusing, key=refusing.__getitem__) if refusing else fullest
        return buckets[tightest].allowance(now, admitted=not refusing, count=count, shared=tightest != key_id)

    def _bucket(self, key_id: str, limit: RateLimit) -> "_Bucket":
        bucket = self._buckets.get(key_id)
        if bucket is None or bucket.limit != limit:
            bucket = self._buckets[key_id] = _Bucket(limit)
            if len(self._buckets) > self._max_keys:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key_id)
        return bucket

    async def exchange(self, usage: "SqlUsage") -> None:
        """Reports the calls since the last exchange to `usage`, and learns the others' usage; does nothing without calls. Raises
        `TenancyUnavailable`; the unreported calls are then known only here."""
        unreported, self._unreported = self._unreported, {}
        self.report_due.clear()
        if not unreported:
            return
        now, consumed = self._clock.monotonic(), []
        for key_id, bucket in unreported.items():
            share = bucket.unreported / bucket.limit.requests
            consumed.append(Consumption(key_id, share, now - bucket.since, bucket.limit.seconds))
            bucket.unreported = 0
        for key_id, used in (await usage.add(consumed)).items():
            unreported[key_id].learn(used, as_of=now)


async def exchange_usage(limits: RateLimits, usage: "SqlUsage", clock: Clock) -> None:
    """Exchanges whenever it is due, forever, through outages of the database."""

    async def step() -> None:
        await clock.sleep(MIN_PAUSE_SECONDS)
        await first_of(limits.report_due.wait(), clock.sleep(EXCHANGE_SECONDS - MIN_PAUSE_SECONDS))
        await limits.exchange(usage)

    await forever(step, name=Where.RATE_LIMITS, clock=clock, outages=(TenancyUnavailable,))


class _Bucket(TokenBucket):
    """One key's bucket. It has admitted `unreported` calls since `since`."""

    __slots__ = ("limit", "since", "unreported")

    def __init__(self, limit: RateLimit) -> None:
        super().__init__(limit.requests / limit.seconds, limit.requests)
        self.limit, self.unreported, self.since = limit, 0, 0.0

    def delay(self, tokens: float, now: float) -> float:
        """Seconds until so many calls are admitted; more than a quota are admitted together with a full bucket."""
        return super().delay(min(tokens, self.burst), now)

    def take(self, count: int, now: float) -> None:
        self.debit(count, now)
        if not self.unreported:
            self.since = now
        self.unreported += count

    def allowance(self, now: float, *, admitted: bool, count: int, shared: bool) -> Allowance:
        interval = self.limit.seconds / self.limit.requests
        free = self.left(now) + ROUNDING / interval
        remaining = max(math.floor(free), 0)
        more_in = max(math.ceil((remaining + 1 - free) * interval), 1)
        retry_in = 0 if admitted else max(math.ceil(self.delay(count, now)), more_in)
        return Allowance(self.limit, admitted, remaining, more_in, retry_in, shared)

    def learn(self, used: float, *, as_of: float) -> None:
        """Applies the share of the quota used by all processes, which excludes calls taken here since `as_of`."""
        full_at = as_of + used * self.limit.seconds
        if self.unreported:
            full_at = max(full_at, self.since) + self.unreported * self.limit.seconds / self.limit.requests
        self.full_at = max(self.full_at, full_at)


def rate_limited(allowance: Allowance) -> Problem:
    """The refusal where the limit is used up."""
    limit, whose = allowance.limit, "All API keys of this workspace together" if allowance.shared else "This API key"
    return catalogue.RATE_LIMITED.problem(
        f"{whose} may submit, cancel or manage webhooks {limit.requests} times in {limit.seconds} seconds. Nothing was "
        f"accepted. Send the same request again in {allowance.retry_in} seconds."
    )


def with_allowance(response: Response, allowance: Allowance) -> Response:
    """`response`, and what is left of the limit; where that refuses, when to come again."""
    limit, again = allowance.limit, () if allowance.admitted else (retry_after(allowance.retry_in),)
    policy = b'"default";q=%d;w=%d' % (limit.requests, limit.seconds)
    left = b'"default";r=%d;t=%d' % (allowance.remaining, allowance.more_in)
    return replace(response, headers=(*response.headers, *again, (b"ratelimit-policy", policy), (b"ratelimit", left)))

"""Throughput, read from the log on request: messages per minute by their timestamps, and the latest outcomes."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, pairwise
from statistics import median
from typing import Final

from pydantic_core import from_json

from forwarder.process.clock import Clock
from forwarder.reservation.parsing import moment
from forwarder.store.deployment import RunningProcess
from forwarder.store.submissions.port import ThrottleState
from forwarder.topics.codec import header, is_outcome
from forwarder.topics.port import Log, TopicAdmin, Topics, moment_of, read_to_end

MINUTES: Final = 30  # how far back `Flow` looks
_SAMPLE: Final = 2_000


@dataclass(frozen=True, slots=True)
class TopicFlow:
    """The messages of a topic in each of the last `MINUTES` whole minutes, oldest first, and in the last 60 seconds."""

    by_minute: Sequence[int]
    last_minute: int


@dataclass(slots=True)
class AccountOutcomes:
    """The latest outcomes of one account, by kind (`confirmed`, `failed`, …), and the seconds from acceptance to each."""

    kinds: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    @property
    def typical_seconds(self) -> float | None:
        return median(self.seconds) if self.seconds else None

    @property
    def slowest_seconds(self) -> float | None:
        return max(self.seconds, default=None)


@dataclass(frozen=True, slots=True)
class FlowNow:
    """Recent throughput. `outcomes`: by account, from at most some 2,000 results since `outcomes_since`."""

    accepted: TopicFlow
    results: TopicFlow
    dead_letters: TopicFlow
    outcomes: Mapping[str, AccountOutcomes]
    outcomes_since: datetime


class Flow:
    """Reads the throughput; reads past minutes once. Raises `LogUnavailable`."""

    def __init__(self, log: Log, topics: Topics, clock: Clock) -> None:
        self._log, self._topics, self._clock = log, topics, clock
        self._passed: defaultdict[str, dict[datetime, int]] = defaultdict(dict)

    async def read(self) -> FlowNow:
        topics = self._topics
        async with self._log.admin() as admin:
            known = await admin.list()
            flows = (self._topic(admin, each, there=each in known) for each in topics.all())
            accepted, results, dead = await asyncio.gather(*flows)
        # As far back as some 2,000 results reach at the rate of the last minute.
        since = self._clock.now() - timedelta(minutes=min(_SAMPLE / max(results.last_minute, 1), 15))
        outcomes = await self._outcomes(since) if topics.results in known else {}
        return FlowNow(accepted, results, dead, outcomes, since)

    async def _topic(self, admin: TopicAdmin, topic: str, *, there: bool) -> TopicFlow:
        if not there:
            return TopicFlow([0] * MINUTES, 0)
        now, passed = self._clock.now(), self._passed[topic]
        whole = now.replace(second=0, microsecond=0)
        marks = [whole - timedelta(minutes=back) for back in range(MINUTES, -1, -1)]
        for old in passed.keys() - set(marks):
            del passed[old]
        missing = [each for each in marks if each not in passed]
        end = sum(held.stop for held in (await admin.offsets(topic)).values())
        minute_ago, *found = await admin.offsets_at(topic, [now - timedelta(minutes=1), *missing])
        passed |= {mark: sum(places.values()) for mark, places in zip(missing, found, strict=True)}
        by_minute = [max(passed[later] - passed[earlier], 0) for earlier, later in pairwise(marks)]
        return TopicFlow(by_minute, max(end - sum(minute_ago.values()), 0))

    async def _outcomes(self, since: datetime) -> Mapping[str, AccountOutcomes]:
        found: defaultdict[str, AccountOutcomes] = defaultdict(AccountOutcomes)
        left = 2 * _SAMPLE
        async with aclosing(read_to_end(self._log, self._topics.results, since=since)) as batches:
            async for batch in batches:
                for consumed in batch:
                    kind = header(consumed.message.headers, "ce_type") or ""
                    if not is_outcome(consumed.message) or not kind.startswith("reservation."):
                        continue
                    account = found[consumed.message.key.decode("utf-8", "replace").partition(":")[0]]
                    account.kinds[kind.removeprefix("reservation.").rpartition(".")[0]] += 1
                    with suppress(ValueError, KeyError, TypeError):  # not a message of ours
                        began = moment(from_json(consumed.message.value)["reservation"]["createdAt"])
                        if began is not None:
                            seconds = (moment_of(consumed.timestamp_ms) - began).total_seconds()
                            account.seconds.append(max(seconds, 0.0))
                if (left := left - len(batch)) <= 0:
                    break
        return found


@dataclass(frozen=True, slots=True)
class PmsState:
    """The throttling of one account's PMS.

    `left_alone`: at how many of `workers` its breaker is not closed, or its PMS asked for a pause; `reason`: why. `wait_seconds`:
    until the first of them asks it again, None where one is asking. `in_flight` pushes, of `limit` at the moment and `allowed`, are
    sums: each worker counts by itself. `requests_left` of `requests_burst`: of the rate that they share; None without a limit."""

    workers: int
    left_alone: int
    reason: str | None
    wait_seconds: float | None
    in_flight: int
    limit: int
    allowed: int
    requests_left: float | None
    requests_burst: float | None

    @property
    def breaker(self) -> str:
        if not self.left_alone:
            return "closed"
        return "open" if self.left_alone == self.workers else f"open at {self.left_alone} of {self.workers}"


def pms_states(processes: Sequence[RunningProcess], now: datetime) -> Mapping[str, PmsState]:
    """By account. Only accounts with recent pushes from live workers."""
    reported: defaultdict[str, list[ThrottleState]] = defaultdict(list)
    for throttle in chain.from_iterable(each.throttles for each in processes if not each.silent(now)):
        reported[throttle.account_id].append(throttle)
    found = {}
    for account_id, states in reported.items():
        alone = [each for each in states if each.breaker != "closed" or each.reason is not None]
        waits = [each.wait_seconds for each in alone]
        limited = [each for each in states if each.requests_left is not None]
        found[account_id] = PmsState(
            workers=len(states),
            left_alone=len(alone),
            reason=next((each.reason for each in alone if each.reason), None),
            wait_seconds=None if None in waits else min((each for each in waits if each is not None), default=None),
            in_flight=sum(each.in_flight for each in states),
            limit=sum(each.limit for each in states),
            allowed=sum(each.allowed for each in states),
            requests_left=min((each.requests_left or 0.0 for each in limited), default=None),
            requests_burst=max((each.requests_burst or 0.0 for each in limited), default=None),
        )
    return found

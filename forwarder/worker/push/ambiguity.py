"""What guards an ambiguous push from being made twice: what it carried that its PMS can be asked about, and for how long it is
left alone before anybody asks.

An account's options may change between a push and the next look at it, and so may what its kind of PMS can do. So what an
earlier push carried is recorded with its row; what the current settings could do says nothing about it.

A row is due by a wall clock, perhaps another host's. Where that clock jumps, or two differ, the PMS would be searched before the
push has come to rest, and what it has not made yet would be pushed again. So whoever looks has also waited by its own monotonic
clock.

A worker that died over a push recorded nothing of it. Its last byte was sent before its lease ended, and so before the row was
taken over: whoever sees the row for the first time after that waits as long as for a push whose end it saw itself.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from forwarder.pms.port import Capabilities
from forwarder.process.clock import Clock
from forwarder.store.submissions.work import Attempt, Work
from forwarder.worker.push_context import PushResult

_MAX_REMEMBERED = 100_000

_PushId = tuple[int, int]
"""Which push it is that may have been made: how often the row was taken over, and the number of the last that is recorded so."""


@dataclass(frozen=True, slots=True)
class Safeguards:
    """What a push carried: `key`, an idempotency key that the PMS honours; `reference`, our reference, by which it can be found.
    `endpoint` identifies the PMS that it went to: another one cannot be asked about it."""

    endpoint: str = ""
    key: bool = False
    reference: bool = False

    def __bool__(self) -> bool:
        return self.key or self.reference

    def __str__(self) -> str:
        """As the store keeps it; empty for none."""
        names = (name for name, carried in (("key", self.key), ("reference", self.reference)) if carried)
        return " ".join((self.endpoint, *names)) if self else ""

    def common_with(self, other: "Safeguards") -> "Safeguards":
        """What both have: of two pushes what either may be asked about; of a push and the current settings what is of use now."""
        if self.endpoint != other.endpoint:
            return NONE
        return Safeguards(self.endpoint, self.key and other.key, self.reference and other.reference)


NONE = Safeguards()
"""Nothing can be asked: it may be sent once, and only a person can find out what became of it."""


def safeguards_of(kind: str, base_url: str, can: Capabilities) -> Safeguards:
    """What a push to such a PMS carries."""
    endpoint = hashlib.sha256(f"{kind} {base_url}".encode()).hexdigest()[:16]
    return Safeguards(endpoint, can.idempotent_create, can.find_by_reference)


@lru_cache(maxsize=1024)
def read_safeguards(written: str) -> Safeguards:
    """What `str` of safeguards gave. What cannot be read counts as none: only what is certain is trusted."""
    endpoint, *names = written.split(" ")
    if not names or not set(names) <= {"key", "reference"}:
        return NONE
    return Safeguards(endpoint, "key" in names, "reference" in names)


class QuietPeriods:
    """Leaves pushes that may have been made alone for `seconds`; one that is new to this worker, from when it first sees it."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._since: dict[int, tuple[_PushId, float]] = {}

    def seconds_left(self, work: Work) -> float:
        """For how long `work` must be neither looked for nor pushed; 0.0 where that is over, or nothing may have been made."""
        if not work.possibly_sent:
            return 0.0
        last = work.takeovers, _last_push(work.attempts)
        push, since = self._since.get(work.id, (None, 0.0))
        if push != last:
            since = self._begin(work, last)
        return max(since + self._seconds - self._clock.monotonic(), 0.0)

    def note(self, work: Work, result: PushResult) -> None:
        """What a push has come to just now."""
        if not result.possibly_sent:
            self._since.pop(work.id, None)
            return
        number = _last_push(result.attempts)
        if number != _last_push(work.attempts):
            self._begin(work, (work.takeovers, number))

    def _begin(self, work: Work, push: _PushId) -> float:
        self._since.pop(work.id, None)
        if len(self._since) >= _MAX_REMEMBERED:
            # A row that is forgotten only waits once more.
            del self._since[next(iter(self._since))]
        now = self._clock.monotonic()
        self._since[work.id] = push, now
        return now


def _last_push(attempts: Sequence[Attempt]) -> int:
    in_doubt = (a.number for a in reversed(attempts) if a.action == "create" and a.outcome == "in_doubt")
    return next(in_doubt, 0)

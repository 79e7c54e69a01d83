"""Since when pushes that may have been made have been left alone, by this worker's monotonic clock.

When a row is due is told by a wall clock, perhaps another host's. Where one jumps, or two differ, the PMS would be looked into
before the push has come to rest; and what it has not made yet would be pushed again. So whoever looks has waited by its own
monotonic clock as well.

A worker that died over a push recorded nothing of it. Its last byte was sent before its lease ended, and so before the row was
taken over: whoever sees the row for the first time after that waits as long as for a push whose end it saw itself.
"""

from collections.abc import Sequence

from forwarder.process.clock import Clock
from forwarder.store.submissions.work import Attempt, Work
from forwarder.worker.push.result import PushResult

_MOST_REMEMBERED = 100_000

_Push = tuple[int, int]
"""Which push it is that may have been made: how often the row was taken over, and the number of the last that is recorded so."""


class QuietPeriods:
    """Pushes that may have been made are left alone for `seconds`: one that this worker has not seen before, from when it does."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._since: dict[int, tuple[_Push, float]] = {}

    def seconds_left(self, work: Work) -> float:
        """For how long `work` must be neither looked for nor pushed; 0.0 where that is over, or nothing may have been made."""
        if not work.possibly_sent:
            return 0.0
        last = work.takeovers, _last_push(work.attempts)
        push, since = self._since.get(work.id, (None, 0.0))
        if push != last:
            since = self._begin(work, last)
        return max(since + self._seconds - self._clock.monotonic(), 0.0)

    def note(self, work: Work, pushed: PushResult) -> None:
        """What a push has come to just now."""
        if not pushed.possibly_sent:
            self._since.pop(work.id, None)
            return
        number = _last_push(pushed.attempts)
        if number != _last_push(work.attempts):
            self._begin(work, (work.takeovers, number))

    def _begin(self, work: Work, push: _Push) -> float:
        self._since.pop(work.id, None)
        if len(self._since) >= _MOST_REMEMBERED:
            # Whoever is forgotten only waits once more.
            del self._since[next(iter(self._since))]
        now = self._clock.monotonic()
        self._since[work.id] = push, now
        return now


def _last_push(attempts: Sequence[Attempt]) -> int:
    in_doubt = (a.number for a in reversed(attempts) if a.action == "create" and a.outcome == "in_doubt")
    return next(in_doubt, 0)

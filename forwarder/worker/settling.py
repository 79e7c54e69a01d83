"""Since when ambiguous pushes have been left alone, by this worker's monotonic clock.

When a row is due is told by a wall clock, perhaps another host's. Where one jumps, or two differ, the PMS would be looked into
before the push has come to rest; and what it has not made yet would be pushed again. So whoever looks has waited by its own
monotonic clock as well.
"""

from collections.abc import Sequence

from forwarder.runtime.clock import Clock
from forwarder.store.work import Attempt, Work
from forwarder.worker.pushed import Pushed

_MOST_REMEMBERED = 100_000


class Settling:
    """Ambiguous pushes are left alone for `seconds`: one that this worker has not seen before, from when it first does."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._since: dict[int, tuple[int, float]] = {}

    def seconds_left(self, work: Work) -> float:
        """For how long `work` must be neither looked for nor pushed; 0.0 where that is over, or nothing is ambiguous."""
        if not work.doubtful:
            return 0.0
        push = _last_push(work.attempts)
        if push is None or push.outcome != "in_doubt":
            return 0.0
        number, since = self._since.get(work.id, (0, 0.0))
        if number != push.number:
            since = self._begin(work, push)
        return max(since + self._seconds - self._clock.monotonic(), 0.0)

    def note(self, work: Work, pushed: Pushed) -> None:
        """What a push has come to just now."""
        if not pushed.doubtful:
            self._since.pop(work.id, None)
            return
        push = _last_push(pushed.attempts)
        if push is not None and push != _last_push(work.attempts):
            self._begin(work, push)

    def _begin(self, work: Work, push: Attempt) -> float:
        self._since.pop(work.id, None)
        if len(self._since) >= _MOST_REMEMBERED:
            # Whoever is forgotten only waits once more.
            del self._since[next(iter(self._since))]
        now = self._clock.monotonic()
        self._since[work.id] = push.number, now
        return now


def _last_push(attempts: Sequence[Attempt]) -> Attempt | None:
    return next((attempt for attempt in reversed(attempts) if attempt.action == "create"), None)

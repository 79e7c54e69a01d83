"""Backoff: pauses failing endpoints for a while and then tries a single post, until one succeeds.

The state, and how long an endpoint has been failing, is local to this process.
"""

import math
from dataclasses import dataclass
from typing import Final

from forwarder.notifier.settings import NotifierSettings
from forwarder.process.clock import Clock

_UNBROKEN_SECONDS: Final = 3600.0
"""Failed posts that are no further apart than this count as one unbroken failure of the endpoint: longer than any backoff, and the
wait for a place after it."""


@dataclass(slots=True)
class _EndpointBackoff:
    """`failing_since`: when the first of an unbroken series of posts failed. `failed_at`, `failed_wall`: when the last one did, by
    the monotonic clock and by the wall clock."""

    failures: int = 0
    until: float = -math.inf
    failing_since: float = math.inf
    failed_at: float = -math.inf
    failed_wall: float = -math.inf


class Backoff:
    """The state of the endpoints whose last post failed."""

    def __init__(self, clock: Clock, settings: NotifierSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._failing: dict[str, _EndpointBackoff] = {}

    def is_failing(self, endpoint_id: str) -> bool:
        """Whether its last post failed."""
        return endpoint_id in self._failing

    def is_waiting(self, endpoint_id: str) -> bool:
        """Whether it is paused now."""
        state = self._failing.get(endpoint_id)
        return state is not None and self._clock.monotonic() < state.until

    def failing_seconds(self, endpoint_id: str) -> float:
        """How long every post of this process to it has failed. Times without posts, because of an outage on our side, do not
        count."""
        now, state = self._clock.monotonic(), self._failing.get(endpoint_id)
        if state is None:
            return 0.0
        # By the wall clock too: if it jumped, the time between two attempts is uncertain.
        since_last = max(now - state.failed_at, self._clock.now().timestamp() - state.failed_wall)
        return max(now - state.failing_since, 0.0) if since_last <= _UNBROKEN_SECONDS else 0.0

    def record_success(self, endpoint_id: str) -> None:
        """It accepts posts."""
        self._failing.pop(endpoint_id, None)

    def record_failure(
        self, endpoint_id: str, *, retry_after_seconds: float = 0.0, endpoint_failed: bool = False
    ) -> None:
        """Leave it alone: for 1 s, twice as long each time, or as long as it asked for.

        `endpoint_failed`: every post to it failed; otherwise the fault was ours, or it accepted some.
        """
        state = self._failing.setdefault(endpoint_id, _EndpointBackoff())
        if endpoint_failed:
            if not self.failing_seconds(endpoint_id):
                state.failing_since = self._clock.monotonic()
            state.failed_at, state.failed_wall = self._clock.monotonic(), self._clock.now().timestamp()
        else:
            state.failing_since = math.inf
        state.failures += 1
        exponential = min(2.0 ** min(state.failures - 1, 16), self._settings.max_backoff_seconds)
        asked_for = min(retry_after_seconds, self._settings.max_retry_after_seconds)
        state.until = self._clock.monotonic() + max(exponential, asked_for)

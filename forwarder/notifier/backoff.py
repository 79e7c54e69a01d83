"""Endpoints that fail are left alone for a while, and then asked with a single post, until one succeeds.

That is known to this process alone, and so is for how long an endpoint has been failing.
"""

import math
from dataclasses import dataclass
from typing import Final

from forwarder.notifier.settings import NotifierSettings
from forwarder.process.clock import Clock

_UNBROKEN_SECONDS: Final = 3600.0
"""Posts that failed no further apart than this show that the endpoint failed all the time between: longer than any rest, and the
turn of others after it."""


@dataclass(slots=True)
class _EndpointBackoff:
    """`failing_since`: when the first of an unbroken row of posts failed; `failed_at`, `failed_wall`: when the last did, by the
    monotonic clock and by the wall's."""

    failures: int = 0
    until: float = -math.inf
    failing_since: float = math.inf
    failed_at: float = -math.inf
    failed_wall: float = -math.inf


class Backoff:
    """What is known of endpoints whose last post failed; of the others nothing is kept."""

    def __init__(self, clock: Clock, settings: NotifierSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._rests: dict[str, _EndpointBackoff] = {}

    def failing(self, endpoint_id: str) -> bool:
        """Whether its last post failed."""
        return endpoint_id in self._rests

    def resting(self, endpoint_id: str) -> bool:
        """Whether it is to be left alone now."""
        rest = self._rests.get(endpoint_id)
        return rest is not None and self._clock.monotonic() < rest.until

    def failing_for(self, endpoint_id: str) -> float:
        """For how many seconds it was posted to and did nothing but fail, as far as this process saw it. Time in which nobody
        posted, because something of ours was away, is not among them."""
        now, rest = self._clock.monotonic(), self._rests.get(endpoint_id)
        if rest is None:
            return 0.0
        # By the wall clock too: where that jumped, the time between two tries is not what it seems.
        since_last = max(now - rest.failed_at, self._clock.now().timestamp() - rest.failed_wall)
        return max(now - rest.failing_since, 0.0) if since_last <= _UNBROKEN_SECONDS else 0.0

    def note_success(self, endpoint_id: str) -> None:
        """It takes posts."""
        self._rests.pop(endpoint_id, None)

    def note_failure(self, endpoint_id: str, *, asked_seconds: float = 0.0, failed: bool = False) -> None:
        """Leave it alone: for 1 s, then twice as long each time, or for as long as it asked for. `failed`: it was posted to, and
        all of that failed; else the trouble is ours, or it took some of it."""
        rest = self._rests.setdefault(endpoint_id, _EndpointBackoff())
        if failed:
            if not self.failing_for(endpoint_id):
                rest.failing_since = self._clock.monotonic()
            rest.failed_at, rest.failed_wall = self._clock.monotonic(), self._clock.now().timestamp()
        else:
            rest.failing_since = math.inf
        rest.failures += 1
        own = min(2.0 ** min(rest.failures - 1, 16), self._settings.max_backoff_seconds)
        asked = min(asked_seconds, self._settings.max_retry_after_seconds)
        rest.until = self._clock.monotonic() + max(own, asked)

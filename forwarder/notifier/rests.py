"""Endpoints that fail are left alone for a while, and then asked with a single post, until one succeeds.

That is known to this process alone.
"""

import math
from dataclasses import dataclass

from forwarder.notifier.settings import NotifierSettings
from forwarder.runtime.clock import Clock


@dataclass(slots=True)
class _Rest:
    failures: int = 0
    until: float = -math.inf


class Rests:
    """What is known of endpoints whose last post failed; of the others nothing is kept."""

    def __init__(self, clock: Clock, settings: NotifierSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._rests: dict[str, _Rest] = {}

    def failing(self, endpoint_id: str) -> bool:
        """Whether its last post failed."""
        return endpoint_id in self._rests

    def resting(self, endpoint_id: str) -> bool:
        """Whether it is to be left alone now."""
        rest = self._rests.get(endpoint_id)
        return rest is not None and self._clock.monotonic() < rest.until

    def note_success(self, endpoint_id: str) -> None:
        """It takes posts."""
        self._rests.pop(endpoint_id, None)

    def note_failure(self, endpoint_id: str, *, asked_seconds: float = 0.0) -> None:
        """Leave it alone: for 1 s, then twice as long each time, or for as long as it asked for."""
        rest = self._rests.setdefault(endpoint_id, _Rest())
        rest.failures += 1
        own = min(2.0 ** min(rest.failures - 1, 16), self._settings.longest_rest_seconds)
        asked = min(asked_seconds, self._settings.longest_asked_rest_seconds)
        rest.until = self._clock.monotonic() + max(own, asked)

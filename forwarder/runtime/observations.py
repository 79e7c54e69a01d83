"""Observations of histograms on hot paths: noted at once, handed over many together.

Where several processes serve one port, their histograms are files, and to observe one at a time took a sixth of what a submission
costs the ingress. Handed over together, they find everything in the processor's caches.
"""

import asyncio
import atexit
from typing import Final

from prometheus_client import Histogram

_SECONDS: Final = 0.1
"""For how long an observation may not show in the metrics."""


class Observations:
    """Of one process, for coroutines. What is held when the process ends is handed over then."""

    def __init__(self) -> None:
        self._held: list[tuple[Histogram, float]] = []
        self._waking: asyncio.AbstractEventLoop | None = None
        atexit.register(self.hand_over)

    def note(self, histogram: Histogram, value: float) -> None:
        """`histogram` shows `value` a tenth of a second later."""
        self._held.append((histogram, value))
        loop = asyncio.get_running_loop()
        if loop is not self._waking:
            self._waking = loop
            loop.call_later(_SECONDS, self.hand_over)

    def hand_over(self) -> None:
        """Let the histograms show all that was noted."""
        self._waking = None
        held, self._held = self._held, []
        for histogram, value in held:
            histogram.observe(value)


OBSERVATIONS: Final = Observations()
"""The process's, as its metrics are."""

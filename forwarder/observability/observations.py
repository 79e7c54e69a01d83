"""Observations of histograms and counters on hot paths: noted at once, handed over many together.

Where several processes serve one port, their metrics are files, and to observe one at a time took a sixth of what a submission
costs the ingress. Handed over together, they find everything in the processor's caches.
"""

import asyncio
import atexit
from typing import Final

from prometheus_client import Counter, Histogram

_SECONDS: Final = 0.1
"""For how long an observation may not show in the metrics."""


class Observations:
    """Of one process, for coroutines. What is held when the process ends is handed over then."""

    def __init__(self) -> None:
        self._held: list[tuple[Histogram, float]] = []
        self._counted: dict[Counter, int] = {}
        self._waking: asyncio.AbstractEventLoop | None = None
        atexit.register(self.hand_over)

    def note(self, histogram: Histogram, value: float) -> None:
        """`histogram` shows `value` a tenth of a second later."""
        self._held.append((histogram, value))
        if asyncio.get_running_loop() is not self._waking:
            self._wake()

    def count(self, counter: Counter) -> None:
        """`counter` is one more a tenth of a second later."""
        self._counted[counter] = self._counted.get(counter, 0) + 1
        if asyncio.get_running_loop() is not self._waking:
            self._wake()

    def _wake(self) -> None:
        self._waking = asyncio.get_running_loop()
        self._waking.call_later(_SECONDS, self.hand_over)

    def hand_over(self) -> None:
        """Let the metrics show all that was noted."""
        self._waking = None
        counted, self._counted = self._counted, {}
        for counter, times in counted.items():
            counter.inc(times)
        held, self._held = self._held, []
        for histogram, value in held:
            histogram.observe(value)


OBSERVATIONS: Final = Observations()
"""The process's, as its metrics are."""

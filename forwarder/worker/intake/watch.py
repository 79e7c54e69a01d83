"""Detects that this worker does not read the requests topic, for any reason: an unreachable broker, a rebalance without end, a
store that does not answer."""

import structlog

from forwarder.observability import metrics
from forwarder.process.clock import Clock

_log = structlog.get_logger(__name__)

STALLED_SECONDS = 30.0
_LOOK_SECONDS = 5.0


class IntakeWatch:
    """Watches one worker. `doing`: the operation that intake is about to wait for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._went_on_at = clock.monotonic()
        self._stalled = False
        self.doing = "join"

    @property
    def stalled_seconds(self) -> float:
        """For how long intake has not gone on."""
        return self._clock.monotonic() - self._went_on_at

    @property
    def stalled(self) -> bool:
        """Whether intake has been stuck for too long."""
        return self.stalled_seconds >= STALLED_SECONDS

    def went_on(self) -> None:
        """Records progress: a batch is through, or no message came."""
        self._went_on_at = self._clock.monotonic()

    async def look(self) -> None:
        """Updates the metric, logs a change, then pauses."""
        seconds = self.stalled_seconds
        metrics.INTAKE_STALLED_SECONDS.set(seconds if seconds > 2 * _LOOK_SECONDS else 0)
        if self.stalled != self._stalled:
            self._stalled = self.stalled
            if self._stalled:
                _log.error("intake.stalled", seconds=round(seconds, 1), at=self.doing)
            else:
                _log.info("intake.went_on")
        await self._clock.sleep(_LOOK_SECONDS)

"""What processes tell of themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

TELL_SECONDS: Final = 10.0
SILENT_AFTER: Final = timedelta(seconds=45)
"""Who has not told of itself for so long has ended, or cannot reach the store."""


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """How one worker treats the PMS of an account: what it may ask of it, and whether it leaves it alone.

    `breaker`: closed, open, half_open. `reason`: for which it is left alone. `wait_seconds`: until the next push may start, by
    breaker, rate and what the PMS asked for; None where that depends on a push that is under way. `in_flight` pushes of `limit` at
    the moment and `allowed` by the account. `requests_left`: what may be asked at once, of `requests_burst`; None where nothing
    limits the rate.
    """

    account_id: str
    breaker: str
    reason: str | None
    wait_seconds: float | None
    in_flight: int
    limit: int
    allowed: int
    requests_left: float | None
    requests_burst: float | None


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process that serves `role`. `version` of the package; `revision` that it was built from. `throttles`: of a worker."""

    id: str
    role: str
    version: str
    revision: str
    host: str
    started_at: datetime
    seen_at: datetime
    throttles: Sequence[ThrottleState] = ()

    def silent(self, now: datetime) -> bool:
        """Whether it has not told of itself for long."""
        return now - self.seen_at > SILENT_AFTER


class ProcessReader(Protocol):
    """Who runs."""

    async def processes(self) -> Sequence[RunningProcess]:
        """Those that run, and those that were killed in the last ten minutes or so. Raises `StoreUnavailable`."""
        ...

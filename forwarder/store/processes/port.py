"""The reports of running processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

TELL_SECONDS: Final = 10.0
SILENT_AFTER: Final = timedelta(seconds=45)
"""A process without a report for this long has ended, or cannot reach the store."""


@dataclass(frozen=True, slots=True)
class ThrottleState:
    """One worker's throttle for the PMS of an account: breaker, concurrency and rate.

    `breaker`: closed, open, half_open. `reason`: why it is open. `wait_seconds`: until the next push may start, by breaker, rate
    and the PMS's own requests; None if that depends on a push in flight. `in_flight`: pushes now; `limit`: the maximum now;
    `allowed`: the account's setting. `requests_left`: requests that may be sent at once, of `requests_burst`; None if the rate is
    not limited.
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
    """A process that serves `role`. `version`: of the package; `revision`: of its source. `throttles`: if it is a worker."""

    id: str
    role: str
    version: str
    revision: str
    host: str
    started_at: datetime
    seen_at: datetime
    throttles: Sequence[ThrottleState] = ()

    def silent(self, now: datetime) -> bool:
        """Whether its last report is older than `SILENT_AFTER`."""
        return now - self.seen_at > SILENT_AFTER


class ProcessReader(Protocol):
    """Reads the running processes."""

    async def processes(self) -> Sequence[RunningProcess]:
        """The running processes, and those killed in the last ten minutes or so. Raises `StoreUnavailable`."""
        ...

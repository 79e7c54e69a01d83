"""The notifier's settings."""

from dataclasses import dataclass
from typing import Final

GROUP: Final = "forwarder-notifier"
"""The consumer group of all notifiers of a deployment."""


@dataclass(frozen=True, slots=True)
class NotifierSettings:
    """Sizes are numbers of deliveries, times are seconds."""

    group: str = GROUP
    intake_batch: int = 500
    intake_wait_seconds: float = 0.5
    idle_seconds: float = 1.0
    """How long to wait before the next batch where nobody takes what this one brought."""
    sweep_seconds: float = 1.0
    post_seconds: float = 15.0
    """The longest that an endpoint may take to answer. A claim lasts twice as long."""
    in_flight: int = 10
    """Posts to one endpoint at once, of one process."""
    max_endpoints: int = 100
    """Endpoints posted to at once. Half of these places are only for endpoints that did not fail last."""
    max_backoff_seconds: float = 60.0
    """How long an endpoint that keeps failing is left alone between two posts, at most."""
    max_retry_after_seconds: float = 900.0
    """The same where it asked for it by `Retry-After`, which the delivery that was answered so honours in full."""
    record_batch: int = 250
    keep_days: float = 30.0
    grace_seconds: float = 20.0

    @property
    def claim_seconds(self) -> float:
        """For how long a delivery is its claimant's: longer than it can take to post it."""
        return 2 * self.post_seconds

"""The notifier's settings and ports."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from forwarder.process.clock import Clock
from forwarder.tenancy.port import Unsealer
from forwarder.topics.port import GapFound, Log, Topics
from forwarder.webhooks.port import Sender

if TYPE_CHECKING:
    from forwarder.store.delivery_queue import Deliveries
    from forwarder.tenancy.sql.endpoints import Endpoints

GROUP: Final = "forwarder-notifier"
"""The consumer group of all notifiers of a deployment."""


@dataclass(frozen=True, slots=True)
class NotifierSettings:
    """Sizes are numbers of deliveries, times are seconds."""

    group: str = GROUP
    intake_batch: int = 500
    intake_wait_seconds: float = 0.5
    idle_seconds: float = 1.0
    """How long to wait before the next batch if no endpoint subscribes to the events of this one."""
    sweep_seconds: float = 1.0
    post_seconds: float = 15.0
    """How long an endpoint may take to respond. A claim lasts twice as long."""
    in_flight: int = 10
    """Concurrent posts to one endpoint, in one process."""
    max_endpoints: int = 100
    """Endpoints posted to at once. Half of these places are reserved for endpoints that are not failing."""
    max_backoff_seconds: float = 60.0
    """The longest pause between two posts to an endpoint that keeps failing."""
    max_retry_after_seconds: float = 900.0
    """The maximum pause for a `Retry-After`. The delivery that got this response waits for the full time."""
    record_batch: int = 250
    grace_seconds: float = 20.0

    @property
    def claim_seconds(self) -> float:
        """How long a claim lasts: longer than a post can take."""
        return 2 * self.post_seconds


@dataclass(frozen=True, slots=True)
class NotifierParts:
    """The ports of the notifier."""

    log: Log
    topics: Topics
    queue: "Deliveries"
    endpoints: "Endpoints"
    unsealer: Unsealer
    sender: Sender
    clock: Clock
    settings: NotifierSettings
    on_gap: GapFound | None = None

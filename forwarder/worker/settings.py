"""The worker's settings."""

from dataclasses import dataclass
from typing import Final

GROUP: Final = "forwarder-worker"
"""The consumer group of all workers of a deployment."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Sizes are numbers of reservations, times are seconds.

    `lease_seconds` must outlast the push time-out: a row that is taken over then belongs to a push that is surely over here.
    """

    group: str = GROUP
    intake_batch: int = 500
    intake_wait_seconds: float = 0.5
    held_at_most: int = 8000
    record_batch: int = 250
    pause_seconds: float = 0.01
    """What follows a batch of several gathers for so long, to share its statement, its commit and its request: taking in, recording
    and announcing alike. A lone reservation waits for none of it."""
    forget_pause_seconds: float = 0.1
    """For how long published events gather until they are deleted from the outbox. A killed worker's are published again."""
    lease_seconds: float = 45.0
    sweep_seconds: float = 1.0
    grace_seconds: float = 20.0
    settle_seconds: float = 30.0
    """How long after an ambiguous push the PMS is looked into: by then it has made the reservation or never will."""
    reoffer_seconds: float = 10.0
    """How old a recorded event may get unpublished before it is offered again."""

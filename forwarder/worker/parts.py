"""What a worker is made of: its ports and its settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from forwarder.pms.port import PmsDirectory
from forwarder.process.clock import Clock
from forwarder.store.submissions.port import Recorder
from forwarder.tenancy.port import Directory, Unsealer
from forwarder.topics.port import Log, LogGap, Publisher, Topics
from forwarder.topics.signing import MessageSigner
from forwarder.worker.cards.keeper import CardParts
from forwarder.worker.retention import RetentionSweeper
from forwarder.worker.standing import StandingParts

GROUP: Final = "forwarder-worker"
"""The consumer group of all workers of a deployment."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Sizes are numbers of reservations, times are seconds.

    `lease_seconds` is at least 1.5 push time-outs: what is pushed when the store goes away is still recorded under its lease.
    """

    group: str = GROUP
    intake_batch: int = 500
    intake_wait_seconds: float = 0.5
    max_held: int = 8000
    record_batch: int = 250
    pause_seconds: float = 0.01
    """After a batch of several the next one gathers for so long, to share its statement, its commit and its request: at intake,
    when recording and when publishing. A lone reservation does not wait for it."""
    delete_pause_seconds: float = 0.1
    """For how long published events gather until they are deleted from the outbox. A killed worker's are published again."""
    lease_seconds: float = 45.0
    sweep_seconds: float = 1.0
    grace_seconds: float = 20.0
    push_seconds: float = 30.0
    """The push time-out: for so long an ambiguous push may still be under way in the PMS."""
    settles_seconds: float = 120.0
    """How long a PMS whose kind states nothing may take to show a reservation, a late commit included."""
    max_named_accounts: int = 100
    """How many accounts a worker names in its metrics."""
    republish_seconds: float = 10.0
    """How long a recorded event may stay unpublished before it is published again."""


class Lacking(Protocol):
    """How much of what the last messages of each partition say was done the store does not have; empty where it has all of it.
    Raises `StoreUnavailable`, `LogUnavailable`."""

    async def __call__(self, looked_at: int = ...) -> Mapping[str, int]: ...


class TopicLosses(Protocol):
    """What the topics lost. Every method raises `StoreUnavailable`, `LogUnavailable`."""

    async def in_words(self) -> Mapping[str, Any]:
        """What the requests topic lost, for the log; empty where it lost nothing."""
        ...

    async def note(self, gap: LogGap) -> None:
        """Keep it for an operator, and say so. See `GapFound`."""
        ...

    async def move_unowned(self) -> int:
        """Give rows of partitions that the topic does not have any more to others; how many."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What the worker works with."""

    log: Log
    topics: Topics
    publisher: Publisher
    recorder: Recorder
    directory: Directory
    unsealer: Unsealer
    pms: PmsDirectory
    clock: Clock
    settings: WorkerSettings
    signer: MessageSigner
    cards: CardParts
    credential_key: bytes = b""
    """What credentials are hashed with, to tell them apart in the evidence of pushes."""
    standing: StandingParts | None = None
    """None where nobody asks for it."""
    sweeper: RetentionSweeper | None = None
    """None where somebody else removes guests' data, or nobody."""
    lacking: Lacking | None = None
    """None where the store is new with the log."""
    topic_losses: TopicLosses | None = None
    """None where the log is new with the store."""

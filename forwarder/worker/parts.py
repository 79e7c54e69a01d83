"""The ports and settings of a worker."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from forwarder.pms.port import PmsDirectory
from forwarder.process.clock import Clock
from forwarder.process.shares import Lender
from forwarder.tenancy.port import Directory, Unsealer
from forwarder.topics.codec import MessageSigner
from forwarder.topics.port import Log, Publisher, Topics
from forwarder.worker.cards import CardParts

if TYPE_CHECKING:
    from forwarder.oversight.losses import TopicCheck
    from forwarder.store.submissions.recorder import Recorder

GROUP: Final = "forwarder-worker"  # the consumer group of all workers of a deployment


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Sizes are numbers of reservations, times are seconds. `lease_seconds` is at least 1.5 push time-outs, so that a push in
    flight when the store fails can still be recorded under its lease."""

    group: str = GROUP
    intake_batch: int = 500
    intake_wait_seconds: float = 0.5
    max_held: int = 8000
    record_batch: int = 250
    pause_seconds: float = 0.004
    """How long a batch gathers after one of several, at intake, recording and publishing. A single reservation does not wait."""
    delete_pause_seconds: float = 0.1  # how long published events gather before they are deleted from the outbox
    lease_seconds: float = 45.0
    sweep_seconds: float = 1.0
    grace_seconds: float = 20.0
    push_seconds: float = 30.0  # the push time-out, and how long an ambiguous push may still be running in the PMS
    settles_seconds: float = 120.0  # how long a PMS whose kind states nothing may take to show a reservation
    max_named_accounts: int = 100  # how many accounts a worker names in its metrics
    republish_seconds: float = 10.0  # how long a recorded event may stay unpublished before it is published again
    public_url: str = ""  # links of problems in events begin with it


Lacking = Callable[..., Awaitable[Mapping[str, int]]]
"""Counts what the store lacks of the last messages on the topics, `looked_at` of each partition. Empty if it lacks none. Raises
`StoreUnavailable`, `LogUnavailable`."""


@dataclass(frozen=True, slots=True)
class WorkerParts:
    log: Log
    topics: Topics
    publisher: Publisher
    recorder: "Recorder"
    directory: Directory
    unsealer: Unsealer
    pms: PmsDirectory
    clock: Clock
    settings: WorkerSettings
    signer: MessageSigner
    cards: CardParts
    credential_key: bytes = b""  # the key of the hash that distinguishes credentials in the evidence of pushes
    lender: Lender | None = None  # None: there is no other worker that could share the accounts' limits
    lacking: Lacking | None = None  # None if store and log are created together, so that the store cannot lack results
    topic_losses: "TopicCheck | None" = None  # as `lacking`

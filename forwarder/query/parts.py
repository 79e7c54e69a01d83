"""What the query stage is made of: its ports, put in place by `assembly`."""

from dataclasses import dataclass

from forwarder.process.clock import Clock
from forwarder.reservation.submission import RequestIds
from forwarder.store.lists.port import Reader
from forwarder.tenancy.access import Access
from forwarder.topics.outcomes import OutcomeListener


@dataclass(frozen=True, slots=True)
class QueryParts:
    """The ports of the query stage. `max_wait_seconds`: the most that `Prefer: wait=N` is given. `retry_after_seconds`: what
    callers are told while the store is away."""

    access: Access
    reader: Reader
    ids: RequestIds
    outcomes: OutcomeListener
    clock: Clock
    max_wait_seconds: int = 60
    retry_after_seconds: int = 1

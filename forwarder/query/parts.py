"""The parts of the query stage, assembled by `assembly`."""

from dataclasses import dataclass

from forwarder.process.clock import Clock
from forwarder.reservation.submission import RequestIds
from forwarder.store.lists.port import Reader
from forwarder.tenancy.access import Access
from forwarder.topics.outcomes import OutcomeListener


@dataclass(frozen=True, slots=True)
class QueryParts:
    """The ports of the query stage. `max_wait_seconds`: the longest `Prefer: wait=N`. `retry_after_seconds`: the `Retry-After`
    while the store is unavailable."""

    access: Access
    reader: Reader
    ids: RequestIds
    outcomes: OutcomeListener
    clock: Clock
    max_wait_seconds: int = 60
    retry_after_seconds: int = 1

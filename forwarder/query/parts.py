"""The parts of the query stage, assembled by `assembly`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forwarder.process.clock import Clock
from forwarder.reservation.submission import RequestIds
from forwarder.tenancy.access import Access
from forwarder.topics.outcomes import OutcomeListener

if TYPE_CHECKING:
    from forwarder.store.lists.reader import Reader


@dataclass(frozen=True, slots=True)
class QueryParts:
    """The ports of the query stage. `max_wait_seconds`: the longest `Prefer: wait=N`. `retry_after_seconds`: the `Retry-After`
    while the store is unavailable."""

    access: Access
    reader: "Reader"
    ids: RequestIds
    outcomes: OutcomeListener
    clock: Clock
    max_wait_seconds: int = 60
    retry_after_seconds: int = 1

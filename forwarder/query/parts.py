"""What the query stage is made of: its ports, put in place by `assembly`."""

from dataclasses import dataclass

from forwarder.reservation.identity import RequestIds
from forwarder.store.reading import Reader
from forwarder.tenancy.port import Directory


@dataclass(frozen=True, slots=True)
class QueryParts:
    """The ports of the query stage. `retry_after_seconds`: what callers are told while the store is away."""

    directory: Directory
    reader: Reader
    ids: RequestIds
    retry_after_seconds: int = 1

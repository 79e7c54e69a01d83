"""Deliveries to customers' endpoints, as the notifier and the management of webhooks see them. Nothing of how they are kept.

    PENDING ──▶ DELIVERED    the endpoint answered 2xx
       ├──────▶ FAILED       it was tried for as long as a delivery is, from its first try on, or the endpoint is gone
       └──────▶ STOPPED      its endpoint was disabled or removed meanwhile

What ended may be put back (a resend), and is PENDING again. Errors: `StoreUnavailable`, as for everything of the store.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class DeliveryStatus(StrEnum):
    """Where a delivery stands."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One try. `status` is that of the answer; without one, `failure` is why (`timed_out`, `connect_failed`, …). `detail`: what was
    said, shortened. `ms`: how long it took."""

    at: str
    ms: int
    status: int | None = None
    failure: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """One event for one endpoint. `body` is what will be posted, byte for byte."""

    endpoint_id: str
    event_id: str
    type: str
    body: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A delivery that was claimed, to be posted now. `claim` tells this claim from every other one of it; `retrying_since` is from
    when on this series of tries counts: its first, once there is one. `tries`: how many of them there were."""

    id: int
    endpoint_id: str
    event_id: str
    type: str
    body: str = field(repr=False)
    claim: int
    retrying_since: datetime
    tries: int = 0
    attempts: Sequence[DeliveryAttempt] = ()


@dataclass(frozen=True, slots=True)
class TriedDelivery:
    """What came of a try. `due_at`: when it is tried again, where it stays PENDING. `retrying_since` is kept as it is here."""

    delivery: DueDelivery
    status: DeliveryStatus
    attempt: DeliveryAttempt
    now: datetime
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PendingDeliveries:
    """How many there are, and since when the one that is due for the longest has been due."""

    count: int
    oldest_due_at: datetime | None


class DeliveryQueue(Protocol):
    """The notifier's side. Any number of processes share it.

    A delivery that is claimed is nobody else's until its claim runs out, by the clocks of those who ask; then it is due again, and
    may be posted twice, which receivers know by its event's id.
    """

    async def queue(self, deliveries: Sequence[NewDelivery], *, now: datetime) -> None:
        """Keep each, due at once, unless its endpoint has one of that event already."""
        ...

    async def endpoints_due(self, *, now: datetime) -> Sequence[str]:
        """The endpoints that something is due for."""
        ...

    async def claim(self, endpoint_id: str, *, now: datetime, until: datetime, limit: int) -> Sequence[DueDelivery]:
        """Up to `limit` of what is due for the endpoint, due longest first; the caller's alone until `until`."""
        ...

    async def record(self, tried: Sequence[TriedDelivery]) -> None:
        """What came of what was claimed. Passes over what was claimed again since, or put back; what was stopped meanwhile stays
        so, unless it was delivered."""
        ...

    async def release(self, claimed: Sequence[DueDelivery], *, now: datetime) -> None:
        """Give back what was claimed and not posted: due at once."""
        ...

    async def stop(self, endpoint_id: str, *, now: datetime) -> int:
        """Nothing pending is posted to that endpoint any more; how many they were."""
        ...

    async def delivered_since(self, endpoint_id: str, moment: datetime) -> bool:
        """Whether anything was delivered to the endpoint from `moment` on."""
        ...

    async def pending(self) -> PendingDeliveries:
        """All that is still to be delivered."""
        ...

    async def prune(self, *, before: datetime, limit: int) -> int:
        """Forget up to `limit` deliveries that ended before that, the oldest first; how many they were. What is pending stays,
        however long ago it was queued."""
        ...


@dataclass(frozen=True, slots=True)
class DeliveryEntry:
    """A line of the delivery log. `due_at`: when the next try is due, None once it ended. `attempts`: the last, oldest first."""

    id: int
    endpoint_id: str
    event_id: str
    type: str
    status: DeliveryStatus
    created_at: datetime
    due_at: datetime | None
    ended_at: datetime | None
    tries: int
    attempts: Sequence[DeliveryAttempt]


class DeliveryLog(Protocol):
    """What is kept of deliveries, for their endpoint's owner: to be read, and put back."""

    async def entries(
        self,
        endpoint_id: str,
        *,
        status: DeliveryStatus | None,
        before: int | None,
        limit: int,
        after: int | None = None,
    ) -> Sequence[DeliveryEntry]:
        """The newest first; those with an id below `before`. With `after`, of those with an id above it the ones next to it."""
        ...

    async def entry(self, endpoint_id: str, delivery_id: int) -> DeliveryEntry | None: ...

    async def add(self, delivery: NewDelivery, *, now: datetime) -> int:
        """Queue one that no event brought, due at once; its id."""
        ...

    async def put_back(self, endpoint_id: str, delivery_ids: Collection[int], *, now: datetime) -> int:
        """Due at once, in a new series of tries, however they stand; how many there were."""
        ...

    async def put_back_ended(self, endpoint_id: str, *, since: datetime, now: datetime) -> int:
        """The same for all that were queued from `since` on and were not delivered, and are not pending; how many they were."""
        ...

    async def stop(self, endpoint_id: str, *, now: datetime) -> int:
        """As of `DeliveryQueue`."""
        ...

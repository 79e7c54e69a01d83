"""Deliveries to customers' endpoints, as the notifier and the management of webhooks use them.

    PENDING ──▶ DELIVERED    the endpoint responded 2xx
       ├──────▶ FAILED       the time for retries, counted from the first try, is over, or the endpoint is gone
       └──────▶ STOPPED      the endpoint was disabled or removed

What ended can be put back (a resend), and is PENDING again. Everything may raise `StoreUnavailable`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class DeliveryStatus(StrEnum):
    """The status of a delivery."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One attempt. `status`: of the response; without one, `failure` says why (`timed_out`, `connect_failed`, …). `detail`: the
    response or error, shortened. `ms`: its duration."""

    at: str
    ms: int
    status: int | None = None
    failure: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """One event for one endpoint. `body`: the exact body to post; `trace`: of the event, if it has one."""

    endpoint_id: str
    event_id: str
    type: str
    body: str = field(repr=False)
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A claimed delivery, to be posted now. `claim` distinguishes this claim from the delivery's others; `retrying_since`: the
    start of this series of attempts: the first one, if any. `tries`: attempts of the series so far."""

    id: int
    endpoint_id: str
    event_id: str
    type: str
    body: str = field(repr=False)
    claim: int
    retrying_since: datetime
    tries: int = 0
    attempts: Sequence[DeliveryAttempt] = ()
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class TriedDelivery:
    """The result of a try. `due_at`: when it is tried again, if it stays PENDING. `retrying_since` is kept as it is here."""

    delivery: DueDelivery
    status: DeliveryStatus
    attempt: DeliveryAttempt
    now: datetime
    due_at: datetime | None = None


class DeliveryQueue(Protocol):
    """The notifier's side. Any number of processes share it.

    A claimed delivery belongs to its claimant until the claim expires, by the clocks of those who ask; then it is due again, and
    may be posted twice, which receivers recognise by the event's id.
    """

    async def queue(self, deliveries: Sequence[NewDelivery], *, now: datetime) -> None:
        """Store each, due at once, unless its endpoint already has a delivery of that event."""
        ...

    async def endpoints_due(self, *, now: datetime) -> Sequence[str]:
        """The endpoints that have due deliveries."""
        ...

    async def claim(self, endpoint_id: str, *, now: datetime, until: datetime, limit: int) -> Sequence[DueDelivery]:
        """Claim up to `limit` due deliveries of the endpoint until `until`, oldest due first."""
        ...

    async def record(self, tried: Sequence[TriedDelivery]) -> None:
        """Records results of claimed deliveries. Skips deliveries that were claimed again or put back since; one that was stopped
        meanwhile stays stopped, unless it was delivered."""
        ...

    async def release(self, claimed: Sequence[DueDelivery], *, now: datetime) -> None:
        """Release claimed deliveries that were not posted: due at once."""
        ...

    async def stop(self, endpoint_id: str, *, now: datetime) -> int:
        """Stop everything pending for that endpoint; how many there were."""
        ...

    async def delivered_since(self, endpoint_id: str, moment: datetime) -> bool:
        """Whether anything was delivered to the endpoint since `moment`."""
        ...

    async def prune(self, *, before: datetime, limit: int) -> int:
        """Delete up to `limit` deliveries that ended before that, oldest first; how many there were. Pending ones stay, however
        old."""
        ...


@dataclass(frozen=True, slots=True)
class DeliveryEntry:
    """An entry of the delivery log. `due_at`: when the next try is due, None once it ended. `attempts`: the last, oldest first."""

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
    """The deliveries of an endpoint, for its owner to read and put back."""

    async def entries(
        self,
        endpoint_id: str,
        *,
        status: DeliveryStatus | None,
        before: int | None,
        limit: int,
        after: int | None = None,
        tried: bool = False,
    ) -> Sequence[DeliveryEntry]:
        """Entries with ids below `before`, newest first; with `after`, the next ones above that id. `tried`: only those that were
        posted at least once, which must skip waiting ones."""
        ...

    async def entry(self, endpoint_id: str, delivery_id: int) -> DeliveryEntry | None: ...

    async def add(self, delivery: NewDelivery, *, now: datetime) -> int:
        """Queue a delivery without an event, due at once; its id."""
        ...

    async def put_back(self, endpoint_id: str, delivery_ids: Collection[int], *, now: datetime) -> int:
        """Makes them due at once, in a new series of attempts, regardless of their status; returns how many."""
        ...

    async def put_back_ended(self, endpoint_id: str, *, since: datetime, now: datetime) -> int:
        """The same for all that were queued since `since` and failed or were stopped; how many there were."""
        ...

    async def stop(self, endpoint_id: str, *, now: datetime) -> int:
        """Like `DeliveryQueue.stop`."""
        ...

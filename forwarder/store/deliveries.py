"""Deliveries to customers' endpoints, as the notifier and the management of webhooks use them.

    PENDING ──▶ DELIVERED    the endpoint responded 2xx
       ├──────▶ FAILED       the time for retries, counted from the first try, is over, or the endpoint is gone
       └──────▶ STOPPED      the endpoint was disabled or removed

What ended can be put back (a resend), and is PENDING again. Everything may raise `StoreUnavailable`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class DeliveryStatus(StrEnum):
    """The status of a delivery."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One attempt. `status`: of the response; else `failure` (`timed_out`, `connect_failed`, …). `detail`: of either, shortened."""

    at: str
    ms: int
    status: int | None = None
    failure: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """One event for one endpoint. `body`: the exact body to post; `trace`: of the event."""

    endpoint_id: str
    event_id: str
    type: str
    body: str = field(repr=False)
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A claimed delivery, to be posted. `claim`: its number; `retrying_since`, `tries`: start and number of this series' tries."""

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

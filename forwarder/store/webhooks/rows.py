"""Between rows of deliveries and the values of the webhooks' port, both ways. Pure."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Row

from forwarder.process.clock import iso
from forwarder.store.tables import webhook_deliveries as rows
from forwarder.store.webhooks.port import (
    DeliveryAttempt,
    DeliveryEntry,
    DeliveryStatus,
    DueDelivery,
    NewDelivery,
    TriedDelivery,
)

MOST_ATTEMPTS_KEPT = 20

DUE = (
    rows.c.id,
    rows.c.endpoint_id,
    rows.c.event_id,
    rows.c.event_type,
    rows.c.body,
    rows.c.claims,
    rows.c.retrying_since,
    rows.c.tries,
    rows.c.attempts,
)
ENTRY = (
    rows.c.id,
    rows.c.endpoint_id,
    rows.c.event_id,
    rows.c.event_type,
    rows.c.status,
    rows.c.created_at,
    rows.c.due_at,
    rows.c.ended_at,
    rows.c.tries,
    rows.c.attempts,
)


def new_row(position: int, delivery: NewDelivery) -> dict[str, Any]:
    """A delivery as it is queued."""
    return {
        "position": position,
        "endpoint_id": delivery.endpoint_id,
        "event_id": delivery.event_id,
        "event_type": delivery.type,
        "body": delivery.body,
    }


def tried_row(tried: TriedDelivery) -> dict[str, Any]:
    """What came of a try, as `record` takes it."""
    delivery = tried.delivery
    ended = tried.status is not DeliveryStatus.PENDING
    return {
        "id": delivery.id,
        "claims": delivery.claim,
        "retrying_since": iso(delivery.retrying_since),
        "status": tried.status.value,
        "due_at": None if tried.due_at is None or ended else iso(tried.due_at),
        "ended_at": iso(tried.now) if ended else None,
        "tries": delivery.tries + 1,
        "attempts": [asdict(one) for one in (*delivery.attempts, tried.attempt)[-MOST_ATTEMPTS_KEPT:]],
    }


def due_of(row: Row[Any]) -> DueDelivery:
    """The delivery in a row of the columns `DUE`."""
    return DueDelivery(
        id=row.id,
        endpoint_id=row.endpoint_id,
        event_id=row.event_id,
        type=row.event_type,
        body=row.body,
        claim=row.claims,
        retrying_since=row.retrying_since,
        tries=row.tries,
        attempts=_attempts_of(row.attempts),
    )


def entry_of(row: Row[Any]) -> DeliveryEntry:
    """The line of the log in a row of the columns `ENTRY`."""
    return DeliveryEntry(
        id=row.id,
        endpoint_id=row.endpoint_id,
        event_id=row.event_id,
        type=row.event_type,
        status=DeliveryStatus(row.status),
        created_at=row.created_at,
        due_at=row.due_at,
        ended_at=row.ended_at,
        tries=row.tries,
        attempts=_attempts_of(row.attempts),
    )


def _attempts_of(text: str) -> tuple[DeliveryAttempt, ...]:
    attempts: Sequence[dict[str, Any]] = from_json(text)
    return tuple(DeliveryAttempt(**attempt) for attempt in attempts)

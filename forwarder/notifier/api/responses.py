"""Webhooks and their deliveries as the API shows them. Pure: no secret is in them but one that was just made."""

from datetime import datetime
from typing import Any

from forwarder.process.clock import iso
from forwarder.store.webhooks.port import DeliveryAttempt, DeliveryEntry
from forwarder.tenancy.webhooks import Endpoint


def endpoint_shown(endpoint: Endpoint) -> dict[str, Any]:
    """A webhook, without its secrets."""
    return {
        "id": endpoint.id,
        "url": endpoint.url,
        "types": None if endpoint.types is None else list(endpoint.types),
        "description": endpoint.description,
        "enabled": endpoint.enabled,
        "disabledReason": endpoint.disabled_reason,
        "disabledAt": _moment(endpoint.disabled_at),
        "createdAt": iso(endpoint.created_at),
        "previousSecretUntil": _moment(endpoint.previous_until),
    }


def delivery_shown(entry: DeliveryEntry) -> dict[str, Any]:
    """A line of the delivery log."""
    return {
        "id": entry.id,
        "eventId": entry.event_id,
        "type": entry.type,
        "status": entry.status.value,
        "createdAt": iso(entry.created_at),
        "dueAt": _moment(entry.due_at),
        "endedAt": _moment(entry.ended_at),
        "tries": entry.tries,
        "attempts": [_attempt(attempt) for attempt in entry.attempts],
    }


def _attempt(attempt: DeliveryAttempt) -> dict[str, Any]:
    return {
        "startedAt": attempt.at,
        "durationMs": attempt.ms,
        "status": attempt.status,
        "failure": attempt.failure,
        "detail": attempt.detail,
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)

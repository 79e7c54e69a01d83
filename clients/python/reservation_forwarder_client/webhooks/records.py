"""Webhooks and their deliveries, as the service shows them. Names are those of the contract, in snake_case; fields unknown to this
client are in `raw`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict

EventType = Literal[
    "reservation.confirmed.v1",
    "reservation.rejected.v1",
    "reservation.failed.v1",
    "reservation.in_doubt.v1",
    "reservation.cancelled.v1",
    "reservation.cancellation_refused.v1",
    "reservation.cancellation_failed.v1",
]
"""The types of events that a webhook can receive."""


class NewWebhook(TypedDict, total=False):
    """What a new webhook may have besides its URL. `types`, `integration_account_ids`, `property_ids`: it receives only these
    events; None for all. `headers`: sent with each delivery; only their names are shown again. `asymmetric_signature`: deliveries
    also carry a `v1a` signature."""

    types: Sequence[EventType] | None
    integration_account_ids: Sequence[str] | None
    property_ids: Sequence[str | int] | None
    description: str
    headers: Mapping[str, str]
    asymmetric_signature: bool


class WebhookChange(NewWebhook, total=False):
    """Changes; fields that are left out keep their values. `headers` replace all earlier ones. `enabled`: False also stops pending
    deliveries."""

    url: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address to which results of the workspace are posted. `types`: None is all. `disabled_reason`: `gone` (it answered 410),
    `failing` (nothing reached it for days) or `by_hand`. Until `previous_secret_until` deliveries are also signed with
    an earlier secret."""

    id: str
    url: str
    types: tuple[str, ...] | None
    description: str
    enabled: bool
    disabled_reason: str | None
    disabled_at: datetime | None
    created_at: datetime
    previous_secret_until: datetime | None
    integration_account_ids: tuple[str, ...] | None = None
    property_ids: tuple[str, ...] | None = None
    header_names: tuple[str, ...] = ()
    asymmetric_signature: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class WebhookWithSecret:
    """A webhook with its new secret, `whsec_…`, for `verify_webhook`. It is shown only this once. `public_key`: verifies `v1a`
    signatures; None from a service that makes none."""

    webhook: Webhook
    secret: str = field(repr=False)
    public_key: str | None = None


@dataclass(frozen=True, slots=True)
class WebhookAttempt:
    """One try to deliver. Either it was answered, with `status`, or `failure` says why not."""

    started_at: datetime
    duration_ms: int
    status: int | None
    failure: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One event for one webhook: `PENDING`, `DELIVERED`, `FAILED`, or `STOPPED` because the webhook was disabled while it waited.
    `event_id` is its `webhook-id` header, the same in every try. `attempts`: the last ones, oldest first."""

    id: int
    event_id: str
    type: str
    status: str
    created_at: datetime
    due_at: datetime | None
    ended_at: datetime | None
    tries: int
    attempts: tuple[WebhookAttempt, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

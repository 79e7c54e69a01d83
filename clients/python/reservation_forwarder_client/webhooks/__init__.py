"""Webhooks: verifying what arrives at one's address, and managing to which addresses results are posted."""

from reservation_forwarder_client.webhooks.management import AsyncWebhooks, Webhooks
from reservation_forwarder_client.webhooks.records import (
    EventType,
    NewWebhook,
    Webhook,
    WebhookAttempt,
    WebhookChange,
    WebhookDelivery,
    WebhookWithSecret,
)
from reservation_forwarder_client.webhooks.verification import (
    TOLERANCE_SECONDS,
    WebhookEvent,
    WebhookInvalid,
    verify_webhook,
)

__all__ = [
    "TOLERANCE_SECONDS",
    "AsyncWebhooks",
    "EventType",
    "NewWebhook",
    "Webhook",
    "WebhookAttempt",
    "WebhookChange",
    "WebhookDelivery",
    "WebhookEvent",
    "WebhookInvalid",
    "WebhookWithSecret",
    "Webhooks",
    "verify_webhook",
]

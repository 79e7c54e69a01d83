"""What is posted to a customer's webhook: the `webhooks` of the OpenAPI document, and the examples about webhooks. Pure."""

from datetime import UTC, datetime
from typing import Any, Final

from pydantic_core import from_json

from forwarder.http.paging import DEFAULT_LIMIT, FIRST
from forwarder.notifier.api.actions import delivery_json, endpoint_json
from forwarder.notifier.events import TEST_EVENT, body_of, decode_event
from forwarder.store.deliveries import DeliveryAttempt, DeliveryEntry, DeliveryStatus
from forwarder.tenancy.port import Endpoint
from tools.contracts import examples
from tools.contracts.messages.messages import result_messages
from tools.contracts.openapi.responses import Json

_ADDED: Final = datetime(2027, 1, 10, 8, 0, tzinfo=UTC)
_SENT: Final = datetime(2027, 1, 15, 9, 30, 0, 450_000, tzinfo=UTC)
_ENDPOINT: Final = Endpoint(
    id="whk_4f9d1c27a6",
    workspace_id=examples.WORKSPACE_ID,
    url="https://bookings.example/webhooks",
    types=None,
    description="The booking site",
    enabled=True,
    disabled_reason=None,
    disabled_at=None,
    secret="",
    created_at=_ADDED,
)
_DELIVERY: Final = DeliveryEntry(
    id=7,
    endpoint_id=_ENDPOINT.id,
    event_id=f"{examples.request_id()}.1",
    type="reservation.confirmed.v1",
    status=DeliveryStatus.DELIVERED,
    created_at=_SENT,
    due_at=None,
    ended_at=_SENT,
    tries=2,
    attempts=(
        DeliveryAttempt("2027-01-15T09:30:00.420Z", 15, failure="connect_failed", detail="Connection refused"),
        DeliveryAttempt("2027-01-15T09:30:00.440Z", 10, status=200),
    ),
)
_SECRET: Final = (
    "whsec_" + "c2VjcmV0IG9mIHRoZSBleGFtcGxlIGFsb25lLCAzMmI="
)  # what the examples show, and nothing is signed with
_RECEIPT: Final = {
    "2XX": {
        "description": "Received. Anything else, no answer in time, and a redirect are tried again, for about three days."
    },
    "410": {"description": "Nothing more is to be sent: the webhook is disabled."},
}


def webhook_examples() -> dict[str, Any]:
    """By name."""
    shown, delivery = endpoint_json(_ENDPOINT), delivery_json(_DELIVERY)
    meta = {"limit": DEFAULT_LIMIT, "cursors": {"previous": "", "current": str(FIRST), "next": ""}}
    return {
        "webhook": {"data": shown},
        "webhookAdded": {"data": {**shown, "secret": _SECRET}},
        "webhookPage": {"data": [shown], "meta": meta},
        "webhookRemoved": {"data": {"id": _ENDPOINT.id, "removed": True}},
        "webhookTestQueued": {"data": {"deliveryId": _DELIVERY.id}},
        "webhookDelivery": {"data": delivery},
        "webhookDeliveryPage": {"data": [delivery], "meta": meta},
    }


def webhook_events() -> Json:
    """Every event that a webhook may be sent, by its type."""
    results = {
        one.kind: _event(one.kind, one.about, "ResultDelivered", from_json(decode_event(one.example).body))
        for one in result_messages()
    }
    data = f'{{"endpointId":"{_ENDPOINT.id}","workspaceId":"{_ENDPOINT.workspace_id}"}}'
    test = from_json(body_of(TEST_EVENT, examples.SETTLED_AT, data))
    return {**results, TEST_EVENT: _event(TEST_EVENT, "Sent by `testWebhook` alone.", "TestDelivered", test)}


def _event(kind: str, about: str, schema: str, example: Any) -> Json:
    return {
        "post": {
            "operationId": kind,
            "tags": ["Webhooks"],
            "summary": about,
            "security": [],
            "parameters": _headers(),
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {
                            "allOf": [
                                {"$ref": f"#/components/schemas/{schema}"},
                                {"properties": {"type": {"const": kind}}},
                            ]
                        },
                        "examples": {"example": {"value": example}},
                    }
                },
            },
            "responses": _RECEIPT,
        }
    }


def _headers() -> list[Json]:
    signature = (
        "`v1,` and the base64 of HMAC-SHA256 over `<webhook-id>.<webhook-timestamp>.<body>`, under the secret. While a secret is "
        "replaced there are two, with a space between."
    )
    return [
        _header(
            "webhook-id", "The event. The same in every try: pass over what was seen.", f"{examples.request_id()}.1"
        ),
        _header(
            "webhook-timestamp",
            "When this try was made, in seconds since 1970. Refuse what is minutes old.",
            "1800005400",
        ),
        _header("webhook-signature", signature, "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
        _header(
            "traceparent",
            "W3C Trace Context of who submitted, or cancelled, where there was one.",
            examples.TRACEPARENT,
            required=False,
        ),
        _header("tracestate", "The rest of it, where there was any.", examples.TRACESTATE, required=False),
    ]


def _header(name: str, about: str, example: str, *, required: bool = True) -> Json:
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": about,
        "schema": {"type": "string"},
        "example": example,
    }

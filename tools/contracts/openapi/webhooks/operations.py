"""The operations that manage a workspace's webhooks."""

from typing import Any, Final

from pydantic import BaseModel

from forwarder.notifier.api.requests import NewWebhook, Rotation, WebhookChange
from forwarder.reservation.problems import service, webhooks
from forwarder.reservation.problems.problem import ProblemType
from forwarder.reservation.request import MAX_BODY_BYTES
from tools.contracts.json_schema import schema_of
from tools.contracts.openapi.parameters import references
from tools.contracts.openapi.responses import BODY_PROBLEMS, COMMON_PROBLEMS, Json, needs, problems, success
from tools.contracts.openapi.webhooks import bodies as shapes

TAG: Final = "Webhooks"
_PATH: Final = "/api/v1/vrs/webhooks"
_COMMON: Final = (
    *COMMON_PROBLEMS,
    webhooks.LIVE_KEY_NEEDED,
    service.OVERLOADED,
    service.STORE_UNAVAILABLE,
    service.TENANCY_UNAVAILABLE,
    service.INTERNAL_ERROR,
)
_SHAPES: Final[tuple[type[BaseModel], ...]] = (
    NewWebhook,
    WebhookChange,
    Rotation,
    shapes.WebhookEnvelope,
    shapes.WebhookWithSecretEnvelope,
    shapes.WebhookPage,
    shapes.WebhookRemovedEnvelope,
    shapes.TestQueuedEnvelope,
    shapes.WebhookDeliveryEnvelope,
    shapes.WebhookDeliveryPage,
    shapes.ResultDelivered,
    shapes.TestDelivered,
)
_EXAMPLES: Final = {
    "NewWebhook": {"url": "https://bookings.example/webhooks", "types": ["reservation.confirmed.v1"]},
    "WebhookChange": {"enabled": True},
    "Rotation": {"overlapSeconds": 3600},
}


def webhook_schemas(ref: str) -> Json:
    """The schemas of bodies, answers and deliveries, and their parts, by name. `ref` is where a reference finds them."""
    parts: Json = {}
    for model in _SHAPES:
        parts[model.__name__] = schema_of(model, parts, ref=ref)
    return dict(sorted(parts.items()))


def webhook_paths() -> Json:
    """The paths of the notifier."""
    return {
        _PATH: {"get": _list(), "post": _add()},
        f"{_PATH}/{{id}}": {"get": _show(), "patch": _change(), "delete": _remove()},
        f"{_PATH}/{{id}}/test": {"post": _test()},
        f"{_PATH}/{{id}}/rotate": {"post": _rotate()},
        f"{_PATH}/{{id}}/deliveries": {"get": _deliveries()},
        f"{_PATH}/{{id}}/deliveries/{{delivery_id}}": {"get": _delivery()},
        f"{_PATH}/{{id}}/deliveries/{{delivery_id}}/resend": {"post": _resend()},
    }


def _add() -> Json:
    made = success("Added.", "WebhookWithSecretEnvelope", ("webhookAdded",), "Location", "Cache-Control")
    return _operation(
        "addWebhook",
        "Add a webhook",
        "From now on, events of the workspace are posted there, signed as Standard Webhooks has it. The answer holds the secret, "
        "which is not shown again.",
        (),
        {"201": made},
        *(*BODY_PROBLEMS, webhooks.TOO_MANY_WEBHOOKS),
        body="NewWebhook",
    )


def _list() -> Json:
    found = success("A page.", "WebhookPage", ("webhookPage",), "Cache-Control")
    about = "In the order in which they were added."
    parameters = ("limit", "cursor")
    return _operation(
        "listWebhooks",
        "The workspace's webhooks, page by page",
        about,
        parameters,
        {"200": found},
    )


def _show() -> Json:
    found = success("The webhook.", "WebhookEnvelope", ("webhook",), "Cache-Control")
    return _operation(
        "getWebhook",
        "One webhook",
        "As it is now; its secret is not shown.",
        ("webhookId",),
        {"200": found},
        webhooks.WEBHOOK_NOT_FOUND,
    )


def _change() -> Json:
    changed = success("As it is now.", "WebhookEnvelope", ("webhook",), "Cache-Control")
    return _operation(
        "changeWebhook",
        "Change, enable or disable a webhook",
        "What is left out stays as it is. Disabled, nothing is sent to it; what happens meanwhile is not kept for it.",
        ("webhookId",),
        {"200": changed},
        *(*BODY_PROBLEMS, webhooks.WEBHOOK_NOT_FOUND),
        body="WebhookChange",
    )


def _remove() -> Json:
    removed = success("Removed.", "WebhookRemovedEnvelope", ("webhookRemoved",), "Cache-Control")
    return _operation(
        "removeWebhook",
        "Remove a webhook",
        "Nothing more is sent to it, and its deliveries are not shown any more.",
        ("webhookId",),
        {"200": removed},
        webhooks.WEBHOOK_NOT_FOUND,
    )


def _test() -> Json:
    queued = success("On its way.", "TestQueuedEnvelope", ("webhookTestQueued",), "Location", "Cache-Control")
    return _operation(
        "testWebhook",
        "Send a test event",
        "Of type `webhook.test.v1`, to this webhook alone, whatever it takes. `Location` tells what came of it.",
        ("webhookId",),
        {"202": queued},
        *(webhooks.WEBHOOK_NOT_FOUND, webhooks.WEBHOOK_DISABLED),
    )


def _rotate() -> Json:
    rotated = success("The new secret.", "WebhookWithSecretEnvelope", ("webhookAdded",), "Cache-Control")
    return _operation(
        "rotateWebhookSecret",
        "Replace a webhook's secret",
        "For `overlapSeconds`, a day unless said otherwise, deliveries carry two signatures, so that the receiver can change its "
        "secret at any moment of it. After another rotation within that time, earlier secrets keep signing for the rest of theirs, "
        "up to four at a time; `overlapSeconds` 0 ends all of them at once.",
        ("webhookId",),
        {"200": rotated},
        *(*BODY_PROBLEMS, webhooks.WEBHOOK_NOT_FOUND),
        body="Rotation",
        optional=True,
    )


def _deliveries() -> Json:
    found = success("A page.", "WebhookDeliveryPage", ("webhookDeliveryPage",), "Cache-Control")
    return _operation(
        "listWebhookDeliveries",
        "What was sent to a webhook, page by page",
        "The newest first, kept for 30 days.",
        ("webhookId", "deliveryStatus", "limit", "cursor"),
        {"200": found},
        webhooks.WEBHOOK_NOT_FOUND,
    )


def _delivery() -> Json:
    found = success("The delivery.", "WebhookDeliveryEnvelope", ("webhookDelivery",), "Cache-Control")
    return _operation(
        "getWebhookDelivery",
        "One delivery",
        "How it stands, and its last attempts with what they were answered.",
        ("webhookId", "deliveryId"),
        {"200": found},
        *(webhooks.WEBHOOK_NOT_FOUND, webhooks.DELIVERY_NOT_FOUND),
    )


def _resend() -> Json:
    queued = success("On its way.", "WebhookDeliveryEnvelope", ("webhookDelivery",), "Cache-Control")
    return _operation(
        "resendWebhookDelivery",
        "Send a delivery again",
        "Soon, and under the same `webhook-id`, whatever became of it.",
        ("webhookId", "deliveryId"),
        {"202": queued},
        *(webhooks.WEBHOOK_NOT_FOUND, webhooks.DELIVERY_NOT_FOUND, webhooks.WEBHOOK_DISABLED),
    )


def _operation(
    operation_id: str,
    summary: str,
    about: str,
    parameters: tuple[str, ...],
    done: Json,
    *refusals: ProblemType,
    body: str = "",
    optional: bool = False,
) -> Json:
    said: dict[str, Any] = {"requestBody": _body(body, required=not optional)} if body else {}
    return {
        "operationId": operation_id,
        "tags": [TAG],
        "summary": summary,
        "description": about,
        **needs("webhooks"),
        "parameters": references((*parameters, "workspaceId", "RequestId")),
        **said,
        "responses": {**done, **problems((*refusals, *_COMMON))},
    }


def _body(schema: str, *, required: bool) -> Json:
    return {
        "required": required,
        "description": f"JSON in UTF-8, at most {MAX_BODY_BYTES:,} bytes.",
        "content": {
            "application/json": {
                "schema": {"$ref": f"#/components/schemas/{schema}"},
                "examples": {"example": {"value": _EXAMPLES[schema]}},
            }
        },
    }

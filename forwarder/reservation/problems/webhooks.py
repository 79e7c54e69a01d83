"""Problems of calls that manage webhooks."""

from typing import Final

from forwarder.reservation.problems.problem import ProblemType

LIVE_KEY_NEEDED: Final = ProblemType(
    "live_key_needed",
    "A test key cannot do this",
    403,
    "A workspace's webhooks serve live and test mode alike, and only live keys can manage them.",
    "Manage webhooks with a live key of the workspace.",
)
WEBHOOK_NOT_FOUND: Final = ProblemType(
    "webhook_not_found",
    "No such webhook",
    404,
    "The workspace has no webhook with that `id`; it may have been removed.",
    "Use an `id` from the workspace's list of webhooks.",
)
DELIVERY_NOT_FOUND: Final = ProblemType(
    "webhook_delivery_not_found",
    "No such delivery",
    404,
    "The webhook has no delivery with that `id`; deliveries are deleted after 30 days.",
    "Use an `id` from the webhook's list of deliveries.",
)
WEBHOOK_DISABLED: Final = ProblemType(
    "webhook_disabled",
    "The webhook is disabled",
    409,
    "Nothing is sent to a disabled webhook. `disabledReason` says why it was disabled.",
    "Enable the webhook first, once its URL responds again.",
)
TOO_MANY_WEBHOOKS: Final = ProblemType(
    "too_many_webhooks",
    "The workspace has reached its limit of webhooks",
    409,
    "A workspace can have only a limited number of webhooks, because every event is sent to each that subscribes to it.",
    "Remove or change a webhook that you no longer need.",
)

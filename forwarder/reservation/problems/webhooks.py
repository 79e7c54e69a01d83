"""Problems of a call that manages webhooks."""

from typing import Final

from forwarder.reservation.problems.problem import ProblemType

LIVE_KEY_NEEDED: Final = ProblemType(
    "live_key_needed",
    "A test key cannot do this",
    403,
    "Webhooks are the workspace's own, for live and test mode alike, and the API key is a test key.",
    "Manage webhooks with a live key of the workspace.",
)
WEBHOOK_NOT_FOUND: Final = ProblemType(
    "webhook_not_found",
    "No such webhook",
    404,
    "The workspace has no webhook of that `id`, or has it no longer.",
    "Use an `id` that the workspace's list of webhooks has.",
)
DELIVERY_NOT_FOUND: Final = ProblemType(
    "webhook_delivery_not_found",
    "No such delivery",
    404,
    "The webhook has no delivery of that `id`, or has it no longer: the log keeps deliveries for 30 days.",
    "Use an `id` that the webhook's list of deliveries has.",
)
WEBHOOK_DISABLED: Final = ProblemType(
    "webhook_disabled",
    "The webhook is disabled",
    409,
    "Nothing is sent to a webhook that is disabled. `disabledReason` says why it is.",
    "Enable the webhook first, once its address answers again.",
)
TOO_MANY_WEBHOOKS: Final = ProblemType(
    "too_many_webhooks",
    "The workspace has as many webhooks as it may",
    409,
    "Every webhook is sent every event that it takes, and so their number is bounded.",
    "Remove a webhook that is not needed any more, or change it.",
)

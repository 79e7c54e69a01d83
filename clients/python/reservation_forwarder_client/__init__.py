"""A client of the service, for booking engines and downstream services in Python: typed, blocking or asynchronous, on httpx.

    with ForwarderClient(url, token=…, workspace=…, account=…) as client:
        submission = client.submit({…}, wait=10)

`ForwarderClient` and `AsyncForwarderClient` submit, follow, list and cancel, and manage webhooks; `verify_webhook` checks that a
delivery comes from the service. `reservation_forwarder_client.problems` shows the tree of errors. The package needs httpx, and no
other part of the forwarder.
"""

from reservation_forwarder_client.async_client import AsyncForwarderClient
from reservation_forwarder_client.bodies import (
    Address,
    BookingEngineReservation,
    CardDetails,
    GeneralAddress,
    GeneralGuest,
    GeneralReservation,
    Guest,
)
from reservation_forwarder_client.bulk import BookingEngineItem, GeneralItem, Item, with_keys
from reservation_forwarder_client.client import ForwarderClient
from reservation_forwarder_client.listing import Filters, Page
from reservation_forwarder_client.outcomes import (
    Cancelled,
    Confirmed,
    Failed,
    InDoubt,
    OtherOutcome,
    Outcome,
    Rejected,
)
from reservation_forwarder_client.problems import (
    Conflict,
    Fault,
    ForwarderError,
    NotAllowed,
    NotFound,
    Problem,
    RateLimited,
    Refused,
    Unavailable,
    Unexpected,
)
from reservation_forwarder_client.records import Reservation, Status
from reservation_forwarder_client.requests import RetryPolicy
from reservation_forwarder_client.submissions import (
    Attempt,
    Cancellation,
    ConflictingBody,
    DryRun,
    OutcomeTimeout,
    Submission,
    SubmissionWarning,
)
from reservation_forwarder_client.webhooks import (
    AsyncWebhooks,
    EventType,
    NewWebhook,
    Webhook,
    WebhookAttempt,
    WebhookChange,
    WebhookDelivery,
    WebhookEvent,
    WebhookInvalid,
    Webhooks,
    WebhookWithSecret,
    verify_webhook,
)

__version__ = "0.1.0"

__all__ = [
    "Address",
    "AsyncForwarderClient",
    "AsyncWebhooks",
    "Attempt",
    "BookingEngineItem",
    "BookingEngineReservation",
    "Cancellation",
    "Cancelled",
    "CardDetails",
    "Confirmed",
    "Conflict",
    "ConflictingBody",
    "DryRun",
    "EventType",
    "Failed",
    "Fault",
    "Filters",
    "ForwarderClient",
    "ForwarderError",
    "GeneralAddress",
    "GeneralGuest",
    "GeneralItem",
    "GeneralReservation",
    "Guest",
    "InDoubt",
    "Item",
    "NewWebhook",
    "NotAllowed",
    "NotFound",
    "OtherOutcome",
    "Outcome",
    "OutcomeTimeout",
    "Page",
    "Problem",
    "RateLimited",
    "Refused",
    "Rejected",
    "Reservation",
    "RetryPolicy",
    "Status",
    "Submission",
    "SubmissionWarning",
    "Unavailable",
    "Unexpected",
    "Webhook",
    "WebhookAttempt",
    "WebhookChange",
    "WebhookDelivery",
    "WebhookEvent",
    "WebhookInvalid",
    "WebhookWithSecret",
    "Webhooks",
    "verify_webhook",
    "with_keys",
]

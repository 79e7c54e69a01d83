"""A client of the service, for booking engines and downstream services in Python: asynchronous, typed, on httpx.

    async with ForwarderClient(url, token=…, workspace=…, account=…) as client:
        submission = await client.submit({…}, wait=10)

`ForwarderClient` submits, follows, lists and cancels; `verify_webhook` tells whether a delivery is the service's own. The errors
are drawn in `reservation_forwarder_client.problems`. It needs httpx, and nothing else of the forwarder.
"""

from reservation_forwarder_client.bulk import Item, Operation
from reservation_forwarder_client.listing import Filters, Page
from reservation_forwarder_client.problems import (
    Fault,
    ForwarderError,
    Problem,
    RateLimited,
    Refused,
    Unavailable,
    Unexpected,
)
from reservation_forwarder_client.records import (
    Attempt,
    Cancellation,
    DryRun,
    Reservation,
    Status,
    Submission,
    SubmissionWarning,
)
from reservation_forwarder_client.requests import RetryPolicy
from reservation_forwarder_client.service import ForwarderClient
from reservation_forwarder_client.webhooks import WebhookEvent, WebhookInvalid, verify_webhook

__all__ = [
    "Attempt",
    "Cancellation",
    "DryRun",
    "Fault",
    "Filters",
    "ForwarderClient",
    "ForwarderError",
    "Item",
    "Operation",
    "Page",
    "Problem",
    "RateLimited",
    "Refused",
    "Reservation",
    "RetryPolicy",
    "Status",
    "Submission",
    "SubmissionWarning",
    "Unavailable",
    "Unexpected",
    "WebhookEvent",
    "WebhookInvalid",
    "verify_webhook",
]

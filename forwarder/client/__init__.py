"""A client of the service, for booking engines and downstream services in Python: asynchronous, typed, on httpx.

    async with ForwarderClient(url, token=…, workspace=…, account=…) as client:
        submission = await client.submit({…}, wait=10)

`ForwarderClient` submits, follows, lists and cancels; `verify_webhook` tells whether a delivery is the service's own. The errors
are drawn in `forwarder.client.problems`. It needs httpx, and nothing else of the forwarder.
"""

from forwarder.client.bulk import Item, Operation
from forwarder.client.calls import Patience
from forwarder.client.listing import Filters, Page
from forwarder.client.problems import (
    Fault,
    ForwarderError,
    Problem,
    RateLimited,
    Refused,
    Unavailable,
    Unexpected,
)
from forwarder.client.records import Attempt, Cancellation, DryRun, Reservation, Status, Submission
from forwarder.client.service import ForwarderClient
from forwarder.client.webhooks import WebhookEvent, WebhookInvalid, verify_webhook

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
    "Patience",
    "Problem",
    "RateLimited",
    "Refused",
    "Reservation",
    "Status",
    "Submission",
    "Unavailable",
    "Unexpected",
    "WebhookEvent",
    "WebhookInvalid",
    "verify_webhook",
]

"""The example's answers and deliveries, written by the code that writes the real ones."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_core import from_json, to_json

from forwarder.http.messages import envelope
from forwarder.http.parameters import DEFAULT_LIMIT, FIRST, Wait
from forwarder.ingress.bulk import Place, SafeItem, bulk_body
from forwarder.ingress.cancel import Requested, cancellation_response
from forwarder.ingress.message import DryRun, NewSubmission, SubmissionBuilder, dry_run
from forwarder.ingress.responses import Losses, Receipt, receipt_response, validation_failed
from forwarder.notifier.api import delivery_json, endpoint_json
from forwarder.notifier.posting import TEST_EVENT, body_of, decode_event
from forwarder.pms.rehearsal import Previews
from forwarder.process.clock import SystemClock
from forwarder.query.routes import untaken_status, write_page, write_status
from forwarder.reservation.checks.fields import Reading, plausibility
from forwarder.reservation.outcome import CancellationStatus, Status
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import BookingEngineRequest
from forwarder.reservation.submission import RequestIds
from forwarder.store.deliveries import DeliveryAttempt, DeliveryEntry, DeliveryStatus
from forwarder.store.lists.port import Page, StoredSubmission
from forwarder.store.submissions.port import Attempt
from forwarder.tenancy.port import Account, Endpoint
from forwarder.tenancy.sealing import CardSealer
from forwarder.topics.outcomes import OutcomeEvent
from forwarder.webhooks.port import public_key
from tools.contracts import examples
from tools.contracts.messages import result_messages

_ORIGIN: Final = "https://forwarder.example"
_STARTED: Final = "2027-01-15T09:30:00.020Z"
_SUCCEEDED: Final = Attempt(1, "create", _STARTED, 380, "confirmed")
_ATTEMPTS: Final = {
    Status.CONFIRMED: _SUCCEEDED,
    Status.CANCELLED: _SUCCEEDED,
    Status.REJECTED: Attempt(1, "create", _STARTED, 380, "rejected", "room_unavailable"),
    Status.IN_DOUBT: Attempt(
        *(1, "create", _STARTED, 30_000, "in_doubt", "pms_timed_out"),
        "The PMS was sent the request and did not answer in time.",
    ),
}
_CARD: Final = {
    "cardNumber": "4111 1111 1111 1111",
    "cardHolderName": "Ana Ruiz",
    "expiryMonth": "09",
    "expiryYear": "2031",
}


def response_examples() -> dict[str, Any]:
    """The bodies of all responses that are no problems, by the name of the example."""
    receipt = Receipt(examples.request_id(), examples.ACCEPTED_AT)
    made = Receipt(examples.request_id(), examples.ACCEPTED_AT, _settled(Status.CONFIRMED))
    general = to_json(examples.GENERAL)
    cancelled = _settled(Status.CANCELLED)
    refused = validation_failed((examples.FAULT,))
    places = (Place(0, key="order-42"), Place(1))
    bodies = {
        "submissionAccepted": receipt_response(receipt, Wait(0), _ORIGIN, 1).body,
        "reservationAccepted": receipt_response(receipt, Wait(0), _ORIGIN, 1, general).body,
        "reservationMade": receipt_response(made, Wait(10), _ORIGIN, 1).body,
        "cancellationAccepted": cancellation_response(_cancelling(None), _ORIGIN, 1).body,
        "reservationCancelled": cancellation_response(_cancelling(cancelled), _ORIGIN, 1).body,
        "submissionUntaken": untaken_status(examples.request_id()),
        "submissionConfirmed": write_status(_stored(Status.CONFIRMED)),
        "submissionRejected": write_status(_stored(Status.REJECTED)),
        "submissionInDoubt": write_status(_stored(Status.IN_DOUBT)),
        "submissionCancelled": write_status(_stored(Status.CANCELLED)),
        "page": write_page(Page((_record(Status.CONFIRMED),), FIRST, None, None), DEFAULT_LIMIT),
        "bulkAnswered": bulk_body((SafeItem(_draft(), receipt), refused), places, _ORIGIN),
        "bulkTried": bulk_body((_tried(cardDetails=_CARD), refused), places, _ORIGIN),
        "dryRun": _dry_run(_tried(cardDetails=_CARD)),
        "dryRunRefused": _dry_run(_tried(morChannel="PMS")),
    }
    return {name: from_json(body) for name, body in bodies.items()} | webhook_examples()


def _dry_run(tried: DryRun) -> bytes:
    return envelope(not tried.refused, to_json(tried.as_json()))


def _cancelling(settled: OutcomeEvent | None) -> Requested:
    return Requested(examples.request_id(), Status.CONFIRMED, Wait(10), settled)


def _record(status: Status) -> str:
    return to_json(examples.record(status)).decode()


def _settled(status: Status) -> OutcomeEvent:
    return OutcomeEvent(status, 1, _record(status).encode(), examples.problem(status))


def _stored(status: Status) -> StoredSubmission:
    record = examples.record(status)
    asked = examples.cancellation(CancellationStatus.DONE) if status is Status.CANCELLED else None
    return StoredSubmission(
        id=record["id"],
        request_id=examples.request_id(),
        status=status,
        accepted_at=examples.ACCEPTED_AT,
        updated_at=record["updatedAt"],
        fingerprint=examples.submission().fingerprint,
        record=_record(status),
        attempts=(_ATTEMPTS[status],),
        problem=examples.problem(status),
        property_id="1001",
        revision=1,
        cancellation=asked,
    )


def _draft() -> NewSubmission:
    submitted = examples.submission()
    return NewSubmission(
        request_id=submitted.request_id,
        workspace_id=submitted.workspace_id,
        account_id=submitted.account_id,
        operation=submitted.operation,
        accepted_at=examples.ACCEPTED_AT,
        reservation=b"",
        fingerprint=submitted.fingerprint,
        key=submitted.key,
        keyed=True,
    )


def _tried(**fields: Any) -> DryRun:
    """A dry run at a PMS of kind `booking-sync`, which has no rooms."""
    account = Account(
        examples.ACCOUNT_ID, examples.WORKSPACE_ID, "booking-sync", "https://www.bookingsync.com/api/v3", ""
    )
    rental = {"roomId": examples.BOOKING_ENGINE["propertyId"]}
    request = BookingEngineRequest.model_validate_json(to_json({**examples.BOOKING_ENGINE, **rental, **fields}))
    previews = Previews(SystemClock())
    now = datetime(2027, 1, 15, 9, 30, tzinfo=UTC)
    builder = SubmissionBuilder(RequestIds(b""), CardSealer(), Losses(lambda: previews))
    trying = dry_run(builder, previews, account, Reading(request), plausibility(now), now)
    with ThreadPoolExecutor(1) as aside:  # tests write the document from within an event loop
        tried = aside.submit(asyncio.run, trying).result()
    if isinstance(tried, Problem):
        raise TypeError(tried.detail)
    return tried


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
    created_at=datetime(2027, 1, 10, 8, 0, tzinfo=UTC),
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
_SECRET: Final = "whsec_" + "c2VjcmV0IG9mIHRoZSBleGFtcGxlIGFsb25lLCAzMmI="  # nothing is signed with it


def webhook_examples() -> dict[str, Any]:
    """The bodies of the responses about webhooks, by the name of the example."""
    shown, delivery = endpoint_json(_ENDPOINT), delivery_json(_DELIVERY)
    meta = {"limit": DEFAULT_LIMIT, "cursors": {"previous": "", "current": str(FIRST), "next": ""}}
    return {
        "webhook": {"data": shown},
        "webhookAdded": {"data": {**shown, "secret": _SECRET, "publicKey": public_key(_SECRET)}},
        "webhookPage": {"data": [shown], "meta": meta},
        "webhookRemoved": {"data": {"id": _ENDPOINT.id, "removed": True}},
        "webhookTestQueued": {"data": {"deliveryId": _DELIVERY.id}},
        "webhookDelivery": {"data": delivery},
        "webhookDeliveryPage": {"data": [delivery], "meta": meta},
    }


def delivered_examples() -> dict[str, Any]:
    """What is posted to a webhook, by the type of event."""
    test = f'{{"endpointId":"{_ENDPOINT.id}","workspaceId":"{_ENDPOINT.workspace_id}"}}'
    bodies = {one.kind: decode_event(one.example).body for one in result_messages()}
    bodies[TEST_EVENT] = body_of(TEST_EVENT, examples.SETTLED_AT, test)
    return {kind: from_json(body) for kind, body in bodies.items()}

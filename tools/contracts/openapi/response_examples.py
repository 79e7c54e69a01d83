"""The example's answers, as the stages write them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_core import from_json, to_json

from forwarder.http.fields import Wait
from forwarder.http.paging import DEFAULT_LIMIT, FIRST
from forwarder.ingress.bulk.results import Place, SafeItem, bulk_body
from forwarder.ingress.cancel import Requested, cancellation_response
from forwarder.ingress.card_text import CardTextCheck
from forwarder.ingress.dry_run import DryRun, dry_run, rehearsed
from forwarder.ingress.losses import Losses
from forwarder.ingress.message import NewSubmission
from forwarder.ingress.problems import validation_failed
from forwarder.ingress.publish.idempotency import Receipt
from forwarder.ingress.receipts import dry_run_response, receipt_response
from forwarder.pms.rehearsal import Previews
from forwarder.process.clock import SystemClock
from forwarder.query.pages import write_page
from forwarder.query.status import untaken_status, write_status
from forwarder.reservation.cancellation import CancellationStatus
from forwarder.reservation.checks.fields import Reading
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.request import BookingEngineRequest
from forwarder.store.lists.port import Page, StoredSubmission
from forwarder.store.submissions.port import Attempt
from forwarder.tenancy.port import Account
from forwarder.topics.outcomes import OutcomeEvent
from tools.contracts import examples

_ORIGIN: Final = "https://forwarder.example"
_SUCCEEDED: Final = Attempt(1, "create", "2027-01-15T09:30:00.020Z", 380, "confirmed")
_ATTEMPTS: Final = {
    Status.CONFIRMED: _SUCCEEDED,
    Status.CANCELLED: _SUCCEEDED,
    Status.REJECTED: Attempt(1, "create", "2027-01-15T09:30:00.020Z", 380, "rejected", "room_unavailable"),
    Status.IN_DOUBT: Attempt(
        1,
        "create",
        "2027-01-15T09:30:00.020Z",
        30_000,
        "in_doubt",
        "pms_timed_out",
        "The PMS was sent the request and did not answer in time.",
    ),
}


def response_examples() -> dict[str, Any]:
    """By name."""
    bodies = {
        "submissionAccepted": receipt_response(
            Receipt(examples.request_id(), examples.ACCEPTED_AT), Wait(0), _ORIGIN, 1
        ).body,
        "reservationAccepted": receipt_response(
            Receipt(examples.request_id(), examples.ACCEPTED_AT), Wait(0), _ORIGIN, 1, to_json(examples.GENERAL)
        ).body,
        "reservationMade": receipt_response(_receipt(Status.CONFIRMED), Wait(10), _ORIGIN, 1).body,
        "cancellationAccepted": cancellation_response(_requested(None), _ORIGIN, 1).body,
        "reservationCancelled": cancellation_response(_requested(_settled(Status.CANCELLED)), _ORIGIN, 1).body,
        "submissionUntaken": untaken_status(examples.request_id()),
        "submissionConfirmed": write_status(_stored(Status.CONFIRMED)),
        "submissionRejected": write_status(_stored(Status.REJECTED)),
        "submissionInDoubt": write_status(_stored(Status.IN_DOUBT)),
        "submissionCancelled": write_status(_stored(Status.CANCELLED)),
        "page": write_page(Page((_record(Status.CONFIRMED),), FIRST, None, None), DEFAULT_LIMIT),
    }
    return {name: from_json(body) for name, body in bodies.items()} | bulk_examples(_ORIGIN)


def _receipt(status: Status) -> Receipt:
    return Receipt(examples.request_id(), examples.ACCEPTED_AT, _settled(status))


def _requested(settled: OutcomeEvent | None) -> Requested:
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


_PMS: Final = "https://www.bookingsync.com/api/v3"
_CARD: Final = {
    "cardNumber": "4111 1111 1111 1111",
    "cardHolderName": "Ana Ruiz",
    "expiryMonth": "09",
    "expiryYear": "2031",
}


def bulk_examples(origin: str) -> dict[str, Any]:
    """By name."""
    refused = validation_failed((examples.FAULT,))
    places = (Place(0, key="order-42"), Place(1))
    kept = SafeItem(_draft(), Receipt(examples.request_id(), examples.ACCEPTED_AT))
    return {
        "bulkAnswered": from_json(bulk_body((kept, refused), places, origin)),
        "bulkTried": from_json(bulk_body((_tried(cardDetails=_CARD), refused), places, origin)),
        "dryRun": _dry_run_answer(cardDetails=_CARD),
        "dryRunRefused": _dry_run_answer(morChannel="PMS"),
    }


def _dry_run_answer(**fields: Any) -> Any:
    return from_json(dry_run_response(_tried(**fields)).body)


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
    account = Account(examples.ACCOUNT_ID, examples.WORKSPACE_ID, "booking-sync", _PMS, "")
    rental = {"roomId": examples.BOOKING_ENGINE["propertyId"]}
    request = BookingEngineRequest.model_validate_json(to_json({**examples.BOOKING_ENGINE, **rental, **fields}))
    previews = Previews(SystemClock())
    now = datetime(2027, 1, 15, 9, 30, tzinfo=UTC)
    tried = dry_run(account, Reading(request), now, Losses(lambda: previews), CardTextCheck())
    if isinstance(tried, Problem):
        raise TypeError(tried.detail)
    with ThreadPoolExecutor(1) as aside:  # tests write the document from within an event loop
        return aside.submit(asyncio.run, rehearsed(tried, previews)).result()
